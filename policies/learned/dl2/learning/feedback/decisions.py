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
_LATEST = 3.0
"""Slots after which a decision is left out, if no other followed: the state that followed it is not known."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A decision whose slot has not ended."""

    time_s: float
    total: float
    """Sum of all rewards at its time."""
    steps: tuple[Step, ...]


class Decisions:
    """Makes samples of decisions. Invariant: at most `_MOST_DECISIONS` wait, the oldest first."""

    def __init__(self, slot_s: float) -> None:
        """`slot_s` is the length of a slot."""
        self.left_out = 0
        """Decisions without samples, because their reward or what followed is not known."""
        self._slot_s = slot_s
        self._waiting: deque[_Waiting] = deque()
        self._last: tuple[float, tuple[object, ...]] | None = None

    def add(self, state: ClusterState, steps: tuple[Step, ...], meter: RewardMeter) -> list[Rows]:
        """Note a decision and its actions; return the samples of those whose slots have ended. The meter has seen the state.

        `steps` is empty where the agent has chosen nothing. A decision that repeats the one before, within a slot, is not noted.
        """
        found = []
        while self._waiting and state.time_s - self._waiting[0].time_s >= self._slot_s:
            if not steps and len(state.jobs):
                break  # what follows is not known yet
            decision = self._waiting.popleft()
            span_s = state.time_s - decision.time_s
            if meter.unknown_s >= decision.time_s or span_s > _LATEST * self._slot_s:
                self.left_out += 1
                continue
            # The first state after the slot comes a little later than its end.
            reward = (meter.total - decision.total) * self._slot_s / span_s
            found.append(_rows(decision.steps, reward, steps))
        self._note(state, steps, meter)
        return found

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
