"""Statistics of a trace: number, sizes, durations and arrivals of jobs, and the load on a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.traces.load import offered_load
from simulator.traces.trace import NS_PER_S, Trace

HOUR_NS = 3600 * NS_PER_S
PERCENTILES = (10, 25, 50, 75, 90, 95, 99)
SIZE_CLASSES = ((1, 1), (2, 4), (5, 8), (9, 1 << 62))
MOST_NAMED = 10


@dataclass(frozen=True)
class SizeShare:
    """Jobs of one number of GPUs."""

    gpus: int
    jobs: int
    jobs_share: float
    work_share: float
    """Share of all GPU-seconds."""


@dataclass(frozen=True)
class Load:
    """The load of the trace on a cluster."""

    cluster_gpus: int
    offered: float | None
    """GPU-seconds that arrive per second of the span, over the cluster's GPUs; None if all jobs arrive at once."""
    too_large: int
    """Number of jobs that can never fit on the cluster."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of a trace. Times are seconds; percentiles are linearly interpolated."""

    name: str
    jobs: int
    span_s: float
    """Seconds from the first submission to the last."""
    gpu_hours: float
    mean_gap_s: float | None
    """Mean seconds between two submissions; None for a single job."""
    gap_cv: float | None
    """Coefficient of variation of those gaps: 1 for a Poisson process, more if jobs arrive in bursts."""
    sizes: tuple[SizeShare, ...]
    mean_gpus: float
    duration_s: Mapping[str, float]
    """min, mean, max and percentiles of the run time."""
    duration_p50_by_size_s: Mapping[str, float]
    """The median run time of each class of sizes that has jobs."""
    submits_by_hour: tuple[int, ...]
    """Jobs in each of 24 hours of the day, which begins at time 0 of the trace."""
    gpu_hours_by_hour: tuple[float, ...]
    """GPU-seconds of the jobs, by the hour of their arrival."""
    users: int
    """Number of users; 0 if not known."""
    most_active: Mapping[str, int]
    """Jobs of the users with most of them."""
    vcs: Mapping[str, int]
    models: Mapping[str, int]
    statuses: Mapping[str, int]
    with_limit: int
    """Jobs whose time limit is known."""
    not_preemptible: int
    elastic: int
    """Number of jobs that may get another size."""
    load: Load | None
    """None if no cluster was given."""


def describe(trace: Trace, cluster_gpus: int | None = None) -> Statistics:
    """Return the trace's statistics; with a cluster also its load."""
    seconds = trace.duration_ns / NS_PER_S
    work = trace.num_gpus * seconds
    gaps = np.diff(trace.submit_ns) / NS_PER_S
    mean_gap = float(gaps.mean()) if len(gaps) else None
    hours = (trace.submit_ns // HOUR_NS) % 24
    return Statistics(
        name=trace.name,
        jobs=len(trace),
        span_s=float(trace.submit_ns[-1] - trace.submit_ns[0]) / NS_PER_S,
        gpu_hours=float(work.sum()) / 3600,
        mean_gap_s=mean_gap,
        gap_cv=float(gaps.std()) / mean_gap if mean_gap else None,
        sizes=_sizes(trace, work),
        mean_gpus=float(trace.num_gpus.mean()),
        duration_s=_spread(seconds),
        duration_p50_by_size_s=_medians(trace, seconds),
        submits_by_hour=tuple(np.bincount(hours, minlength=24).tolist()),
        gpu_hours_by_hour=tuple((np.bincount(hours, weights=work, minlength=24) / 3600).tolist()),
        users=len(set(trace.user) - {""}),
        most_active=_most(trace.user),
        vcs=_most(trace.vc),
        models=_most(trace.model),
        statuses=_most(trace.status),
        with_limit=int((trace.limit_ns > 0).sum()),
        not_preemptible=int((~trace.preemptible).sum()),
        elastic=int((trace.min_gpus < trace.max_gpus).sum()),
        load=None if cluster_gpus is None else _load(trace, cluster_gpus),
    )


def size_class(least: int, most: int) -> str:
    """Return the name of a class of sizes."""
    return str(least) if least == most else f"{least}-{most}" if most < 1 << 32 else f"more than {least - 1}"


def _sizes(trace: Trace, work: np.ndarray) -> tuple[SizeShare, ...]:
    sizes, which, counts = np.unique(trace.num_gpus, return_inverse=True, return_counts=True)
    works = np.bincount(which, weights=work)
    total = float(works.sum())
    return tuple(
        SizeShare(size, count, count / len(trace), done / total)
        for size, count, done in zip(sizes.tolist(), counts.tolist(), works.tolist(), strict=True)
    )


def _spread(seconds: np.ndarray) -> dict[str, float]:
    percentiles = np.percentile(seconds, PERCENTILES).tolist()
    return {
        "min": float(seconds.min()),
        **{f"p{percent}": value for percent, value in zip(PERCENTILES, percentiles, strict=True)},
        "max": float(seconds.max()),
        "mean": float(seconds.mean()),
    }


def _medians(trace: Trace, seconds: np.ndarray) -> dict[str, float]:
    medians = {}
    for least, most in SIZE_CLASSES:
        of_class = (trace.num_gpus >= least) & (trace.num_gpus <= most)
        if of_class.any():
            medians[size_class(least, most)] = float(np.median(seconds[of_class]))
    return medians


def _most(texts: Sequence[str]) -> dict[str, int]:
    """Return the most frequent known texts and their counts."""
    counts = Counter(texts)
    counts.pop("", None)
    return dict(counts.most_common(MOST_NAMED))


def _load(trace: Trace, cluster_gpus: int) -> Load:
    fits = trace.num_gpus <= cluster_gpus
    span_s = float(trace.submit_ns[-1] - trace.submit_ns[0]) / NS_PER_S
    offered = None
    if span_s and fits.any():
        # Jobs that do not fit are no work of this cluster, but their submissions belong to the span.
        offered = offered_load(trace.take(fits), cluster_gpus).work_gpu_h * 3600 / (span_s * cluster_gpus)
    return Load(cluster_gpus, offered, int((~fits).sum()))
