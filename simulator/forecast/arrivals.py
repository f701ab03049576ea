"""Jobs that will be submitted: the jobs of a recent stretch of time, once more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.model import FloatColumn, IntColumn
from simulator.forecast.durations import Durations
from simulator.forecast.queue import PastJobs, QueueJobs

_DAY_S = 86400.0
_MOST_DAYS = 14
"""Number of days back from which a sample may begin to repeat submissions."""


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Jobs that come, in order; times in seconds from now. One entry per job in every column."""

    after_s: FloatColumn
    jobs: QueueJobs
    duration_s: FloatColumn


_NO_INTEGERS, _NO_TIMES, _NO_FLAGS = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=np.bool_)
NO_ARRIVALS = Arrivals(
    _NO_TIMES,
    QueueJobs(
        gpus=_NO_INTEGERS,
        size=_NO_INTEGERS,
        group=_NO_INTEGERS,
        kind=_NO_INTEGERS,
        running=_NO_FLAGS,
        service_s=_NO_TIMES,
        attained_gpu_s=_NO_TIMES,
        estimate_s=_NO_TIMES,
        limit_s=_NO_TIMES,
        fixed=_NO_FLAGS,
        ending=_NO_FLAGS,
        places={},
    ),
    _NO_TIMES,
)
"""No job comes."""


class Submissions:
    """Draws the submissions of a sample.

    A sample begins a whole number of days ago, so that nights and bursts of jobs stay as they were, and repeats what was
    submitted from then up to now, again and again. Where less than two days are known it begins at a random moment.
    """

    def __init__(self, past: PastJobs, durations: Durations, now_s: float, most: int) -> None:
        """Prepare to draw up to `most` jobs for each sample."""
        self._past, self._durations, self._now_s, self._most = past, durations, now_s, most

    def draw(self, rng: np.random.Generator) -> Arrivals:
        """Return the submissions of one sample, which end after `most` jobs."""
        past = self._past
        span_s = float(self._now_s - past.submit_s[0]) if len(past) else 0.0
        if self._most == 0 or span_s <= 0:
            return NO_ARRIVALS
        days = min(int(span_s // _DAY_S), _MOST_DAYS)
        back_s = float(rng.integers(1, days + 1)) * _DAY_S if days >= 2 else span_s * float(rng.uniform(0.5, 1.0))
        first = int(np.searchsorted(past.submit_s, self._now_s - back_s, side="right"))
        rows = np.arange(first, len(past))
        if len(rows) == 0:
            return NO_ARRIVALS
        rounds = -(-self._most // len(rows))
        after_s = past.submit_s[rows] - (self._now_s - back_s)
        times = (after_s[None] + np.arange(rounds)[:, None] * back_s).ravel()[: self._most]
        return self._arrivals(np.tile(rows, rounds)[: self._most], times, rng)

    def _arrivals(self, rows: IntColumn, after_s: FloatColumn, rng: np.random.Generator) -> Arrivals:
        past, none = self._past, np.zeros(len(rows))
        limit_s = past.limit_s[rows]
        jobs = QueueJobs(
            gpus=past.gpus[rows],
            size=past.size[rows],
            group=past.group[rows],
            kind=past.kind[rows],
            running=none > 0,
            service_s=none,
            attained_gpu_s=none,
            estimate_s=limit_s,
            limit_s=limit_s,
            fixed=none > 0,
            ending=none > 0,
            places={},
        )
        drawn = self._durations.draw(jobs, 1, rng)[0]
        known = past.duration_s[rows]
        return Arrivals(after_s, jobs, np.where(np.isnan(known), drawn, known))
