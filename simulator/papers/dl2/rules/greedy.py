"""A greedy oracle in DL2's environment: a control that knows the true speeds, and looks one task ahead."""

from __future__ import annotations

from typing import Any

import gymnasium

from policies.learned.dl2.state_columns import BOTH, SERVER, WORKER
from policies.learned.training.agents import Mask
from simulator.kernel.job import ActiveJob
from simulator.papers.dl2.rules.baselines import ElasticAgent
from simulator.papers.dl2.rules.slot_value import SlotValue

_LEAST_GAIN = 1e-12
"""A smaller gain is rounding."""


class Greedy(ElasticAgent):
    """Greedy oracle: the task with the largest true gain of the slot's reward, as long as one gains.

    A job that does not run yet needs several tasks before it gains; these count together, and the gain is divided by the number of
    their actions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._slot = -1
        self._value: SlotValue
        self._chosen: ActiveJob | None = None

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        """Begin an episode. Raises SettingError for another environment."""
        super().begin(env, seed)
        self._slot, self._chosen = -1, None

    def choose(self, state: Any, mask: Mask) -> int | None:
        """Return the action that gives the next task; ties go to the job that arrived first."""
        if self.env.loop.now != self._slot:
            self._slot, self._value = self.env.loop.now, SlotValue(self.env)
        elif self._chosen is not None:
            self._value.take(self._chosen)
        best, most = None, _LEAST_GAIN
        for row, job in enumerate(self.env.shown.batch):
            for kinds in self._candidates(state, mask, row):
                gain = self._value.gain(job, kinds) / len(kinds)
                if gain > most:
                    best, most = (row, kinds[0]), gain
        self._chosen = None if best is None else self.env.shown.batch[best[0]]
        return None if best is None else 3 * best[0] + best[1]

    def _candidates(self, state: Any, mask: Mask, row: int) -> list[tuple[int, ...]]:
        """Return kinds of actions that may add to the reward, one after the other; the first is possible."""
        job = self.env.shown.batch[row].index
        if self._value.runs(job):
            return [(kind,) for kind in (WORKER, SERVER, BOTH) if mask[3 * row + kind]]
        lacking = max(int(self.env.trace.min_gpus[job]) - self.workers(state, row), 0)
        kinds = [WORKER] * lacking
        if not self.servers(state, row) and not self.is_all_reduce(row):
            kinds = [BOTH, *kinds[1:]] if kinds and self.env.options.bundle else [SERVER, *kinds]
        return [tuple(kinds)] if kinds and mask[3 * row + kinds[0]] else []
