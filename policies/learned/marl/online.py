"""Schedulers that go on learning from their own decisions while they act (section VII)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from policies.learned.marl.graphs import Layout
from policies.learned.marl.learning import ActorCritic
from policies.learned.marl.network import MarlNetwork
from policies.learned.marl.playing import Player
from policies.learned.marl.recipe import Recipe
from policies.learned.marl.system import ENCODER, NAME, options_of, recipe_of
from policies.learned.weights import weights

_SEED = 0


class OnlineSchedulers:
    """Schedulers of one data center, each with weights of its own. They begin with shared weights, those that come with Headway.

    Invariant: weights and draws follow from the episodes so far alone.
    """

    def __init__(self, learning_rate: float | None = None) -> None:
        """Adam's learning rate of None is that of the training. Raises WeightsError."""
        place, name = weights.located("", NAME, NAME)
        arrays, card = weights.load(place, name, system=NAME, encoder=ENCODER)
        trained = recipe_of(card)
        self._recipe = replace(trained, shared=False, learning_rate=learning_rate or trained.learning_rate)
        self._start = {name: torch.as_tensor(np.asarray(array)) for name, array in arrays.items()}
        self._network: MarlNetwork | None = None
        self._learner: ActorCritic
        self._draws = torch.Generator().manual_seed(_SEED)
        self._rng = np.random.default_rng(_SEED)

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of the environments that these schedulers need."""
        needed = options_of(self._recipe)
        return {name: needed[name] for name in ("shows", "reward", "others")}

    def learn(self, envs: Any) -> list[float]:
        """Act in one episode, by drawn actions, and then learn from its decisions. Return the loss of each scheduler before that.

        `envs` is a vector of one environment, which resets in the step that ends an episode; all have the same data center.
        """
        layout: Layout = envs.get_attr("layout")[0]
        if self._network is None:
            self._network = _copies(self._start, layout, self._recipe)
            optimizer = torch.optim.Adam(self._network.parameters(), self._recipe.learning_rate)
            self._learner = ActorCritic(self._network, optimizer, self._recipe)
        played = Player(envs, self._network).play([_SEED], self._draws)
        rows = [np.flatnonzero(played.acting == each) for each in range(layout.schedulers)]
        losses = [self._learner.loss(played, its) for its in rows]
        self._learner.update(played, self._rng)
        return losses


def _copies(arrays: Mapping[str, torch.Tensor], layout: Layout, recipe: Recipe) -> MarlNetwork:
    """Return a network in which every scheduler has a copy of these shared weights."""
    network = MarlNetwork(layout, recipe)
    shared = {name.removeprefix("of.0."): tensor for name, tensor in arrays.items()}
    copies = {f"of.{each}.{name}": tensor for each in range(layout.schedulers) for name, tensor in shared.items()}
    network.load_state_dict(copies)
    return network
