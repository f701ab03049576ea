"""The preemptive rule: select jobs in an order, as long as the whole selection can be laid out."""

from __future__ import annotations

from array import array

from simulator.kernel.constants import ANYWHERE
from simulator.kernel.fill import fill, first_waiting
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.kernel.nodes import NodePool


class Selection:
    """Selection in the policy's order: a job is selected if the whole selection can be laid out.

    A layout is: selected running jobs in their own places, then selected newcomers in selection order by the placement
    rule, with the GPUs of running jobs that are not selected counting as free. Running jobs that are not selected are
    stopped, never moved; jobs that must not be stopped are selected before all others.

    Invariants while deciding: `base` are the GPUs that selected running jobs leave free; laying out the newcomers on it in order
    gives their `nodes` and `counts`, and leaves `free`. `worst[g]` is at or behind the `rank` of every fit of a share of at most
    g GPUs: only a node that comes before it could have been preferred.
    """

    def __init__(self, pool: NodePool, placement: int) -> None:
        """Prepare for clusters like that of the pool."""
        self.placement = placement
        self.base = pool.copy()
        self.free = pool.copy()
        self.worst = array("q", bytes(8 * (pool.top + 1)))
        self.newcomers: list[ActiveJob] = []
        self.later: list[ActiveJob] = []
        self.num_sizes = 0
        self.cursors = array("q", bytes(8))
        """First waiting job of each size that was not offered yet."""
        self.passed = array("q", bytes(8))
        """1 for each size whose last offered job did not fit."""

    def decide(self, loop: Loop) -> None:
        """Stop and start jobs by the order."""
        if loop.num_waiting == 0:
            return
        if loop.num_waiting == 1 and self._fits_beside_all(loop):
            fill(loop, self.placement, 0)
            return
        self._begin(loop)
        stopped = self._walk(loop)
        if self.placement == ANYWHERE:
            self._lay_out_anywhere()
        for job in stopped:
            loop.stop(job)
        for job in self.newcomers:
            loop.dequeue(job)
            loop.start_on(job, job.nodes, job.counts)

    def _fits_beside_all(self, loop: Loop) -> int:
        for queue in loop.queues:
            if len(queue) > 0:
                return loop.pool.place(queue[0].size, queue[0].gpus, self.placement)
        return 0

    def _begin(self, loop: Loop) -> None:
        """Select the running jobs that come before every newcomer: nothing can conflict with them."""
        base = self.base
        base.share_division(loop.pool)
        self.free.share_division(loop.pool)
        base.copy_from(loop.pool)
        self.newcomers = []
        self.num_sizes = base.num_sizes
        self.cursors = array("q", bytes(8 * base.num_sizes))
        self.passed = array("q", bytes(8 * base.num_sizes))
        for share in range(base.top + 1):
            self.worst[share] = 0
        self._set_apart(loop)
        for job in self.later:
            self._take(base, job, -1)
        self.free.copy_from(base)

    def _set_apart(self, loop: Loop) -> None:
        """Set `later` to the running jobs after the first newcomer, in the policy's order."""
        first = first_waiting(loop, [0] * self.num_sizes)
        assert first is not None
        sooner: list[ActiveJob] = []
        later: list[ActiveJob] = []
        for job in loop.running:
            job.settle(loop.now)
            job.key = loop.key_of(job)
            if job.fixed or job.before(first):
                sooner.append(job)
            else:
                later.append(job)
        _sort(later)
        self.later = later
        loop.running = sooner + later  # stays nearly sorted: the next sort has little to do
        for place in range(len(loop.running)):
            job = loop.running[place]
            job.running_place = place

    def _walk(self, loop: Loop) -> list[ActiveJob]:
        """Select in order; return the running jobs that were not selected."""
        stopped: list[ActiveJob] = []
        newcomer = self._next_newcomer(loop)
        for job in self.later:
            while newcomer is not None and newcomer.before(job):
                self._offer_newcomer(newcomer)
                newcomer = self._next_newcomer(loop)
            if self.free.total == 0 and self._occupied_up(job) > 0:
                stopped.append(job)
                continue
            kept = self._offer_running(job)
            if kept == 0:
                stopped.append(job)
            elif kept == 2:
                self._reopen(loop, job)
                newcomer = self._next_newcomer(loop)
        while newcomer is not None:
            self._offer_newcomer(newcomer)
            newcomer = self._next_newcomer(loop)
        return stopped

    def _next_newcomer(self, loop: Loop) -> ActiveJob | None:
        """Return the first waiting job that was not offered yet, of the sizes that may still fit."""
        first: ActiveJob | None = None
        if self.free.total == 0:
            return first
        for size in range(self.num_sizes):
            if self.passed[size]:
                continue
            queue = loop.queues[size]
            place = self.cursors[size]
            if place < len(queue) and (first is None or queue[place].before(first)):
                first = queue[place]
        return first

    def _reopen(self, loop: Loop, last: ActiveJob) -> None:
        """Offer sizes that did not fit again, from after the job that was offered last, because newcomers have moved."""
        for size in range(self.num_sizes):
            if self.passed[size]:
                self.passed[size] = 0
                self.cursors[size] = loop.first_behind(loop.queues[size], last.key, last.index)

    def _offer_newcomer(self, job: ActiveJob) -> None:
        """Select a waiting job if it fits behind the newcomers before it."""
        free = self.free
        if self.placement == ANYWHERE:
            if job.gpus > free.total:
                self.passed[job.size] = 1
                return
            free.total -= job.gpus
        else:
            found = free.place(job.size, job.gpus, self.placement)
            if found == 0:
                self.passed[job.size] = 1
                return
            self._settle(job, free, found)
        self.newcomers.append(job)
        self.cursors[job.size] += 1

    def _settle(self, job: ActiveJob, pool: NodePool, found: int) -> None:
        """Place the newcomer on the pool's last choice."""
        nodes: list[int] = []
        counts: list[int] = []
        for place in range(found):
            node = pool.chosen[place]
            share = pool.chosen_gpus[place]
            nodes.append(node)
            counts.append(share)
            rank = pool.free[node] * pool.num_nodes + node
            for gpus in range(share, pool.top + 1):
                self.worst[gpus] = max(self.worst[gpus], rank)
        job.nodes = nodes
        job.counts = counts
        pool.take_chosen(found)

    def _occupied_up(self, job: ActiveJob) -> int:
        """Return the running job's GPUs on nodes that take jobs."""
        occupied = 0
        for share in range(len(job.nodes)):
            if self.base.up[job.nodes[share]]:
                occupied += job.counts[share]
        return occupied

    def _offer_running(self, job: ActiveJob) -> int:
        """Select a running job if the newcomers before it still fit, laid out anew, when it stays where it is.

        Returns 0 when not, 1 when they stay where they were, 2 when they have moved.
        """
        base = self.base
        free = self.free
        occupied = self._occupied_up(job)
        if occupied > free.total:
            return 0
        if self.placement == ANYWHERE:
            free.total -= occupied
            self._take(base, job, 1)
            return 1
        if len(self.newcomers) == 0 or not self._disturbs(job):
            self._take(base, job, 1)
            self._take(free, job, 1)
            return 1
        return self._lay_out_around(job)

    def _take(self, pool: NodePool, job: ActiveJob, sign: int) -> None:
        for share in range(len(job.nodes)):
            pool.take(job.nodes[share], sign * job.counts[share])

    def _disturbs(self, job: ActiveJob) -> int:
        """Return whether that running job, if it stays, could change the layout of newcomers."""
        for place in range(len(job.nodes)):
            node = job.nodes[place]
            if not self.base.up[node]:
                continue
            if self.free.free[node] != self.base.free[node]:
                return 1
            after = self.free.free[node] - job.counts[place]
            if after * self.free.num_nodes + node < self.worst[after]:
                return 1
        return 0

    def _lay_out_around(self, job: ActiveJob) -> int:
        """Keep the running job and lay out the newcomers anew; return 0, with nothing changed, if one does not fit."""
        free = self.free
        newcomers = self.newcomers
        for place in range(len(newcomers)):
            self._take(free, newcomers[place], -1)
        self._take(free, job, 1)
        former: list[tuple[list[int], list[int]]] = []
        for place in range(len(newcomers)):
            newcomer = newcomers[place]
            found = free.place(newcomer.size, newcomer.gpus, self.placement)
            if found == 0:
                self._take(free, job, -1)
                self._lay_out_as_before(former)
                return 0
            former.append((newcomer.nodes, newcomer.counts))
            self._settle(newcomer, free, found)
        self._take(self.base, job, 1)
        return 2

    def _lay_out_as_before(self, former: list[tuple[list[int], list[int]]]) -> None:
        """Restore the layout: the first newcomers return to their former places, the others have not moved."""
        for place in range(len(former)):
            self._take(self.free, self.newcomers[place], -1)
        for place in range(len(self.newcomers)):
            newcomer = self.newcomers[place]
            if place < len(former):
                newcomer.nodes, newcomer.counts = former[place]
            self._take(self.free, newcomer, 1)

    def _lay_out_anywhere(self) -> None:
        """Lay out newcomers that were selected by number of GPUs only."""
        self.free.copy_from(self.base)
        for job in self.newcomers:
            found = self.free.place(job.size, job.gpus, self.placement)
            self._settle(job, self.free, found)


def _sort(jobs: list[ActiveJob]) -> None:
    """Sort by the policy's order. The jobs are nearly sorted: keys change little between decisions."""
    budget = 8 * len(jobs) + 64
    for place in range(1, len(jobs)):
        job = jobs[place]
        hole = place
        while hole > 0:
            above = jobs[hole - 1]
            if not job.before(above):
                break
            jobs[hole] = above
            hole -= 1
        jobs[hole] = job
        budget -= place - hole
        if budget < 0:
            jobs.sort(key=_order)
            return


def _order(job: ActiveJob) -> tuple[int, int]:
    return job.key, job.index
