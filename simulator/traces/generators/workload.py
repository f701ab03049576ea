"""Common parts of the generators: arrivals, number of jobs, and the trace made of them.

Everything drawn comes from one numpy Generator for the seed: the same parameters and seed give the same trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from policies.model import FloatColumn, IntColumn
from simulator.errors import TraceError
from simulator.traces.trace import MAX_TIME_S, NS_PER_S, Trace

ARRIVALS = ("batch", "even", "uniform", "poisson", "bursty", "daily")
BY_HOUR = (
    *(0.87, 0.77, 0.83, 0.53, 0.62, 0.58, 0.94, 0.82, 0.69, 0.89, 1.07, 0.84),
    *(1.15, 1.24, 1.18, 1.15, 1.06, 1.01, 1.06, 1.22, 1.33, 1.97, 1.14, 1.03),
)
"""Submissions by hour relative to their mean, counted in the public Philly log (hours from its first submission)."""
HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Parameters of every workload."""

    jobs: int
    """Number of jobs."""
    seed: int = 0
    """Seed of all random draws."""
    arrivals: str
    """Kind of arrivals: `batch` (all at once), `even` (one gap apart), `uniform` (anywhere in the span), `poisson`, `bursty`
    (gamma gaps with a coefficient of variation of `gap_cv`), `daily` (Poisson, its rate by the hour as in Philly)."""
    mean_gap_s: float
    """Mean seconds between two submissions; not used by `batch`."""
    gap_cv: float = 2.0
    """Coefficient of variation of `bursty` gaps; 1 is Poisson."""
    load: float | None = None
    """GPU-seconds that arrive per second, as a share of the cluster; if given, it determines `mean_gap_s`. The load of one trace
    differs from it as drawn gaps differ from their mean; `with_exact_load` removes the difference."""
    cluster_gpus: int = 32
    """GPUs of the cluster to which `load` refers; no job may be larger."""

    def check(self) -> None:
        """Raise TraceError for parameters from which no trace can be drawn."""
        wrong = {
            f"{self.jobs} jobs cannot be drawn": ("give at least 1", self.jobs < 1),
            f"arrivals {self.arrivals!r} are not known": (
                f"give one of {', '.join(ARRIVALS)}",
                self.arrivals not in ARRIVALS,
            ),
            f"a mean gap of {self.mean_gap_s} s is not possible": (
                f"give more than 0 and less than {MAX_TIME_S:g}",
                not 0 < self.mean_gap_s < MAX_TIME_S,
            ),
            f"a load of {self.load} is not possible": (
                "give more than 0 and less than 1e6",
                self.load is not None and not 0 < self.load < 1e6,
            ),
            "a load has no meaning for jobs that all arrive at once": (
                "give other arrivals, such as poisson",
                self.load is not None and self.arrivals == "batch",
            ),
            f"a cluster cannot have {self.cluster_gpus} GPUs": ("give at least 1", self.cluster_gpus < 1),
            f"gaps cannot vary by {self.gap_cv}": ("give more than 0 and less than 1000", not 0 < self.gap_cv < 1e3),
            f"the seed {self.seed} is negative": ("give 0 or more", self.seed < 0),
        }
        for reason, (mend, is_wrong) in wrong.items():
            if is_wrong:
                raise TraceError(reason, mend=mend)


def made(
    like: str,
    workload: Workload,
    rng: np.random.Generator,
    num_gpus: IntColumn,
    duration_ns: IntColumn,
    *,
    user: Sequence[str] | None = None,
    vc: Sequence[str] | None = None,
    model: Sequence[str] | None = None,
    batch_size: npt.ArrayLike | None = None,
    min_gpus: npt.ArrayLike | None = None,
    max_gpus: npt.ArrayLike | None = None,
    extra: dict[str, Sequence[str]] | None = None,
) -> Trace:
    """Return the trace of these jobs, in order of arrival; their submission times are drawn here, last."""
    largest = int(num_gpus.max())
    if largest > workload.cluster_gpus:
        reason = f"a job of {largest} GPUs does not fit a cluster of {workload.cluster_gpus}"
        raise TraceError(reason, mend="give a larger cluster, or smaller demands")
    submit_s = submits(rng, workload, _mean_gap_s(workload, num_gpus, duration_ns))
    if submit_s[-1] >= MAX_TIME_S:
        raise TraceError(
            f"{workload.jobs} jobs arrive over more than 126 years", mend="give fewer jobs or a higher load"
        )
    return Trace.of(
        f"{like}-{workload.seed}",
        numbered(workload.jobs),
        nanoseconds(submit_s),
        num_gpus,
        duration_ns,
        user=user,
        vc=vc,
        model=model,
        batch_size=batch_size,
        min_gpus=min_gpus,
        max_gpus=max_gpus,
        extra=extra,
        ids_are_unique=True,
    )


