"""The waiting jobs of an episode: the first few one by one, the rest as sums (SCHED2, table I)."""

from __future__ import annotations

from operator import attrgetter

import numpy as np
import numpy.typing as npt

from policies.model import IntColumn
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.traces.trace import Trace

_BY_INDEX = attrgetter("index")
Sums = npt.NDArray[np.int64]
"""Of jobs: how many, their GPUs, their ideal times, and the instants since when they have waited."""


class Backlog:
    """Jobs by their rows of the trace; times in ns.

    Invariant: the sums over waiting jobs are those over all that have come, at their submits, less `_gone`. Of a job that was
    killed and waits again, `_numbers` has an instant such that now - instant is all the time that it has waited.
    """

    def __init__(self, trace: Trace, ideal_ns: IntColumn) -> None:
        """Nobody has come yet; `ideal_ns` are the ideal times that the agent is told."""
        ones = np.ones(len(trace), dtype=np.int64)
        self._numbers = np.stack((ones, trace.num_gpus, ideal_ns, trace.submit_ns), axis=1)
        self._came = np.concatenate((np.zeros((1, 4), dtype=np.int64), np.cumsum(self._numbers, axis=0)))
        self._gone: Sums = np.zeros(4, dtype=np.int64)

    def started(self, job: ActiveJob) -> None:
        """The job waits no more."""
        self._gone += self._numbers[job.index]

    def again(self, job: ActiveJob) -> None:
        """The settled job waits again."""
        instant = job.since - job.wait
        self._gone -= self._numbers[job.index]
        self._gone[3] += self._numbers[job.index, 3] - instant
        self._numbers[job.index, 3] = instant

    def waits_ns(self, rows: list[int], now: int) -> IntColumn:
        """How long each of these jobs has waited."""
        waits: IntColumn = now - self._numbers[rows, 3]
        return waits

    def rest(self, shown: list[int], loop: Loop) -> tuple[int, float, float, float]:
        """Of the waiting jobs but those shown, of which there are some: how many; their mean GPUs, ideal time and wait."""
        sums = self._came[loop.arrived] - self._gone - self._numbers[shown].sum(axis=0)
        count, gpus, ideal, since = sums.tolist()
        return count, gpus / count, ideal / count, loop.now - since / count


def first_waiting(loop: Loop, most: int) -> list[ActiveJob]:
    """The waiting jobs that were submitted first, in that order."""
    jobs = [job for queue in loop.queues for job in queue[:most]]
    jobs.sort(key=_BY_INDEX)
    return jobs[:most]
