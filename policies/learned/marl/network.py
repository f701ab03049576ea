"""MARL's networks (section IV, figure 6): each scheduler has two graph networks, an encoder, an actor and a critic.

The first graph network embeds the inner graph; its GPU groups, the jobs and the task are encoded to the scheduler's vector z0,
which schedulers exchange. The second one passes these over the inter graph. The scheduler's own z0, z1, z2 are the input of actor
and critic.

Each scheduler has weights of its own, as in the paper ("at each scheduler there are two GNNs"); `shared` gives all the same,
which is our option. A vector that another scheduler sent is a message: no gradient passes through it, so that each scheduler
learns alone. The paper gives the layers, 4 and 2, and the 128 hidden units of actor and critic; widths of embeddings are our
choice."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from policies.learned.algorithms.networks import perceptron
from policies.learned.marl.convolution import GraphNetwork
from policies.learned.marl.graphs import Layout
from policies.learned.marl.recipe import Recipe

State = Mapping[str, Tensor]
"""Arrays of the environment's state by name, with a row for each of B observations."""


class SchedulerNetwork(nn.Module):
    """The networks of one scheduler."""

    def __init__(self, layout: Layout, recipe: Recipe) -> None:
        super().__init__()
        self._layout = layout
        self.inner = GraphNetwork(layout.inner, layout.of_group, recipe.width, recipe.inner_layers)
        seen = layout.groups * recipe.width + layout.jobs * layout.of_job + layout.of_task
        self.encoder = nn.Sequential(nn.Linear(seen, recipe.encoded), nn.ReLU())
        self.inter = GraphNetwork(layout.inter, recipe.encoded, recipe.encoded, recipe.inter_layers)
        inputs = recipe.encoded * (1 + recipe.inter_layers)
        self.actor = perceptron((inputs, recipe.hidden, layout.actions), nn.ReLU, last_gain=0.01)
        self.critic = perceptron((inputs, recipe.hidden, 1), nn.ReLU, last_gain=1.0)

    def encode(self, groups: Tensor, jobs: Tensor, task: Tensor, links: Tensor) -> Tensor:
        """Return z0 (B, encoded) of observations of one scheduler: groups (B, M, L + 2N), jobs (B, N, .), task (B, .), links
        (B, E)."""
        others = groups.new_zeros(len(groups), self._layout.inner.nodes - self._layout.groups, groups.shape[2])
        embedded = self.inner(torch.cat([groups, others], 1), links)[-1][:, : self._layout.groups]
        found: Tensor = self.encoder(torch.cat([embedded.flatten(1), jobs.flatten(1), task], 1))
        return found

    def decide(self, vectors: Tensor, own: Tensor, inter: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (B, actions) and values (B) from the vectors of all schedulers (B, S, encoded), the numbers of those that
        act (B), and the loads of the inter graph (B, E')."""
        switches = vectors.new_zeros(len(vectors), self._layout.inter.nodes - vectors.shape[1], vectors.shape[2])
        nodes = torch.cat([vectors, switches], 1)
        every = [nodes, *self.inter(nodes, inter)]
        rows = torch.arange(len(own))
        state = torch.cat([layer[rows, own] for layer in every], 1)
        return self.actor(state), self.critic(state).squeeze(1)


class MarlNetwork(nn.Module):
    """The networks of all schedulers: state (B rows) -> logits (B, actions) and values (B) of those that act."""

    def __init__(self, layout: Layout, recipe: Recipe) -> None:
        super().__init__()
        self.layout = layout
        kinds = 1 if recipe.shared else layout.schedulers
        self.of = nn.ModuleList(SchedulerNetwork(layout, recipe) for _ in range(kinds))

    def forward(self, state: State) -> tuple[Tensor, Tensor]:
        """Return logits and values."""
        own = state["scheduler"].argmax(1)
        rows = torch.arange(len(own))
        with torch.no_grad():
            vectors = torch.stack(
                [self._encode(state, slice(None), number) for number in range(self.layout.schedulers)], 1
            )
        logits = vectors.new_zeros(len(own), self.layout.actions)
        values = vectors.new_zeros(len(own))
        for place in range(len(self.of)):
            network = self._network(place)
            mine = rows if len(self.of) == 1 else rows[own == place]
            if not len(mine):
                continue
            who = own[mine]
            seen = [state[name][mine, who] for name in ("groups", "jobs", "task", "links")]
            its = vectors[mine].clone()
            its[torch.arange(len(mine)), who] = network.encode(*seen)
            found, worth = network.decide(its, who, state["inter"][mine])
            logits = logits.index_copy(0, mine, found)
            values = values.index_copy(0, mine, worth)
        return logits, values

    def _encode(self, state: State, rows: slice, number: int) -> Tensor:
        network = self._network(number if len(self.of) > 1 else 0)
        found: Tensor = network.encode(*(state[name][rows, number] for name in ("groups", "jobs", "task", "links")))
        return found

    def _network(self, place: int) -> SchedulerNetwork:
        found = self.of[place]
        assert isinstance(found, SchedulerNetwork)
        return found
