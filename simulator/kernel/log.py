"""What finished jobs leave behind."""

from __future__ import annotations

from array import array

from simulator.kernel.job import ActiveJob
from simulator.kernel.nodes import NodePool


class FinishLog:
    """One entry per finished job in every column, in order of finishing; times in ns.

    Job k held `counts[i]` GPUs of node `nodes[i]` in its last run, for i from `offset[k]` to `offset[k + 1]` - 1. The first
    `prefix_length` jobs stand in `prefix`, the log that this one was forked from.
    """

    def __init__(self, prefix: FinishLog | None = None) -> None:
        """An empty log behind what `prefix` holds now."""
        self.prefix = prefix
        self.prefix_length = 0 if prefix is None else len(prefix.index)
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

    def add(self, job: ActiveJob) -> None:
        """The job has finished: it is settled, and still holds its GPUs."""
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
    """What the cluster looked like after each decision, one entry per instant; times in ns."""

    def __init__(self) -> None:
        """An empty log."""
        self.time = array("q")
        self.free = array("q")
        self.waiting = array("q")
        self.running = array("q")
        self.empty = array("q")
        """Nodes that are up and wholly free."""

    def add(self, time: int, pool: NodePool, waiting: int, running: int) -> None:
        """What holds from that instant on."""
        if self.time and self.time[-1] == time:
            for column in (self.time, self.free, self.waiting, self.running, self.empty):
                column.pop()
        self.time.append(time)
        self.free.append(pool.total)
        self.waiting.append(waiting)
        self.running.append(running)
        self.empty.append(pool.population[pool.top])


class SpanLog:
    """Every run of every job: who held which nodes from when to when; times in ns."""

    def __init__(self) -> None:
        """An empty log."""
        self.index = array("q")
        self.start = array("q")
        self.end = array("q")
        self.nodes = array("q")
        self.counts = array("q")
        self.offset = array("q", [0])

    def add(self, job: ActiveJob) -> None:
        """The present run of the job ends at the instant to which it was settled."""
        self.index.append(job.index)
        self.start.append(job.start)
        self.end.append(job.since)
        self.nodes.extend(job.nodes)
        self.counts.extend(job.counts)
        self.offset.append(len(self.nodes))
