"""The waiting jobs of an episode as SCHED2's agent sees them (table I): the first few one by one, the rest as means."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.kernel.job import ActiveJob
from simulator.traces.trace import NS_PER_S, Trace

HOUR_NS = 3600 * NS_PER_S
Numbers = npt.NDArray[np.float64]
"""Numbers of each job: its times under the placements, its GPUs, its begin of waiting, and its ideal time, which is not shown."""
_HIDDEN = 1
_GPUS, _SINCE, _IDEAL = -3, -2, -1


class Backlog:
    """Times in hours; GPUs in `unit` of them.

    Invariant: sums over the waiting jobs are those over all that have come, at their submits, less `_gone`. Of a job that was
    killed and waits again, `_numbers` has what is left of it, and an instant such that now - instant is all the time that it has
    waited.
    """

    def __init__(self, trace: Trace, factors: npt.NDArray[np.float64], unit: int) -> None:
        """Begin without jobs. A row of `factors` has the times of a job under each placement, as multiples of its ideal time."""
        ideal = trace.duration_ns[:, None] / HOUR_NS
        since = trace.submit_ns[:, None] / HOUR_NS
        self._numbers = np.concatenate((ideal * factors, trace.num_gpus[:, None] / unit, since, ideal), axis=1)
        sums = np.concatenate((np.zeros((1, 3)), np.cumsum(self._numbers[:, _GPUS:], axis=0)))
        self._came: list[list[float]] = sums.tolist()
        self._gone = [0.0, 0.0, 0.0]
        """Sums of GPUs, instants and ideal times."""

    def started(self, job: ActiveJob) -> None:
        """Remove a job that has started."""
        self._leave(job, 1.0)

    def again(self, job: ActiveJob) -> None:
        """Add a settled job that waits again, with its remaining time and all its waiting time."""
        self._leave(job, -1.0)
        numbers = self._numbers[job.index]
        before = numbers[_GPUS:].tolist()
        left = job.remaining() / HOUR_NS
        numbers[:_GPUS] *= left / numbers[_IDEAL]
        numbers[_SINCE], numbers[_IDEAL] = (job.since - job.wait) / HOUR_NS, left
        after = numbers[_GPUS:].tolist()
        self._gone = [gone + old - new for gone, old, new in zip(self._gone, before, after, strict=True)]

    def _leave(self, job: ActiveJob, sign: float) -> None:
        numbers = self._numbers[job.index, _GPUS:].tolist()
        self._gone = [gone + sign * number for gone, number in zip(self._gone, numbers, strict=True)]

    def show(self, rows: list[int], now: int, jobs: Numbers) -> list[float]:
        """Fill the first rows of `jobs` with times, GPUs and wait of those jobs; return sums of GPUs, instants, ideal times."""
        numbers = self._numbers.take(rows, axis=0)
        sums: list[float] = numbers[:, _GPUS:].sum(axis=0).tolist()
        np.subtract(now / HOUR_NS, numbers[:, _SINCE], out=numbers[:, _SINCE])
        jobs[: len(rows)] = numbers[:, :-_HIDDEN]
        return sums

    def rest(self, count: int, shown: list[float], arrived: int, now: int) -> tuple[float, float, float]:
        """Return mean GPUs, ideal time and wait of the `count` waiting jobs outside these sums."""
        gpus, since, ideal = [
            (came - gone - seen) / count
            for came, gone, seen in zip(self._came[arrived], self._gone, shown, strict=True)
        ]
        return max(gpus, 0.0), max(ideal, 0.0), max(now / HOUR_NS - since, 0.0)
