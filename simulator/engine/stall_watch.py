"""Detect runs that would never end: rounds follow each other, and nothing else happens."""

from __future__ import annotations

import copy
from typing import Self

from simulator.errors import SettingError
from simulator.kernel.constants import NEVER, ROUND
from simulator.kernel.loop import Loop
from simulator.traces.trace import NS_PER_S

PATIENCE = 10_000
"""Number of rounds in a row without another event after which the progress is checked."""
IDLE_PATIENCE = 1_000
"""Number of rounds in a row without a running job or a future event after which the run ends."""


class StallWatch:
    """Watches the rounds of a run. Invariant: the last `_rounds` instants were rounds and nothing else, the last `_idle` of them
    without a running job or a future event. At the last check, all active jobs together had `_left` ns of work left, and `_ahead`
    ns of work and overhead.

    A run ends as long as rounds do some work, or serve more overhead than they add. It does not end if a stop costs more than a
    round gains.
    """

    def __init__(self, name: str, period: int) -> None:
        """Watch the rounds of a policy; `period` is their length in ns."""
        self._name = name
        self._period = period
        self._rounds = 0
        self._idle = 0
        self._left = 0
        self._ahead = 0

    def goes_on(self, loop: Loop, happened: int) -> bool:
        """Return whether the run can still change. Raises SettingError if jobs run and none will ever finish."""
        if happened != ROUND:
            self._rounds = self._idle = 0
            return True
        self._rounds += 1
        self._idle = 0 if loop.running or loop.next_arrival != NEVER or loop.interrupt != NEVER else self._idle + 1
        if self._idle == IDLE_PATIENCE:
            return False
        if self._rounds != 1 and self._rounds % PATIENCE:
            return True
        before_left, before_ahead = self._left, self._ahead
        self._measure(loop)
        if self._rounds > 1 and loop.running and self._left >= before_left and self._ahead >= before_ahead:
            raise self._error(loop)
        return True

    def _measure(self, loop: Loop) -> None:
        active = [*loop.running, *(job for queue in loop.queues for job in queue)]
        for job in active:
            job.settle(loop.now)
        self._left = sum(job.left for job in active)
        self._ahead = self._left + sum(job.overhead for job in active)

    def _error(self, loop: Loop) -> SettingError:
        dearest = max([*loop.running, *(job for queue in loop.queues for job in queue)], key=lambda job: job.stop_cost)
        return SettingError(
            f"no job does any work: in {PATIENCE} rounds of {self._period / NS_PER_S:g} s policy {self._name} stopped jobs "
            f"before they had served what a stop costs (up to {dearest.stop_cost / NS_PER_S:g} s of overhead); use rounds "
            "that are longer than that (--round), or a lower --preempt-cost"
        )

    def fork(self) -> Self:
        """Return an independent copy."""
        return copy.copy(self)
