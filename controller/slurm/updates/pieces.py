"""Many jobs in bounded pieces: each piece is one request to Slurm with a time limit of its own, and its success is kept.

slurmctld carries out an update in a millisecond when it is idle, and in a second when it is not. So the size of a piece is not a
setting: it doubles while pieces are quick, and halves when one is slow or is not answered. The time that a piece takes whatever
its size (such as a slow start of a program on a busy machine) does not count: more and smaller pieces would only add to it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable

from controller.base.errors import SlurmError
from controller.slurm.client import Failure, FailureReason, Failures
from controller.slurm.model.job import JobKey

_FIRST = 32
_MOST = 512
_REMEMBERED = 4 * _MOST
"""Most jobs of unanswered pieces that are remembered."""
_SLOW_S = 2.0
"""Duration above which the next piece is half as large: well below any time limit, so that few limits are reached."""
_QUICK_S = _SLOW_S / 2
"""Duration up to which the next piece is twice as large, because that takes at most twice as long."""


class Pieces:
    """Splits jobs into pieces. Invariant: a piece has at least one job, and at most `most`.

    After a piece that slurmctld did not answer the others are not sent, so a dead slurmctld costs one time limit, not one for
    each piece. The next call begins with pieces of half that size, and the jobs of that piece come last in it: slurmctld may delay
    every change of one job (22.05 does, by 5 s each, for a job that slurmdbd has no record of yet), and that job must not keep the
    others waiting. As pieces become smaller and the jobs of an unanswered one change places, the others leave it behind.
    """

    def __init__(
        self, first: int = _FIRST, most: int = _MOST, clock: Callable[[], float] = time.monotonic, calls: int = 1
    ) -> None:
        """`calls`: number of requests to Slurm that the work on one piece makes."""
        self.size = first
        """Number of jobs in the next piece."""
        self._most = most
        self._clock = clock
        self._calls = calls
        self._last: tuple[int, float] | None = None
        """Size of the last piece, and the time that it took, seconds."""
        self._unanswered: dict[JobKey, None] = {}
        """Jobs of pieces that were not answered, in the order of these pieces: they come last. At most `_REMEMBERED`.
        Bound: `_REMEMBERED`."""
        self._overhead_s = 0.0
        """Time that a piece takes whatever its size, as far as two pieces of different sizes show."""

    async def run(
        self, keys: Iterable[JobKey], work: Callable[[list[JobKey]], Awaitable[Failures]]
    ) -> dict[JobKey, Failure]:
        """Do the work piece by piece. Raises the SlurmError of the first piece; one of a later piece is a failure of its jobs.

        Jobs that were not sent, because a piece before theirs was not answered, fail as unavailable too.
        """
        left = self._in_order(keys)
        failures: dict[JobKey, Failure] = {}
        done = 0
        while done < len(left):
            piece = left[done : done + self.size]
            begun = self._clock()
            try:
                found = await work(piece)
            except SlurmError as error:
                self._not_answered(piece)
                if not done:
                    raise
                return failures | dict.fromkeys(left[done:], Failure(str(error), FailureReason.UNAVAILABLE))
            failures |= found
            done += len(piece)
            unheard = next((failure for failure in found.values() if failure.unavailable), None)
            if unheard is not None:
                self._not_answered(piece)
                return failures | dict.fromkeys(left[done:], unheard)
            self._adapt(len(piece), self._clock() - begun)
            for key in piece if self._unanswered else ():
                self._unanswered.pop(key, None)
        return failures

    def _in_order(self, keys: Iterable[JobKey]) -> list[JobKey]:
        """Return each job once: in the order given, those of unanswered pieces behind the others."""
        given = dict.fromkeys(keys)
        if not self._unanswered:
            return list(given)
        last = [key for key in self._unanswered if key in given]
        return [key for key in given if key not in self._unanswered] + last

    def _not_answered(self, piece: list[JobKey]) -> None:
        self._shrink(len(piece))
        for key in piece:
            self._unanswered.pop(key, None)
            self._unanswered[key] = None
        while len(self._unanswered) > _REMEMBERED:
            del self._unanswered[next(iter(self._unanswered))]

    def _shrink(self, count: int) -> None:
        self.size = max(min(self.size, count) // 2, 1)

    def _adapt(self, count: int, took_s: float) -> None:
        self._learn_overhead(count, took_s)
        spent_s = (took_s - self._overhead_s) / self._calls
        if spent_s > _SLOW_S:
            self._shrink(count)
        elif spent_s <= _QUICK_S and count == self.size:
            self.size = min(2 * self.size, self._most)

    def _learn_overhead(self, count: int, took_s: float) -> None:
        if self._last is not None and self._last[0] != count:
            last_count, last_s = self._last
            each_s = max((took_s - last_s) / (count - last_count), 0.0)
            self._overhead_s = max(took_s - each_s * count, 0.0)
        self._last = count, took_s
