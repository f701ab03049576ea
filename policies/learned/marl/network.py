"""MARL's networks (section IV, figure 6): each scheduler has two graph networks, an encoder, an actor and a critic.

The first graph network embeds the inner graph; its GPU groups, the jobs and the task are encoded to the scheduler's vector z0,
which schedulers exchange. The second one passes these over the inter graph. The scheduler's own z0, z1, z2 are the input of actor
and critic. A vector that another scheduler sent is a message: no gradient passes through it, so that each scheduler learns alone.

There are two forms (`Recipe.network`):

- `paper`: z0 is made of all groups side by side, and the actor has an output for each action. It is for one data center.
- `scores`, ours: z0 is made of the mean and the maximum over groups, and the actor scores one group, from its embedding, or one
  scheduler to forward to, from its vector. The weights are for data centers of any size.

Each scheduler has weights of its own, as in the paper ("at each scheduler there are two GNNs"); `shared` gives all the same,
which is our option. The paper gives the layers, 4 and 2, and the 128 hidden units of actor and critic; widths of embeddings are our
choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

from policies.learned.algorithms.networks import perceptron
from policies.learned.marl.convolution import GraphNetwork
from policies.learned.marl.graphs import Layout
from policies.learned.marl.recipe import SCORES, Recipe

State: TypeAlias = Mapping[str, Tensor]
"""Arrays of observations by name, with a row for each of B observations of one scheduler."""
Embedded: TypeAlias = tuple[Tensor, Tensor]
"""Vectors z0 (B, encoded), and the embeddings of GPU groups (B, M, .)."""


class PaperNetwork(nn.Module):
    """The networks of one scheduler, as in the paper."""

    def __init__(self, layout: Layout, recipe: Recipe) -> None:
        super().__init__()
        self._layout = layout
        self.inner = GraphNetwork(layout.inner, layout.of_group, recipe.width, recipe.inner_layers)
        listed = 0 if layout.by_type else layout.jobs * layout.of_job
        seen = layout.groups * recipe.width + listed + layout.of_task
        self.encoder = nn.Sequential(nn.Linear(seen, recipe.encoded), nn.ReLU())
        self.inter = GraphNetwork(layout.inter, recipe.encoded, recipe.encoded, recipe.inter_layers)
        inputs = recipe.encoded * (1 + recipe.inter_layers)
        self.actor = perceptron((inputs, recipe.hidden, layout.actions), nn.ReLU, last_gain=0.01)
        self.critic = perceptron((inputs, recipe.hidden, 1), nn.ReLU, last_gain=1.0)

    def encode(self, own: State) -> Embedded:
        """Return z0 and embeddings of observations of one scheduler."""
        groups = own["groups"]
        others = groups.new_zeros(len(groups), self._layout.inner.nodes - self._layout.groups, groups.shape[2])
        embedded = self.inner(torch.cat([groups, others], 1), own["links"])[-1][:, : self._layout.groups]
        listed = [own["jobs"].flatten(1)] if "jobs" in own else []
        found: Tensor = self.encoder(torch.cat([embedded.flatten(1), *listed, own["task"]], 1))
        return found, embedded

    def decide(
        self, vectors: Tensor, acting: Tensor, inter: Tensor, _own: State, _embedded: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits (B, actions) and values (B) from the vectors of all schedulers (B, S, encoded), the numbers of those that
        act (B), the loads of the inter graph (B, E'), their observations, and the embeddings of these."""
        state = _own_state(self.inter, self._layout, vectors, acting, inter)
        return self.actor(state), self.critic(state).squeeze(1)


