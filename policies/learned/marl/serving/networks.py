"""The networks of a cluster's schedulers, all with the same weights: one for each graph that occurs.

The weights of `network=scores` are for graphs of any size, so schedulers of different sizes have them too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from policies.learned.marl.graphs import Floats, Layout
from policies.learned.marl.network import MarlNetwork
from policies.learned.marl.recipe import Recipe
from policies.learned.marl.serving.views import View


class Networks:
    """Networks by layout. Invariant: equal observations give equal vectors and scores."""

    def __init__(self, layouts: Sequence[Layout], recipe: Recipe, state: Mapping[str, Tensor]) -> None:
        """`state` has the weights, as of a `MarlNetwork` whose schedulers share theirs."""
        made: dict[int, MarlNetwork] = {}
        for layout in layouts:
            if id(layout) not in made:
                network = MarlNetwork(layout, recipe).eval()
                network.load_state_dict(state)
                made[id(layout)] = network
        self._of = [made[id(layout)] for layout in layouts]

    @property
    def count(self) -> int:
        """Number of schedulers."""
        return len(self._of)

    def encode(self, views: Mapping[int, View]) -> dict[int, Tensor]:
        """Return the vectors that schedulers of these observations send."""
        found: dict[int, Tensor] = {}
        alike: dict[int, list[int]] = {}
        for scheduler in views:
            alike.setdefault(id(self._of[scheduler]), []).append(scheduler)
        with torch.inference_mode():
            for rows in alike.values():
                network = self._of[rows[0]]
                own = {name: _stacked([views[row][name] for row in rows]) for name in network.layout.shapes}
                found |= dict(zip(rows, network.encode(own, torch.tensor(rows)), strict=True))
        return found

    def scores(self, scheduler: int, view: View, vectors: Tensor, inter: Floats) -> Floats:
        """Return the logits of a scheduler's actions, from its observation, and the vectors of all (S, encoded)."""
        network = self._of[scheduler]
        own = {name: torch.from_numpy(view[name])[None] for name in network.layout.shapes}
        with torch.inference_mode():
            logits, _ = network.decide(own, torch.tensor([scheduler]), vectors[None], torch.from_numpy(inter)[None])
        found: Floats = logits[0].numpy()
        return found


class Messages:
    """The vectors that the schedulers sent. Invariant: a row is of the observation in `_seen`. Bound: the schedulers."""

    def __init__(self, networks: Networks, width: int) -> None:
        self._networks = networks
        self._vectors = torch.zeros(networks.count, width)
        self._seen: dict[int, View] = {}

    def update(self, views: Sequence[View], acting: int) -> Tensor:
        """Return the vectors of these observations; the acting scheduler's is made anew with its action."""
        changed = {
            scheduler: view
            for scheduler, view in enumerate(views)
            if scheduler != acting and self._seen.get(scheduler) is not view
        }
        for scheduler, vector in self._networks.encode(changed).items():
            self._vectors[scheduler] = vector
        self._seen |= changed
        return self._vectors


def _stacked(cells: Sequence[Floats]) -> Tensor:
    return torch.from_numpy(np.stack(cells))
