"""Notices runs that would go on for ever: rounds come and go, and nothing else ever happens."""

from __future__ import annotations

from typing import Self

from simulator.errors import SettingError
from simulator.kernel.constants import NEVER, ROUND
from simulator.kernel.loop import Loop
from simulator.traces.trace import NS_PER_S

PATIENCE = 10_000
"""Rounds in a row, with no other event between them, after which there is a look at what they have brought."""
IDLE_PATIENCE = 1_000
"""Rounds in a row at which nobody runs and nothing is to come, after which nobody will."""


class StallWatch:
    """Invariant: `_rounds` instants in a row were rounds and nothing else, the last `_idle` of them with nobody running and
    nothing to come; at the last look there were `_left` ns of work to do, and `_ahead` ns of work and overhead together, all
    active jobs counted.

    While rounds do some work, or at least serve more overhead than they make, the run comes to an end. Where a stop costs
    more than a round brings, it does not.
    """

    def __init__(self, name: str, period: int) -> None:
        """For a policy of that name, with rounds of so many ns."""
        self._name = name
        self._period = period
        self._rounds = 0
        self._idle = 0
        self._left = 0
        self._ahead = 0

    def goes_on(self, loop: Loop, happened: int) -> bool:
        """Whether something can come of it after that instant. Raises SettingError where jobs run and none will ever finish."""
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
        self._look(loop)
        if self._rounds > 1 and loop.running and self._left >= before_left and self._ahead >= before_ahead:
            raise self._error(loop)
        return True

    def _look(self, loop: Loop) -> None:
        active = [*loop.running, *(job for queue in loop.queues for job in queue)]
        for job in active:
            job.settle(loop.now)
        self._left = sum(job.left for job in active)
        self._ahead = self._left + sum(job.overhead for job in active)

    def _error(self, loop: Loop) -> SettingError:
        dearest = max([*loop.running, *(job for queue in loop.queues for job in queue)], key=lambda job: job.stop_cost)
        return SettingError(
            f"no job does any work: in {PATIENCE} rounds of {self._period / NS_PER_S:g} s policy {self._name} stopped jobs "
            f"before they had served what a stop costs (up to {dearest.stop_cost / NS_PER_S:g} s of overhead); take rounds "
            "that are longer than that (--round), or a lower --preempt-cost"
        )

    def fork(self) -> Self:
        """An independent copy."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin
