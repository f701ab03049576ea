"""The paper's baselines (section 5.3, after DeepRM): a rule picks one job after the other from the slots, and it takes the first
free GPUs, of which it gets as many as it requests. Jobs keep their GPUs: the paper runs these with `preemption="never"`.

The paper does not say what happens to a job that does not fit; here only jobs that fit can be picked, as in DeepRM.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gymnasium
import numpy as np

from policies.options import whole
from simulator.papers.rl_taps.rules.agent import NO_SLOT, Actions, RlTapsAgent


class FirstFree(RlTapsAgent):
    """Picks jobs while one fits."""

    def slots_of_gpus(self) -> Actions:
        """See RlTapsAgent."""
        batch = self.batch
        owner = batch.owner[0]
        # With full preemption a job stays where it runs only if it is given its GPUs again.
        found = owner.copy() if batch.is_full else np.full(len(owner), NO_SLOT)
        running = set(owner.tolist()) if batch.is_full else set()
        waiting = [slot for slot in self.jobs if slot not in running]
        gpus = self.of_slot(batch.of.gpus)
        free = np.flatnonzero(owner < 0)
        while fits := [slot for slot in waiting if gpus[slot] <= len(free)]:
            slot = self.pick(fits)
            waiting.remove(slot)
            found[free[: gpus[slot]]] = slot
            free = free[gpus[slot] :]
        return found

    @abstractmethod
    def pick(self, slots: list[int]) -> int:
        """Return one of these slots, whose jobs fit."""


class Random(FirstFree):
    """Starts a random job of those that fit, on the first free GPUs."""

    def __init__(self, seed: int = 0) -> None:
        """Draw from `seed` and the episode's seed."""
        super().__init__()
        self._seed = whole("seed", seed)
        self._rng = np.random.default_rng(0)

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        """Begin to draw."""
        super().begin(env, seed)
        self._rng = np.random.default_rng((self._seed, seed))

    def pick(self, slots: list[int]) -> int:
        """See FirstFree."""
        return slots[int(self._rng.integers(len(slots)))]


class ShortestJobFirst(FirstFree):
    """Starts the shortest job of those that fit, on the first free GPUs."""

    def pick(self, slots: list[int]) -> int:
        """See FirstFree."""
        length = self.of_slot(self.batch.of.length)
        return min(slots, key=lambda slot: float(length[slot]))


class Tetris(FirstFree):
    """Starts the job of those that fit that requests most GPUs, on the first free GPUs."""

    def pick(self, slots: list[int]) -> int:
        """See FirstFree. The free GPUs, by which the paper multiplies the request, are the same for all."""
        gpus = self.of_slot(self.batch.of.gpus)
        return max(slots, key=lambda slot: int(gpus[slot]))
