"""Rules that never stop a running job: strict order, skipping, and EASY backfilling."""

from __future__ import annotations

from simulator.kernel.constants import NEVER
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.kernel.nodes import NodePool

NOT_EVEN_THEN = -1
"""A time of `Backfill`: the head of the queue does not fit even after the end of all running jobs."""


def first_waiting(loop: Loop, passed: list[int]) -> ActiveJob | None:
    """Return the first waiting job in the policy's order, of the sizes that are not `passed` over."""
    first: ActiveJob | None = None
    for size in range(len(passed)):
        if passed[size]:
            continue
        queue = loop.queues[size]
        if len(queue) > 0 and (first is None or queue[0].before(first)):
            first = queue[0]
    return first


def fill(loop: Loop, placement: int, strict: int) -> ActiveJob | None:
    """Start waiting jobs in the policy's order where they fit.

    With `strict` the first that does not fit ends the pass and is returned; otherwise it is passed, and with it all of its
    size: free GPUs only become fewer during a pass.
    """
    pool = loop.pool
    if loop.num_waiting == 0 or (pool.total == 0 and not strict):
        return None
    passed = [0] * pool.num_sizes
    while True:
        job = first_waiting(loop, passed)
        if job is None:
            return None
        found = pool.place(job.size, job.gpus, placement)
        if found > 0:
            del loop.queues[job.size][0]
            loop.start(job, found)
        elif strict:
            return job
        else:
            passed[job.size] = 1


class Backfill:
    """EASY backfilling: jobs may pass the head of the queue as long as that does not delay it.

    Source: D. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995. T is the earliest expected finish of a running job at
    which the head can be placed on what is free now and all that is released until then. In arrival order, a later job
    starts if it can be placed now and either is expected to end by T, or leaves enough at T for the head. A job without an estimate
    is expected to end after all that have one, and never by T.
    """

    def __init__(self, placement: int) -> None:
        """Place jobs by that rule of placement."""
        self.placement = placement
        self.later: NodePool | None = None

    def decide(self, loop: Loop) -> None:
        """Start the jobs that may start now."""
        head = fill(loop, self.placement, 1)
        if head is None or loop.num_waiting == 1 or loop.pool.total == 0:
            return
        later = loop.pool.copy() if self.later is None else self.later
        self.later = later
        deadline = self._reserve(loop, later, head)
        self._pass_head(loop, later, head, deadline)

    def _reserve(self, loop: Loop, later: NodePool, head: ActiveJob) -> int:
        """Return T; set `later` to the nodes' free GPUs at T. NEVER: the end of jobs without an estimate; NOT_EVEN_THEN: the head
        does not fit even after that."""
        later.share_division(loop.pool)
        later.copy_from(loop.pool)
        for job in loop.running:
            job.key = expected_finish(job, loop.now)
        ends = sorted(loop.running, key=_key)
        for place in range(len(ends)):
            job = ends[place]
            for share in range(len(job.nodes)):
                later.take(job.nodes[share], -job.counts[share])
            if place + 1 < len(ends) and ends[place + 1].key == job.key:
                continue
            if later.place(head.size, head.gpus, self.placement) > 0:
                return job.key
        return NOT_EVEN_THEN

    def _pass_head(self, loop: Loop, later: NodePool, head: ActiveJob, deadline: int) -> None:
        pool = loop.pool
        cursors = [0] * pool.num_sizes
        cursors[head.size] = 1
        full = [0] * pool.num_sizes
        delaying = [0] * pool.num_sizes
        while pool.total > 0:
            job = self._next(loop, cursors, full, delaying, deadline)
            if job is None:
                return
            found = pool.place(job.size, job.gpus, self.placement)
            if found == 0:
                full[job.size] = 1
                continue
            if not ends_by(job, loop.now, deadline) and not self._leaves_enough(pool, later, found, head):
                delaying[job.size] = 1
                continue
            found = pool.place(job.size, job.gpus, self.placement)
            del loop.queues[job.size][cursors[job.size]]
            loop.start(job, found)
            for size in range(pool.num_sizes):
                delaying[size] = 0
                if not full[size]:
                    cursors[size] = loop.first_behind(loop.queues[size], 0, job.index)
            cursors[head.size] = max(cursors[head.size], 1)

    def _next(
        self, loop: Loop, cursors: list[int], full: list[int], delaying: list[int], deadline: int
    ) -> ActiveJob | None:
        """Return the next job in order of arrival that could start."""
        first: ActiveJob | None = None
        for size in range(len(cursors)):
            if full[size]:
                continue
            queue = loop.queues[size]
            place = cursors[size]
            if delaying[size]:
                while place < len(queue) and not ends_by(queue[place], loop.now, deadline):
                    place += 1
                cursors[size] = place
            if place < len(queue) and (first is None or queue[place].before(first)):
                first = queue[place]
        return first

    def _leaves_enough(self, pool: NodePool, later: NodePool, found: int, head: ActiveJob) -> int:
        """Return whether the head can still be placed at T beside the pool's last choice; if so, keep that choice taken at T."""
        nodes = [pool.chosen[place] for place in range(found)]
        counts = [pool.chosen_gpus[place] for place in range(found)]
        for place in range(found):
            later.take(nodes[place], counts[place])
        if later.place(head.size, head.gpus, self.placement) > 0:
            return 1
        for place in range(found):
            later.take(nodes[place], -counts[place])
        return 0


def ends_by(job: ActiveJob, now: int, deadline: int) -> int:
    """Return whether the job is expected to end by then, if it runs from now on; always, if the head fits not even then."""
    if deadline == NOT_EVEN_THEN:
        return 1
    finish = expected_finish(job, now)
    return 1 if finish != NEVER and finish <= deadline else 0


def expected_finish(job: ActiveJob, now: int) -> int:
    """Return when the job will end by its estimate if it runs from now on; NEVER without an estimate."""
    job.settle(now)
    remaining = job.remaining()
    return NEVER if remaining == NEVER else now + remaining


def _key(job: ActiveJob) -> int:
    return job.key
