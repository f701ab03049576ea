"""Jobs of a trial of start estimates, and the estimates that were read while they waited. Pure.

Durations and time limits are short, so that hundreds of waits fit into minutes. A job's name says which distribution its run time
comes from, as users submit one script again and again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.model import FloatColumn
from simulator.forecast.calibration import LEVELS
from simulator.forecast.durations import size_class
from simulator.runs.starts.accuracy import Accuracy, accuracy
from simulator.runs.starts.limits import MOST_TIMES

GPUS, SHARES = (1, 2, 4, 8), (0.5, 0.25, 0.2, 0.05)
"""Sizes of jobs, and how often each is drawn."""
_MEDIANS_S = (4.0, 7.0, 12.0, 18.0, 25.0, 40.0)
"""Median run time of the jobs of each name."""
_SIGMA = 0.5
"""Standard deviation of the logarithm of run times of one name."""
_SHORTEST_S, _LONGEST_S = 2.0, 120.0
_LOAD = 0.97
"""GPU time that is submitted on average, as a share of what the cluster has."""
_BURST_SHARE = 0.08
"""Share of the jobs that are submitted at the beginning, so that a queue is there."""
_NEWEST_WAITS = 300


@dataclass(frozen=True, slots=True)
class TrialJob:
    """One job to submit."""

    at_s: float
    """Submission, seconds after the begin of the trial."""
    name: str
    gpus: int
    duration_s: float
    limit_min: int


def draw_jobs(count: int, cluster_gpus: int, seed: int) -> list[TrialJob]:
    """Return the jobs in the order of their submission. Equal arguments give equal jobs."""
    rng = np.random.default_rng((seed, 0x747269616C))
    kind = rng.integers(0, len(_MEDIANS_S), count)
    drawn_s = np.array(_MEDIANS_S)[kind] * np.exp(_SIGMA * rng.standard_normal(count))
    duration_s = np.round(np.clip(drawn_s, _SHORTEST_S, _LONGEST_S), 1)
    gpus = rng.choice(GPUS, count, p=SHARES)
    limit_min = np.ceil(duration_s * np.exp(rng.uniform(0.0, math.log(MOST_TIMES), count)) / 60.0).astype(int)
    burst = round(count * _BURST_SHARE)
    gap_s = float((duration_s * gpus).mean()) / (cluster_gpus * _LOAD)
    at_s = np.concatenate((np.zeros(burst), np.cumsum(rng.exponential(gap_s, count - burst))))
    return [
        TrialJob(float(at_s[job]), f"train-{kind[job]}", int(gpus[job]), float(duration_s[job]), int(limit_min[job]))
        for job in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of one job's start, as it was shown. Times in seconds since the Unix epoch."""

    made_s: float
    start_s: tuple[float, float, float]
    """Quantiles of 10 %, 50 % and 90 %; infinite: no time can be given. An estimate without range has three equal times."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One job of the trial on one cluster."""

    gpus: int
    submit_s: float
    start_s: float
    """When Slurm started it, seconds since the Unix epoch."""
    first: Estimate | None
    """The first estimate that was shown for it; None: it started before it had one."""
    estimates: int = 0
    """Number of different estimates that were shown."""
    held: int = 0
    """How many of these have its start in their range."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Figures of the first estimates of some jobs, and of past waits by size for the same jobs at the same times."""

    jobs: int
    unbounded: int
    """Estimates without a latest time; they count for no figure."""
    shown: Accuracy
    by_size: Accuracy
    wait_s: float
    """Mean wait that was left, seconds."""


def scores(seen: Sequence[Seen], scored: Sequence[int]) -> Scores | None:
    """Return the figures of the jobs with these places in `seen`; None if none of them has an estimate."""
    given = [(job, job.first) for job in map(seen.__getitem__, scored) if job.first is not None]
    bounded = [(job, first) for job, first in given if math.isfinite(first.start_s[2])]
    if not bounded:
        return None
    waits = np.array([max(job.start_s - first.made_s, 0.0) for job, first in bounded])
    shown = np.array([np.array(first.start_s) - first.made_s for _, first in bounded])
    by_size = np.array([waits_by_size(seen, job, first.made_s) for job, first in bounded])
    return Scores(
        jobs=len(bounded),
        unbounded=len(given) - len(bounded),
        shown=accuracy(np.maximum(shown, 0.0), waits),
        by_size=accuracy(by_size, waits),
        wait_s=float(waits.mean()),
    )


def waits_by_size(seen: Sequence[Seen], job: Seen, now_s: float) -> FloatColumn:
    """Return quantiles of the wait that is left: those of the last waits of jobs of about its size that were longer than its own.

    Only waits that had ended by `now_s` count. Without one they are those of jobs of any size, and without these 0.
    """
    so_far_s = now_s - job.submit_s
    started = sorted((other for other in seen if other.start_s <= now_s), key=lambda other: other.start_s)
    alike = [other for other in started if _class(other.gpus) == _class(job.gpus)]
    for others in (alike, started):
        waits = np.array([other.start_s - other.submit_s for other in others[-_NEWEST_WAITS:]])
        longer = waits[waits > so_far_s]
        if len(longer):
            return np.asarray(np.quantile(longer, LEVELS) - so_far_s)
    return np.zeros(len(LEVELS))


def _class(gpus: int) -> int:
    return int(size_class(np.array([gpus]))[0])


class Reader:
    """Estimates as they are read, by job id: the first of each job, and every different one."""

    def __init__(self) -> None:
        self._all: dict[str, list[Estimate]] = {}

    def read(self, job_id: str, estimate: Estimate) -> None:
        """Add an estimate, unless it is the job's last one."""
        known = self._all.setdefault(job_id, [])
        if not known or known[-1].made_s != estimate.made_s:
            known.append(estimate)

    @property
    def forecasts(self) -> int:
        """Number of different times at which estimates were made."""
        return len({estimate.made_s for known in self._all.values() for estimate in known})

    def seen(self, jobs: Mapping[str, tuple[TrialJob, float]], started: Mapping[str, float]) -> list[Seen]:
        """Return the jobs in their order. `jobs` has each with its submission, `started` the starts, both by id."""
        found = []
        for job_id, (job, submit_s) in jobs.items():
            start_s = started[job_id]
            made = [estimate for estimate in self._all.get(job_id, ()) if estimate.made_s <= start_s]
            held = sum(one.start_s[0] <= start_s <= one.start_s[2] for one in made)
            found.append(Seen(job.gpus, submit_s, start_s, made[0] if made else None, len(made), held))
        return found
