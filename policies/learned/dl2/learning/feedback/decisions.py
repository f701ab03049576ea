"""Decisions of the agent, until the reward of the slot after each is known.

In the paper all jobs begin a slot together. On a cluster decisions are made after events, and a job keeps its size for a slot from
its own start; so here each decision has a slot of its own, from its time on. All samples of the decision get the reward of that
slot (section 4.3), and what follows them is the first state of the first decision after it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.learned.dl2.division import Step
from policies.learned.dl2.learning.feedback.reward import RewardMeter
from policies.model import ClusterState

Rows = dict[str, npt.NDArray[Any]]

_MOST_DECISIONS, _MOST_STEPS = 64, 256
"""Decisions that wait for their reward, and actions of a decision that become samples: its first ones."""
_LATEST, _LAST = 3.0, 12.0
"""Slots after a decision in which a state must come, else its reward is not known; and in which another decision must follow, else
what followed is not known. On a full cluster the agent has nothing to decide for a while."""


@dataclass(slots=True)
class _Waiting:
    """A decision whose samples are not complete."""

    time_s: float
    total: float
    """Sum of all rewards at its time."""
    steps: tuple[Step, ...]
    reward: float | None = None
    """Reward of the slot after it; None: the slot has not ended."""


class Decisions:
    """Makes samples of decisions. Invariant: at most `_MOST_DECISIONS` wait, the oldest first."""

    def __init__(self, slot_s: float) -> None:
        """`slot_s` is the length of a slot."""
        self.left_out = 0
        """Decisions without samples, because their reward or what followed is not known."""
        self._slot_s = slot_s
        self._waiting: deque[_Waiting] = deque()
        """Bound: `_MOST_DECISIONS`."""
        self._last: tuple[float, tuple[object, ...]] | None = None

    def add(self, state: ClusterState, steps: tuple[Step, ...], meter: RewardMeter) -> list[Rows]:
        """Note a decision and its actions; return the samples of those whose slots have ended. The meter has seen the state.

        `steps` is empty where the agent has chosen nothing. A decision that repeats the one before, within a slot, is not noted.
        """
        self._reward(state, meter)
        found = []
        while self._waiting and (reward := self._waiting[0].reward) is not None:
            if not steps and len(state.jobs):
                break  # what follows is not known yet
            found.append(_rows(self._waiting.popleft().steps, reward, steps))
        self._note(state, steps, meter)
        return found

    def _reward(self, state: ClusterState, meter: RewardMeter) -> None:
        """Enter the rewards of slots that have ended, and leave out decisions of which something will not be known."""
        kept = []
        for decision in self._waiting:
            slots = (state.time_s - decision.time_s) / self._slot_s
            is_known = slots <= _LAST
            if decision.reward is None and slots >= 1.0:
                is_known = slots <= _LATEST and meter.unknown_s < decision.time_s
                # The first state after the slot comes a little later than its end.
                decision.reward = (meter.total - decision.total) / slots
            if is_known:
                kept.append(decision)
        self.left_out += len(self._waiting) - len(kept)
        self._waiting = deque(kept)

    def _note(self, state: ClusterState, steps: tuple[Step, ...], meter: RewardMeter) -> None:
        if not steps:
            return
        content = (state.jobs.ids, tuple(step.action for step in steps))
        if self._last is not None and self._last[1] == content and state.time_s - self._last[0] < self._slot_s:
            return
        self._last = state.time_s, content
        if len(self._waiting) == _MOST_DECISIONS:
            self._waiting.popleft()
            self.left_out += 1
        self._waiting.append(_Waiting(state.time_s, meter.total, steps[:_MOST_STEPS]))


def _rows(steps: tuple[Step, ...], reward: float, following: tuple[Step, ...]) -> Rows:
    """Return rows for the replay memory; nothing follows where no job was left."""
    count = len(steps)
    after = following[0].seen if following else np.zeros_like(steps[0].seen)
    return {
        "seen": np.stack([step.seen for step in steps]),
        "actions": np.array([step.action for step in steps], dtype=np.int64),
        "masks": np.stack([step.mask for step in steps]),
        "rewards": np.full(count, reward, dtype=np.float32),
        "next_seen": np.broadcast_to(after, (count, *after.shape)),
        "terminated": np.full(count, not following),
    }
