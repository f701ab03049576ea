"""Learning from the rewards of the cluster: samples of live decisions, and one gradient step for each slot."""

from __future__ import annotations

import math
from pathlib import Path

import structlog

from policies.api import Outcome
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.dl2.division import Step
from policies.learned.dl2.learning.feedback.decisions import Decisions
from policies.learned.dl2.learning.feedback.network_copy import NetworkCopy
from policies.learned.dl2.learning.feedback.reward import RewardMeter
from policies.learned.dl2.learning.service import Weights
from policies.learned.dl2.recipe import Recipe
from policies.model import ClusterState

log = structlog.get_logger("policy.learning")

_RECIPE = Recipe()
"""Gamma, learning rate, batch, entropy, scale of rewards, and size of the memory are those of a training."""
_FEWEST = 32
"""Samples before the first gradient step. A batch has more; it is drawn with replacement."""


class Feedback:
    """Samples and updates. Invariants: nothing here changes the weights in service; the memory has `replay_capacity` samples at
    most (about 20 MB), each with its reward."""

    def __init__(self, slot_s: float, weights: Weights, seed: int = 0) -> None:
        """`weights` are in service now."""
        self.updates = 0
        """Gradient steps since the start, of all copies."""
        self.meter = RewardMeter()
        self.decisions = Decisions(slot_s)
        self.memory = PrioritizedReplay(_RECIPE.replay_capacity, seed=seed, alpha=0.0, anneal=1)
        self.copy = NetworkCopy(weights, _RECIPE, seed)
        self._weights = weights
        self._slot_s = slot_s
        self._seed = seed
        self._seen_s = self._updated_s = -math.inf

    def see(self, state: ClusterState, steps: tuple[Step, ...]) -> None:
        """Note a decision, and make the gradient step of a slot that has ended.

        The controller also asks for decisions on changed copies of the state before; those have its time, and are not noted.
        """
        if state.time_s <= self._seen_s:
            return
        self._seen_s = state.time_s
        self.meter.see(state)
        for rows in self.decisions.add(state, steps, self.meter):
            self.memory.add({**rows, "rewards": rows["rewards"] * _RECIPE.reward_scale})
        if state.time_s - self._updated_s >= self._slot_s and len(self.memory) >= _FEWEST:
            self._updated_s = state.time_s
            self._update()

    def ended(self, outcome: Outcome) -> None:
        """Note the end of a job."""
        self.meter.ended(outcome)

    def begin_with(self, weights: Weights) -> None:
        """Begin a new copy, of these weights, which are in service now. The samples stay."""
        self._weights = weights
        self.copy = NetworkCopy(weights, _RECIPE, self._seed)

    def save_candidate(self, folder: Path) -> None:
        """Write the copy as a candidate. Raises PolicyError, OSError."""
        card = self.copy.save(folder)
        log.info(
            "feedback", samples=len(self.memory), updates=self.copy.updates, left_out=self.decisions.left_out,
            reward=round(self.meter.total, 3), estimated=round(self.meter.estimated, 3), candidate=card.weights_sha256[:12],
        )  # fmt: skip

    def _update(self) -> None:
        self.updates += 1
        if not self.copy.update(self.memory):
            log.warning("feedback_diverged", updates=self.copy.updates)
            self.begin_with(self._weights)