def _mean_gap_s(workload: Workload, num_gpus: IntColumn, duration_ns: IntColumn) -> float:
    """Return the mean seconds between two submissions of these jobs, which follow from the load if one is given."""
    if workload.load is None:
        return workload.mean_gap_s
    work_gpu_s = float(np.dot(num_gpus.astype(np.float64), duration_ns / NS_PER_S))
    return work_gpu_s / workload.jobs / (workload.load * workload.cluster_gpus)


def submits(rng: np.random.Generator, workload: Workload, gap_s: float) -> FloatColumn:
    """Return the arrivals in seconds from the first, in order."""
    jobs = workload.jobs
    if workload.arrivals == "batch":
        return np.zeros(jobs)
    if workload.arrivals == "even":
        return np.arange(jobs, dtype=np.float64) * float(gap_s)
    if workload.arrivals == "uniform":
        times = np.sort(rng.uniform(0.0, gap_s * jobs, jobs))
    elif workload.arrivals == "bursty":
        shape = workload.gap_cv**-2
        times = np.cumsum(rng.gamma(shape, gap_s / shape, jobs))
    else:
        times = np.cumsum(rng.exponential(gap_s, jobs))
        if workload.arrivals == "daily":
            times = by_hours(times)
    return np.asarray(times - times[0], dtype=np.float64)


def by_hours(even_s: FloatColumn) -> FloatColumn:
    """Return even arrival times moved to follow the hours of a day: each waits until the day's cumulative rate reaches it."""
    return _within_days(even_s, _brought(), _hours())


def without_hours(times_s: FloatColumn) -> FloatColumn:
    """Return the even arrival times that `by_hours` has moved to these."""
    return _within_days(times_s, _hours(), _brought())


def _hours() -> FloatColumn:
    return np.asarray(np.arange(25) * HOUR_S, dtype=np.float64)


def _brought() -> FloatColumn:
    """Return the cumulative rate at the begin of each hour and at the end of the day, in seconds of the mean rate."""
    return np.concatenate(([0.0], np.cumsum(np.array(BY_HOUR) / np.mean(BY_HOUR)))) * HOUR_S


def _within_days(times_s: FloatColumn, before: FloatColumn, after: FloatColumn) -> FloatColumn:
    day_s = 24 * HOUR_S
    days = np.floor(times_s / day_s)
    return np.asarray(days * day_s + np.interp(times_s - days * day_s, before, after), dtype=np.float64)


def nanoseconds(seconds: npt.NDArray[np.floating]) -> IntColumn:
    """Round to whole milliseconds, as nanoseconds: logs are no finer, and files stay short."""
    return np.round(np.asarray(seconds) * 1e3).astype(np.int64) * (NS_PER_S // 1000)


def lognormal_s(rng: np.random.Generator, jobs: int, *, median_s: float, mean_s: float) -> FloatColumn:
    """Draw durations of that median and mean."""
    sigma = sqrt(2.0 * np.log(mean_s / median_s))
    return np.asarray(rng.lognormal(np.log(median_s), sigma, jobs), dtype=np.float64)


def chosen(
    rng: np.random.Generator, names: Sequence[str], jobs: int, weights: Sequence[float] | None = None
) -> IntColumn:
    """Draw an index into the names for each job, by weight."""
    shares = None if weights is None else np.array(weights) / np.sum(weights)
    return rng.choice(len(names), jobs, p=shares)


def named(names: Sequence[str], which: IntColumn) -> list[str]:
    """Return the names of those indices."""
    return list(map(names.__getitem__, which.tolist()))


def numbered(jobs: int) -> list[str]:
    """Return ids whose order as text is their order as numbers."""
    width = len(str(jobs - 1))
    return [f"{row:0{width}d}" for row in range(jobs)]