class ScoringNetwork(nn.Module):
    """The networks of one scheduler, for data centers of any size."""

    def __init__(self, layout: Layout, recipe: Recipe) -> None:
        super().__init__()
        self._layout = layout
        self.inner = GraphNetwork(layout.inner, layout.of_group, recipe.width, recipe.inner_layers)
        of_group = layout.of_group + recipe.width * recipe.inner_layers
        self.encoder = nn.Sequential(nn.Linear(2 * recipe.width + layout.of_task, recipe.encoded), nn.ReLU())
        self.inter = GraphNetwork(layout.inter, recipe.encoded, recipe.encoded, recipe.inter_layers)
        inputs = recipe.encoded * (1 + recipe.inter_layers)
        self.of_task = nn.Linear(layout.of_task, recipe.hidden)
        self.of_state = nn.Linear(inputs, recipe.hidden, bias=False)
        self.of_group = nn.Linear(of_group, recipe.hidden, bias=False)
        self.score = perceptron((recipe.hidden, recipe.hidden, 1), nn.ReLU, last_gain=0.1)
        self.forwarding = perceptron((2 * inputs, recipe.hidden, 1), nn.ReLU, last_gain=0.01)
        self.critic = perceptron((inputs, recipe.hidden, 1), nn.ReLU, last_gain=1.0)

    def encode(self, own: State) -> Embedded:
        """As in `PaperNetwork`; the embeddings have the features of a group and those after every layer."""
        groups, count = own["groups"], self._layout.groups
        others = groups.new_zeros(len(groups), self._layout.inner.nodes - count, groups.shape[2])
        layers = [layer[:, :count] for layer in self.inner(torch.cat([groups, others], 1), own["links"])]
        last = layers[-1]
        found: Tensor = self.encoder(torch.cat([last.mean(1), last.amax(1), own["task"]], 1))
        return found, torch.cat([groups, *layers], 2)

    def decide(
        self, vectors: Tensor, acting: Tensor, inter: Tensor, own: State, embedded: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As in `PaperNetwork`."""
        every = _states(self.inter, self._layout, vectors, inter)
        state = every[torch.arange(len(acting)), acting]
        hidden = (self.of_task(own["task"]) + self.of_state(state)).unsqueeze(1) + self.of_group(embedded)
        groups = self.score(torch.relu(hidden)).squeeze(2)
        both = torch.cat([every, state.unsqueeze(1).expand_as(every)], 2)
        return torch.cat([groups, self.forwarding(both).squeeze(2)], 1), self.critic(state).squeeze(1)


def _states(network: GraphNetwork, layout: Layout, vectors: Tensor, inter: Tensor) -> Tensor:
    """Return z0, z1, ... of all schedulers side by side (B, S, encoded x (1 + layers))."""
    switches = vectors.new_zeros(len(vectors), layout.inter.nodes - vectors.shape[1], vectors.shape[2])
    nodes = torch.cat([vectors, switches], 1)
    return torch.cat([layer[:, : vectors.shape[1]] for layer in (nodes, *network(nodes, inter))], 2)


def _own_state(network: GraphNetwork, layout: Layout, vectors: Tensor, acting: Tensor, inter: Tensor) -> Tensor:
    return _states(network, layout, vectors, inter)[torch.arange(len(acting)), acting]


class MarlNetwork(nn.Module):
    """The networks of all schedulers."""

    def __init__(self, layout: Layout, recipe: Recipe) -> None:
        super().__init__()
        self.layout = layout
        kinds = 1 if recipe.shared else layout.schedulers
        form = ScoringNetwork if recipe.network == SCORES else PaperNetwork
        self.of = nn.ModuleList(form(layout, recipe) for _ in range(kinds))

    def encode(self, own: State, acting: Tensor) -> Tensor:
        """Return z0 (B, encoded) of observations, each of the scheduler with that number (B)."""
        return self._by_scheduler(acting, lambda network, rows: network.encode(_rows(own, rows))[:1])[0]

    def decide(self, own: State, acting: Tensor, vectors: Tensor, inter: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, actions) and values (B) of the acting schedulers (numbers: B), from their own observations, and the
        vectors (B, S, encoded) that all sent; their own vector is made anew, so that it learns."""

        def of(network: PaperNetwork | ScoringNetwork, rows: Tensor) -> tuple[Tensor, ...]:
            mine = _rows(own, rows)
            vector, embedded = network.encode(mine)
            known = vectors[rows].index_put((torch.arange(len(rows)), acting[rows]), vector)
            return network.decide(known, acting[rows], inter[rows], mine, embedded)

        logits, values = self._by_scheduler(acting, of)
        return logits, values

    def forward(self, state: State) -> tuple[Tensor, Tensor]:
        """Return logits (B, actions) and values (B) from the environment's states, with rows for all schedulers."""
        acting = state["scheduler"].argmax(1)
        count = self.layout.schedulers
        with torch.no_grad():
            every = {name: state[name].flatten(0, 1) for name in self.layout.shapes}
            vectors = self.encode(every, torch.arange(count).repeat(len(acting))).reshape(len(acting), count, -1)
        rows = torch.arange(len(acting))
        own = {name: state[name][rows, acting] for name in self.layout.shapes}
        return self.decide(own, acting, vectors, state["inter"])

    def _by_scheduler(self, acting: Tensor, of: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Return the results of each scheduler's network for its rows, in the order of all rows."""
        if len(self.of) == 1:
            return of(self.of[0], torch.arange(len(acting)))
        parts = [torch.nonzero(acting == place).squeeze(1) for place in range(len(self.of))]
        found = [of(self.of[place], rows) for place, rows in enumerate(parts) if len(rows)]
        order = torch.cat(parts).argsort()
        return tuple(torch.cat(column)[order] for column in zip(*found, strict=True))


def _rows(own: State, rows: Tensor) -> State:
    return {name: cells[rows] for name, cells in own.items()}
