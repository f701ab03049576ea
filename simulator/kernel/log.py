"""Logs of a run: finished jobs, the cluster over time, and the runs of jobs."""

from __future__ import annotations

from array import array

from simulator.kernel.job import ActiveJob
from simulator.kernel.nodes import NodePool

_SHORT = 64
"""A log of at most so many entries is copied; a longer one becomes a link of a chain."""
_COLUMNS = (
    *("index", "first_start", "finish", "service", "wait", "overhead", "lost"),
    *("attained", "stops", "moves", "resizes", "failures"),
)
"""The columns with one number for each job."""


class FinishLog:
    """One entry per finished job in every column, in order of finishing; times in ns.

    Job k had `counts[i]` GPUs of node `nodes[i]` in its last run, for i from `offset[k]` to `offset[k + 1]` - 1. Of the jobs that
    finished before a fork, the last `prefix_length` are the first entries of `prefix`, and earlier ones are in its own prefix.

    Invariant: no log of such a chain is empty, and two neighbours have more than `_SHORT` entries together. So the chain of a run
    that is forked again and again grows with the finished jobs, by a link for some thirty of them, and not with the forks.
    """

    def __init__(self, original: FinishLog | None = None) -> None:
        """Begin an empty log after the present entries of `original`."""
        self.prefix: FinishLog | None = None
        self.prefix_length = 0
        if original is not None:
            self.prefix, self.prefix_length = original._as_prefix()
        self.index: array[int] = array("q")
        self.first_start = array("q")
        self.finish = array("q")
        self.service = array("q")
        self.wait = array("q")
        self.overhead = array("q")
        self.lost = array("q")
        """Work done and lost in failures."""
        self.attained = array("q")
        self.stops = array("q")
        self.moves = array("q")
        self.resizes = array("q")
        self.failures = array("q")
        self.nodes = array("q")
        self.counts = array("q")
        self.offset = array("q", [0])

    def _as_prefix(self) -> tuple[FinishLog | None, int]:
        """Return a log and a number of its entries, which together stand for everything in this log and its prefixes."""
        before, behind = self.prefix_length, len(self.index)
        if not behind:
            return self.prefix, before
        if self.prefix is None or before + behind > _SHORT:
            return self, behind
        both = FinishLog()
        both.prefix, both.prefix_length = self.prefix.prefix, self.prefix.prefix_length
        both._append(self.prefix, before)
        both._append(self, behind)
        return both, before + behind

    def _append(self, log: FinishLog, count: int) -> None:
        """Copy the first entries of another log."""
        for name in _COLUMNS:
            getattr(self, name).extend(getattr(log, name)[:count])
        before, end = len(self.nodes), log.offset[count]
        self.nodes.extend(log.nodes[:end])
        self.counts.extend(log.counts[:end])
        self.offset.extend([before + offset for offset in log.offset[1 : count + 1]])

    def add(self, job: ActiveJob) -> None:
        """Add a job that has finished: it is settled, and still occupies its GPUs."""
        self.index.append(job.index)
        self.first_start.append(job.first_start)
        self.finish.append(job.since)
        self.service.append(job.service)
        self.wait.append(job.wait)
        self.overhead.append(job.overhead_served)
        self.lost.append(job.lost)
        self.attained.append(job.attained)
        self.stops.append(job.stops)
        self.moves.append(job.moves)
        self.resizes.append(job.resizes)
        self.failures.append(job.failures)
        self.nodes.extend(job.nodes)
        self.counts.extend(job.counts)
        self.offset.append(len(self.nodes))


class SeriesLog:
    """State of the cluster after each decision, one entry per instant; times in ns."""

    def __init__(self) -> None:
        """Begin an empty log."""
        self.time = array("q")
        self.free = array("q")
        self.waiting = array("q")
        self.running = array("q")
        self.empty = array("q")
        """Number of nodes that are up and entirely free."""

    def add(self, time: int, pool: NodePool, waiting: int, running: int) -> None:
        """Add the state from that instant on."""
        if self.time and self.time[-1] == time:
            for column in (self.time, self.free, self.waiting, self.running, self.empty):
                column.pop()
        self.time.append(time)
        self.free.append(pool.total)
        self.waiting.append(waiting)
        self.running.append(running)
        self.empty.append(pool.population[pool.top])


class SpanLog:
    """Every run of every job, with its nodes, its start and its end; times in ns."""

    def __init__(self) -> None:
        """Begin an empty log."""
        self.index = array("q")
        self.start = array("q")
        self.end = array("q")
        self.nodes = array("q")
        self.counts = array("q")
        self.offset = array("q", [0])

    def add(self, job: ActiveJob) -> None:
        """Add the present run of the job, which ends at the instant to which the job was settled."""
        self.index.append(job.index)
        self.start.append(job.start)
        self.end.append(job.since)
        self.nodes.extend(job.nodes)
        self.counts.extend(job.counts)
        self.offset.append(len(self.nodes))
