"""The load of a trace: the work that arrives, over the capacity of a cluster from the first to the last submission.

work = sum over jobs of GPUs x run time alone; capacity = GPUs of the cluster x span of the submissions; load = work / capacity.

The load counts all of a job's work, also what cannot be done before the last submission. Where jobs are as long as the span, a
cluster that begins empty is therefore less busy than the load says; `wrapped` makes a trace that is as busy from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from policies.model import FloatColumn, IntColumn
from simulator.errors import TraceError
from simulator.traces.trace import MAX_TIME_S, NS_PER_S, Trace

TOLERANCE = 0.001
"""Largest relative difference between the load that is named and that of the trace: submissions are whole milliseconds."""
_TICK_NS = NS_PER_S // 1000


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """The load of a trace on a cluster."""

    cluster_gpus: int
    work_gpu_h: float
    capacity_gpu_h: float
    """GPU hours of the cluster from the first submission to the last; 0 if all jobs arrive at once."""
    span_s: float
    within_share: float
    """Share of the work that is done by the last submission if every job starts when it is submitted, at full speed."""

    @property
    def load(self) -> float | None:
        """Work over capacity; None if all jobs arrive at once."""
        return self.work_gpu_h / self.capacity_gpu_h if self.capacity_gpu_h else None

    def text(self) -> str:
        """Return the load in words."""
        if self.load is None:
            return f"{self.work_gpu_h:,.0f} GPU hours of work that arrive at once, on {self.cluster_gpus:,} GPUs"
        return (
            f"load {self.load:.3f} on {self.cluster_gpus:,} GPUs: {self.work_gpu_h:,.1f} GPU hours of work over "
            f"{self.capacity_gpu_h:,.1f} of capacity from the first to the last submission"
        )

    def warning(self) -> str:
        """Return a remark where a cluster that begins empty is much less busy than the load says; else an empty text."""
        if self.load is None or self.within_share >= 0.9:
            return ""
        busy = min(1.0, self.load * self.within_share)
        return (
            f"{1 - self.within_share:.0%} of the work is that of jobs which still run at the last submission, so a cluster that "
            f"begins empty is {busy:.0%} busy until then; --warm begins as busy as the load says"
        )


def offered_load(trace: Trace, cluster_gpus: int) -> OfferedLoad:
    """Return the load of all jobs of the trace on a cluster of so many GPUs."""
    seconds = trace.duration_ns / NS_PER_S
    work: FloatColumn = trace.num_gpus * seconds
    total = float(work.sum())
    span_s = float(trace.submit_ns[-1] - trace.submit_ns[0]) / NS_PER_S
    left_s = (trace.submit_ns[-1] - trace.submit_ns) / NS_PER_S
    within = float((trace.num_gpus * np.minimum(seconds, left_s)).sum())
    return OfferedLoad(cluster_gpus, total / 3600, cluster_gpus * span_s / 3600, span_s, within / total)


def at_load(trace: Trace, cluster_gpus: int, load: float) -> Trace:
    """Return the trace with its submissions closer together or farther apart, so that it has that load on so many GPUs.

    The first submission is at time 0; gaps keep their ratios. Raises TraceError if no times give that load.
    """
    if not 0 < load < 1e6:
        raise TraceError(f"a load of {load:g} is not possible", mend="give more than 0 and less than 1e6")
    found = offered_load(trace, cluster_gpus)
    if found.load is None:
        raise TraceError(
            f"all jobs of {trace.name} arrive at once, so no times give them a load",
            mend="give a trace with other arrivals",
        )
    scale = found.load / load
    since_first = (trace.submit_ns - trace.submit_ns[0]).astype(np.float64)
    if found.span_s * scale >= MAX_TIME_S:
        raise TraceError(f"at load {load:g} the jobs arrive over more than 126 years", mend="give a higher load")
    submit_ns = np.rint(since_first * scale / _TICK_NS).astype(np.int64) * _TICK_NS
    scaled = replace(trace, submit_ns=submit_ns)
    check_load(scaled, cluster_gpus, load)
    return scaled


def check_load(trace: Trace, cluster_gpus: int, load: float) -> OfferedLoad:
    """Return the load of the trace. Raises TraceError if it is not the one that is named."""
    found = offered_load(trace, cluster_gpus)
    if found.load is None or abs(found.load / load - 1) > TOLERANCE:
        raise TraceError(
            f"the jobs of {trace.name} have {found.text()}, and not a load of {load:g}",
            mend="give more jobs, or a lower load",
        )
    return found


def wrapped(trace: Trace) -> Trace:
    """Return the trace as one period of an endless one: it begins with the jobs that ran then, if every job starts at once.

    A job that would run beyond the end of the period ends there, and its rest is a job of its own, submitted at the beginning: the
    jobs that are there at the beginning are as many and as long as those that are left at the end. Work and span, and so the load,
    stay the same. The period is the span and one mean gap.
    """
    if len(trace) < 2:
        return trace
    begin, end = int(trace.submit_ns[0]), int(trace.submit_ns[-1])
    period = end - begin + max((end - begin) // (len(trace) - 1), 1)
    beyond: IntColumn = np.maximum(trace.submit_ns - begin + trace.duration_ns - period, 0)
    rows: list[int] = []
    lengths: list[int] = []
    ids: list[str] = []
    for row in np.flatnonzero(beyond).tolist():
        whole, rest = divmod(int(beyond[row]), period)
        pieces = [period] * whole + ([rest] if rest else [])
        rows += [row] * len(pieces)
        lengths += pieces
        ids += [f"{trace.job_ids[row]}+{number}" for number in range(1, len(pieces) + 1)]
    order = np.concatenate((np.array(rows, dtype=np.int64), np.arange(len(trace))))
    both = trace.take(order)
    count = len(rows)
    return replace(
        both,
        job_ids=(*ids, *trace.job_ids),
        submit_ns=np.concatenate((np.full(count, begin, dtype=np.int64), trace.submit_ns)),
        duration_ns=np.concatenate((np.array(lengths, dtype=np.int64), trace.duration_ns - beyond)),
        file_rows=np.arange(len(both), dtype=np.int64),
    )
