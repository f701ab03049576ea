"""Figures of a run, one function for each.

JCT is finish - submit, queueing and pauses included. Jobs that never finished count in no figure but `finished`, `utilization`
and those that count stops. Percentiles are linear between samples, as numpy has them. Where nothing was measured (no job
finished, the run was not recorded) a figure is None, never 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from policies.model import FloatColumn, IntColumn
from simulator.results.fragmentation import Fragmentation
from simulator.results.result import Result
from simulator.traces.trace import NS_PER_S

Figure = int | float | None
NS_PER_MS = 1_000_000
SLOWED = 0.01
"""Minimum loss of a job that counts as slowed down: it takes 1 % longer than alone and well placed."""


def average_jct_s(result: Result) -> float | None:
    """Return the mean of finish - submission."""
    return _mean(result.jct_ns / NS_PER_S)


def percentile_jct_s(result: Result, percent: float) -> float | None:
    """Return a percentile of finish - submit, linear between samples."""
    return _percentile(result.jct_ns / NS_PER_S, percent)


def average_service_s(result: Result) -> float | None:
    """Return the mean running time, without waiting. Some papers call this JCT, which it is not."""
    return _mean(result.service_ns[result.done] / NS_PER_S)


def makespan_s(result: Result) -> float | None:
    """Return last finish - first submission."""
    return result.makespan_ns / NS_PER_S if result.done.any() else None


def average_wait_s(result: Result) -> float | None:
    """Return the mean waiting time: before the first start, and after every stop."""
    return _mean(result.wait_ns[result.done] / NS_PER_S)


def average_first_wait_s(result: Result) -> float | None:
    """Return the mean of first start - submission."""
    done = result.done
    return _mean((result.first_start_ns - result.submit_ns)[done] / NS_PER_S)


def effectiveness(result: Result) -> float | None:
    """Return the mean of ideal time / JCT, in (0, 1]; the ideal time is the run time alone with the best locality."""
    return _mean(result.duration_ns[result.done] / result.jct_ns)


def slowdowns(result: Result) -> FloatColumn:
    """Return JCT / ideal time of every finished job, 1 or more."""
    return result.jct_ns / result.duration_ns[result.done]


def utilization(result: Result) -> float | None:
    """Return GPU time of jobs / (GPUs of all nodes x makespan). GPUs of nodes that are down count as unused."""
    return _of_cluster(result, result.attained_gpu_ns)


def work_utilization(result: Result) -> float | None:
    """Return work / (GPUs of all nodes x makespan): requested GPUs x ideal time of the finished jobs.

    Less than `utilization` by what slowdown, stops and failures cost.
    """
    return _of_cluster(result, (result.num_gpus * result.duration_ns.astype(np.float64)) * result.done)


def contention_sensitivity(result: Result) -> FloatColumn:
    """Return ideal / observed throughput of every finished job, averaged over its runs: (service - overhead) / work.

    1 is full speed all along. Work that was lost with a failed node was done nevertheless, and counts.
    """
    done = result.done
    worked = (result.service_ns - result.overhead_ns)[done].astype(np.float64)
    return worked / (result.duration_ns + result.lost_ns)[done]


def slowed(result: Result) -> FloatColumn:
    """Return the contention sensitivity of the finished jobs that were slowed down: of those by `SLOWED` or more."""
    found = contention_sensitivity(result)
    return found[found >= 1 + SLOWED]


def slowed_share(result: Result) -> float | None:
    """Return the share of the finished jobs that were slowed down by `SLOWED` or more, over their runs."""
    done = int(result.done.sum())
    return len(slowed(result)) / done if done else None


def shared_links_share(result: Result) -> float | None:
    """Return the share of the finished jobs that shared a link with another job at some time; None without such a model."""
    return None if result.shared_links is None else _mean(result.shared_links[result.done].astype(np.float64))


def shared_links_gpu_share(result: Result) -> float | None:
    """Return the share of the GPU time of finished jobs that these jobs have; None without a model of shared links."""
    if result.shared_links is None:
        return None
    gpu_ns = result.attained_gpu_ns.astype(np.float64) * result.done
    return float((gpu_ns * result.shared_links).sum() / gpu_ns.sum()) if gpu_ns.sum() else None


def finish_time_fairness(result: Result) -> FloatColumn:
    """Return Themis's rho of every finished job (Mahajan et al., NSDI 2020, section 3): JCT / JCT on a dedicated fair share.

    The fair share is 1/N of the cluster, N the mean number of active jobs (waiting or running) over the job's own life, itself
    included. A job that requests g GPUs takes ideal time x max(1, g / share) there: it scales linearly below its size, and gains
    nothing beyond. At most 1 means that the job lost nothing by sharing.
    """
    done = result.done
    if not done.any():
        return np.zeros(0)
    begin, end = result.submit_ns[done], result.finish_ns[done]
    # A job that was there when the run began may end in that instant.
    life = np.maximum(end - begin, 1)
    contention = (_active_time(result, end) - _active_time(result, begin)) / life
    share = result.node_gpus.sum() / np.maximum(contention, 1.0)
    ideal: FloatColumn = result.duration_ns[done] * np.maximum(1.0, result.num_gpus[done] / share)
    fairness: FloatColumn = result.jct_ns / ideal
    return fairness


def _active_time(result: Result, when: IntColumn) -> FloatColumn:
    """Return the job-ns for which jobs were active before each of these instants."""
    last = int(result.finish_ns.max())
    leave = np.sort(np.where(result.done, result.finish_ns, max(last, int(result.submit_ns.max()))))
    active: FloatColumn = _area_after(result.submit_ns, when) - _area_after(leave, when)
    return active


def _area_after(sorted_times: IntColumn, when: IntColumn) -> FloatColumn:
    """Return for each instant the sum of (instant - time) over all earlier times."""
    first = sorted_times[0]
    before = np.searchsorted(sorted_times, when, side="right")
    summed = np.concatenate(([0.0], np.cumsum((sorted_times - first).astype(np.float64))))
    area: FloatColumn = before * (when - first).astype(np.float64) - summed[before]
    return area


def overhead_gpu_s(result: Result) -> float:
    """Return the GPU-seconds that stops, moves and resizes cost, at the requested size."""
    return float((result.overhead_ns / NS_PER_S * result.num_gpus).sum())


def fragmentation(result: Result) -> float | None:
    """Return equation 1 of SCHED2, mean over nodes and makespan (see `simulator.results.fragmentation`); None without a record."""
    if result.spans is None or not result.done.any():
        return None
    begin = int(result.submit_ns.min())
    return Fragmentation.of(result.spans, result.node_gpus, begin, begin + result.makespan_ns).mean()


def decision_ms(result: Result, percent: float) -> float | None:
    """Return a percentile of the real time to make and apply a decision, ms."""
    return _percentile(result.decision_ns / NS_PER_MS, percent)


def carried_s(result: Result) -> float | None:
    """Return the mean time from the begin of the run to the finish of the jobs that were there when it began."""
    count = result.carried
    return _mean((result.finish_ns - result.submit_ns)[:count][result.done[:count]] / NS_PER_S)


def summary(result: Result) -> dict[str, Figure]:
    """Return every figure by its name; programs may rely on the first sixteen, in that order.

    Where jobs were there when the run began, figures of single jobs are those of the jobs that were submitted in the run, and
    `carried_avg_s` is about the others; figures of the cluster are about all of them.
    """
    own = result.submitted
    slowdown, sensitivity = slowdowns(own), contention_sensitivity(own)
    fairness = finish_time_fairness(result)[int(result.done[: result.carried].sum()) :]
    return {
        "jobs": len(result),
        "finished": int(result.done.sum()),
        "avg_jct_s": average_jct_s(own),
        "p50_jct_s": percentile_jct_s(own, 50),
        "p90_jct_s": percentile_jct_s(own, 90),
        "p99_jct_s": percentile_jct_s(own, 99),
        "avg_service_s": average_service_s(own),
        "makespan_s": makespan_s(result),
        "avg_wait_s": average_wait_s(own),
        "utilization": utilization(result),
        "preemptions": int(result.stops.sum()),
        "decisions": result.decisions,
        "decision_p50_ms": decision_ms(result, 50),
        "decision_p99_ms": decision_ms(result, 99),
        "wall_s": result.wall_s,
        "jobs_per_s": len(result) / result.wall_s if result.wall_s else None,
        **_guard_shares(result),
        "avg_first_wait_s": average_first_wait_s(own),
        "effectiveness": effectiveness(own),
        "avg_slowdown": _mean(slowdown),
        "p99_slowdown": _percentile(slowdown, 99),
        "work_utilization": work_utilization(result),
        "fragmentation": fragmentation(result),
        "avg_contention_sensitivity": _mean(sensitivity),
        "worst_contention_sensitivity": _worst(sensitivity),
        "slowed_share": slowed_share(own),
        "slowed_by": _mean(slowed(own) - 1),
        "shared_links_share": shared_links_share(own),
        "shared_links_gpu_share": shared_links_gpu_share(own),
        "avg_fairness": _mean(fairness),
        "worst_fairness": _worst(fairness),
        "moves": int(result.moves.sum()),
        "resizes": int(result.resizes.sum()),
        "failures": int(result.failures.sum()),
        "overhead_s": float(result.overhead_ns.sum() / NS_PER_S),
        "overhead_gpu_s": overhead_gpu_s(result),
        "dropped": result.dropped,
        "carried": result.carried,
        "carried_avg_s": carried_s(result),
    }


def _of_cluster(result: Result, gpu_ns: IntColumn | FloatColumn) -> float | None:
    whole = float(result.node_gpus.sum()) * result.makespan_ns
    return float(gpu_ns.astype(np.float64).sum()) / whole if whole else None


def _guard_shares(result: Result) -> dict[str, float | None]:
    return {
        "guarded_share": _share(result.guarded, result.decisions),
        "outside_share": _share(result.outside, result.decisions),
        "guarded_inside_share": _share(result.guarded_inside, result.decisions - result.outside),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(values: FloatColumn) -> float | None:
    return _figure(values, lambda column: float(column.mean()))


def _worst(values: FloatColumn) -> float | None:
    return _figure(values, lambda column: float(column.max()))


def _percentile(values: FloatColumn, percent: float) -> float | None:
    return _figure(values, lambda column: percentile(column, percent))


def percentile(values: FloatColumn, percent: float) -> float:
    """Return the same as `np.percentile`, which would import half of numpy for its checks."""
    place = (len(values) - 1) * percent / 100
    low = int(place)
    ordered = np.partition(values, (low, min(low + 1, len(values) - 1)))
    below, above = float(ordered[low]), float(ordered[min(low + 1, len(values) - 1)])
    return below + (above - below) * (place - low)


def _figure(values: FloatColumn, of: Callable[[FloatColumn], float]) -> float | None:
    return of(values) if len(values) else None
