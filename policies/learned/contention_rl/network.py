"""The actor-critic: one small network with the same weights for every node; and the plain one of the paper's code.

Source: contention_rl, section IV, leaves the network open (its code takes stable-baselines3's default, two layers of 64). Nodes of
a cluster are alike, so what is learned for one holds for all: renumbering the nodes renumbers the actions, and nothing else.

    node n          e_n = tanh(A x_n)                        x_n: its row of the left half
    queue           q = tanh(B y)                            y: the right half
    cluster         c = tanh(C [mean_n e_n; q])
    candidate k     d_k = D_k c + E y_k                      y_k: the cells of the right half that are its own
    placement p     f_p = F mean(e_n of the nodes it names) + g_p    g: by number of nodes, or by rule
    logit(k, p)     = h tanh(d_k + f_p) + b_p;   logit(wait) = w c      b: by number of nodes
    critic          value = v tanh(V [mean_n tanh(T tanh(S x_n)); tanh(U y)])     weights of its own

At first b prefers few nodes: jobs that start where a spread one ended are spread too, so an agent that begins with spreads learns
about nothing else. Only cells with features show which cells belong to a candidate; without features, E is left out.

The paper's code has two multilayer perceptrons with tanh, for logits and for values, each with two layers of 64 over all cells.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor, nn

from policies.errors import EncoderError
from policies.learned.algorithms.networks import MlpActorCritic
from policies.learned.contention_rl.encoder import Encoding
from policies.learned.contention_rl.features import MANY, rank
from policies.learned.contention_rl.placement_actions import EVEN, LISTS, NODE_RULES
from policies.learned.contention_rl.spreads import node_lists, powers

NODES, MLP = "nodes", "mlp"
NETWORKS = (NODES, MLP)
PRIOR = 2.0
"""Initial difference in logits between a number of nodes and twice as many."""


class ActorCritic(nn.Module):
    """Maps observations of the encoding to logits of all actions, and values. Invariant: see above."""

    _members: Tensor
    _kinds: Tensor
    _ranks: Tensor

    def __init__(self, encoding: Encoding, hidden: int = 64, pair: int = 32) -> None:
        """`hidden` is the width of the layers for node, queue and cluster; `pair` of those for a candidate and a placement."""
        super().__init__()
        self._encoding = encoding
        members, kinds, doubled = _placements(encoding)
        self._rows = encoding.num_nodes.bit_length() if encoding.split == EVEN else encoding.num_nodes
        cells = encoding.gpus_per_node * encoding.depth
        self.node = nn.Linear(cells, hidden)
        self.queue = nn.Linear(self._rows * cells, hidden)
        self.cluster = nn.Linear(2 * hidden, hidden)
        self.candidates = nn.Linear(hidden, encoding.candidates * pair)
        self.own = nn.Linear(self._rows * cells, pair, bias=False) if encoding.cells == MANY else None
        self.named = nn.Linear(hidden, pair, bias=False) if encoding.nodes == LISTS else None
        self.kind = nn.Parameter(torch.zeros(int(kinds.max()) + 1, pair))
        self.few = nn.Parameter(-PRIOR * doubled)
        self.pair = nn.Linear(pair, 1)
        self.wait = nn.Linear(hidden, 1)
        self.critic_node = nn.Linear(cells, hidden)
        self.critic_nodes = nn.Linear(hidden, hidden)
        self.critic_queue = nn.Linear(self._rows * cells, hidden)
        self.critic = nn.Linear(2 * hidden, hidden)
        self.value = nn.Linear(hidden, 1)
        self.register_buffer("_members", members, persistent=False)
        self.register_buffer("_kinds", kinds, persistent=False)
        ranks = torch.tensor([rank(place, encoding.candidates) for place in range(encoding.candidates)])
        self.register_buffer("_ranks", ranks, persistent=False)
        self._initialize()

    def _initialize(self) -> None:
        """Set orthogonal weights, small for the logits: at first all possible actions are about equally likely."""
        for name, layer in self.named_modules():
            if isinstance(layer, nn.Linear):
                gain = {"pair": 0.01, "wait": 0.01, "value": 1.0}.get(name, 2.0**0.5)
                nn.init.orthogonal_(layer.weight, gain)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        nn.init.normal_(self.kind, std=0.1)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (batch, actions), nothing masked, and values (batch)."""
        known = self._encoding
        batch, width = len(seen), known.gpus_per_node
        array = seen.reshape(batch, known.num_nodes, 2 * width, known.depth)
        left, right = array[:, :, :width].flatten(2), array[:, : self._rows, width:]
        nodes = torch.tanh(self.node(left))
        queue = torch.tanh(self.queue(right.flatten(1)))
        cluster = torch.tanh(self.cluster(torch.cat([nodes.mean(1), queue], 1)))
        candidates = self.candidates(cluster).view(batch, known.candidates, 1, -1)
        if self.own is not None:
            candidates = candidates + self.own(self._own_cells(right)).unsqueeze(2)
        placements = self.kind[self._kinds]
        if self.named is not None:
            placements = placements + self._members @ self.named(nodes)
        pairs = torch.tanh(candidates + placements.reshape(-1, 1, *placements.shape[-2:]))
        logits = (self.pair(pairs).squeeze(-1) + self.few[self._kinds]).flatten(1)
        return torch.cat([self.wait(cluster), logits], 1), self._values(left, right)

    def _values(self, left: Tensor, right: Tensor) -> Tensor:
        nodes = torch.tanh(self.critic_nodes(torch.tanh(self.critic_node(left))))
        queue = torch.tanh(self.critic_queue(right.flatten(1)))
        values: Tensor = self.value(torch.tanh(self.critic(torch.cat([nodes.mean(1), queue], 1))))
        return values.squeeze(1)

    def _own_cells(self, right: Tensor) -> Tensor:
        """Return for each candidate the right half without the cells of the others."""
        own = (right[..., 0].unsqueeze(1) - self._ranks.view(1, -1, 1, 1)).abs() < 1e-4
        return (right.unsqueeze(1) * own.unsqueeze(-1)).flatten(2)


