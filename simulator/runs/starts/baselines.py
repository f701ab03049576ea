"""Other estimates of starts: past waits of jobs of that size, and a plan by time limits as Slurm makes one."""

from __future__ import annotations

import numpy as np

from policies.model import FloatColumn, IntColumn
from policies.rule import Rule
from simulator.forecast.arrivals import NO_ARRIVALS
from simulator.forecast.calibration import LEVELS
from simulator.forecast.durations import size_class
from simulator.forecast.queue import Queue
from simulator.forecast.sample_starts import UNTIL_S, StartSampler
from simulator.runs.starts.simulated_queue import SimulatedQueue
from simulator.traces.trace import NS_PER_S, Trace

_NEWEST_ENDED = 4000
_NEWEST_WAITS = 300
_NOTHING_KNOWN_S = (0.0, 3600.0, 86400.0)


class WaitsBySize:
    """Quantiles of the newest waits of jobs of about the same size; of those that started at once none counts."""

    def __init__(self, trace: Trace, known: SimulatedQueue) -> None:
        """`known` has the starts."""
        self._class = size_class(trace.num_gpus)
        self._submit_s = trace.submit_ns / NS_PER_S
        self._known = known

    def quantiles(self, row: int) -> FloatColumn:
        """Return the quantiles of a range for the job of that row."""
        rows = np.array(self._known.simulation.finished.index[-_NEWEST_ENDED:], dtype=np.int64)
        rows = rows[self._class[rows] == self._class[row]]
        waits = self._known.first_start_s[rows] - self._submit_s[rows]
        waits = waits[waits > 0][-_NEWEST_WAITS:]
        return np.asarray(np.quantile(waits, LEVELS)) if len(waits) else np.array(_NOTHING_KNOWN_S)


def waits_by_limits(queue: Queue, rule: Rule, round_s: float) -> FloatColumn:
    """Return the wait of each waiting job if every job runs for its time limit and no other job comes."""
    jobs = queue.jobs
    longest_s = np.maximum(np.where(np.isnan(jobs.limit_s), UNTIL_S, jobs.limit_s), jobs.service_s + 1.0)
    return np.minimum(StartSampler(queue, rule, round_s).run(longest_s, NO_ARRIVALS), UNTIL_S)


def rows_waiting(rows: IntColumn, queue: Queue) -> IntColumn:
    """Return the rows of the waiting jobs, in the order of a forecast."""
    return rows[~queue.jobs.running]