class PaperActorCritic(MlpActorCritic):
    """The network of the paper's code: it knows neither nodes nor candidates, only cells."""

    def __init__(self, encoding: Encoding, hidden: int = 64) -> None:
        cells = encoding.num_nodes * 2 * encoding.gpus_per_node * encoding.depth
        super().__init__(cells, encoding.actions, (hidden, hidden))

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (batch, actions), nothing masked, and values (batch)."""
        return super().forward(seen.flatten(1))


AgentNetwork: TypeAlias = ActorCritic | PaperActorCritic


def network_of(encoding: Encoding, kind: str, hidden: int, pair: int) -> AgentNetwork:
    """Return an untrained network of that kind. Raises EncoderError for an unknown one."""
    if kind not in NETWORKS:
        raise EncoderError(f"network is {kind!r}; give {' or '.join(NETWORKS)}")
    return PaperActorCritic(encoding, hidden) if kind == MLP else ActorCritic(encoding, hidden, pair)


def _placements(encoding: Encoding) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each placement of a candidate the share of each node, where it names nodes, and its kind; and for each kind the
    log2 of its number of nodes."""
    nodes = encoding.num_nodes
    if encoding.nodes == LISTS:
        counts = powers(nodes) if encoding.split == EVEN else tuple(range(1, nodes + 1))
        lists = node_lists(nodes, tuple(counts)).lists
        members = torch.zeros(len(lists), nodes)
        for row, chosen in enumerate(lists):
            members[row, list(chosen)] = 1 / len(chosen)
        return members, torch.tensor([counts.index(len(chosen)) for chosen in lists]), torch.tensor(counts).log2()
    spreads = powers(nodes) if encoding.split == EVEN else (1,)
    kinds = len(NODE_RULES) * len(spreads)
    doubled = torch.tensor(spreads).log2().repeat_interleave(len(NODE_RULES))
    return torch.zeros(kinds, nodes), torch.arange(kinds), doubled
