"""The preemptive rule: select jobs in an order, as long as the whole selection can be laid out."""

from __future__ import annotations

from array import array

from simulator.kernel.constants import ANYWHERE, NEVER
from simulator.kernel.fill import fill
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.kernel.nodes import NodePool
from simulator.kernel.order import fronts_of, set_apart

PASSED = 1
CLOSED = 2
MANY = 64
"""Newcomers from which on they are counted."""


class Selection:
    """Selection in the policy's order: a job is selected if the whole selection can be laid out.

    A layout is: selected running jobs in their own places, then selected newcomers in selection order by the placement
    rule, with the GPUs of running jobs that are not selected counting as free. Running jobs that are not selected are
    stopped, never moved; jobs that must not be stopped are selected before all others.

    Invariants while walking down the order: `base` are the GPUs that selected running jobs leave free; laying out the newcomers on
    it in order gives their `nodes` and `counts`, and leaves `free`. `worst[g]` is at or behind the `rank` of every fit of a share
    of at most g GPUs: only a node that comes before it could have been preferred. `needed[s]` are the slots of s GPUs that the
    newcomers need: free // s are on a node, and a share of g GPUs takes g // s of them at least.

    Most decisions select no newcomer, or one. For these the walk is shortened, and its result is the same, because one job fits
    wherever it fits with fewer GPUs free: running jobs before the first newcomer keep their places, and so do all of those behind
    a single newcomer that leave room for it together. A size that does not fit beside the running jobs alone is CLOSED.

    When thousands of newcomers replace others, a layout for each running job that stays takes nearly all of the time. So many
    newcomers are `counted`: whether they fit, and what they leave, follows from the numbers of nodes by free GPUs. Meanwhile only
    `population` and `total` of `free` are kept, and newcomers have no nodes; they get theirs at the end.
    """

    def __init__(self, pool: NodePool, placement: int) -> None:
        """Prepare for clusters like that of the pool."""
        self.placement = placement
        self.base = pool.copy()
        self.free = pool.copy()
        self.worst = array("q", bytes(8 * (pool.top + 1)))
        self.needed = array("q", bytes(8 * (pool.top + 1)))
        self.newcomers: list[ActiveJob] = []
        self.later: list[ActiveJob] = []
        self.num_sizes = 0
        self.cursors = array("q", bytes(8))
        """First waiting job of each size that was not offered yet."""
        self.passed = array("q", bytes(8))
        """PASSED for each size whose last offered job did not fit, CLOSED for sizes of which no further job can fit."""
        self.fronts: list[ActiveJob] = []
        """First waiting job of each size, in order."""
        self.most_laid_out = NEVER
        """Number of newcomers that a decision may lay out anew before it is given up."""
        self.laid_out = 0
        """Number of newcomers that the last decision laid out anew: in large clusters this takes nearly all of its time."""
        self.counted = 0
        """1 while newcomers are counted."""
        self.sizes = array("q", bytes(8 * (sum(pool.capacity) + 1)))
        """Size of each newcomer, which takes a GPU at least: in one block of memory, where counting goes fast."""
        self.former = pool.copy()
        """What newcomers left before they were counted anew; only its numbers are kept."""

    def gave_up(self) -> int:
        """Return 1 if the last decision was given up: then no job was stopped or started."""
        return int(self.laid_out > self.most_laid_out)

    def decide(self, loop: Loop) -> None:
        """Stop and start jobs by the order."""
        self.laid_out = 0
        if loop.num_waiting == 0:
            return
        if loop.num_waiting == 1 and self._fits_beside_all(loop):
            fill(loop, self.placement, 0)
            return
        self._begin(loop)
        stopped = self._walk(loop)
        if self.gave_up():
            return
        if self.placement == ANYWHERE or self.counted:
            self._lay_out_at_last()
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
        """Find the running jobs that come before every newcomer: nothing can conflict with them."""
        base = self.base
        base.share_division(loop.pool)
        self.free.share_division(loop.pool)
        self.former.share_division(loop.pool)
        base.copy_from(loop.pool)
        self.newcomers = []
        self.counted = 0
        if self.num_sizes != base.num_sizes:
            self.num_sizes = base.num_sizes
            self.cursors = array("q", bytes(8 * base.num_sizes))
            self.passed = array("q", bytes(8 * base.num_sizes))
        for size in range(self.num_sizes):
            self.cursors[size] = 0
            self.passed[size] = 0
        for share in range(base.top + 1):
            self.worst[share] = 0
            self.needed[share] = 0
        self.fronts = fronts_of(loop)
        self.later = set_apart(loop, self.fronts[0])

    def _walk(self, loop: Loop) -> list[ActiveJob]:
        """Select in order; return the running jobs that were not selected."""
        stopped: list[ActiveJob] = []
        place = 0
        if self.placement == ANYWHERE:
            self._give_up(0, len(self.later))
            self.free.copy_from(self.base)
        else:
            place = self._first_that_fits()
            if place < 0:
                return stopped
            place = self._walk_with_one(loop, place, stopped)
        self._walk_with_several(loop, place, stopped)
        return stopped

    def _give_up(self, begin: int, end: int) -> None:
        """Count the GPUs of these of the later running jobs as free."""
        for place in range(begin, end):
            self._take(self.base, self.later[place], -1)

    def _keep(self, begin: int, end: int) -> None:
        """Select these of the later running jobs, in their places."""
        for place in range(begin, end):
            self._take(self.base, self.later[place], 1)

    def _first_that_fits(self) -> int:
        """Go to the first newcomer that fits, and return the place in `later` of the running job behind it; -1: none fits.

        Of each size only the first waiting job needs a look: behind it, there is less. From the last of them to the first, the
        running jobs behind each are given up.
        """
        later = self.later
        fronts = self.fronts
        place = len(later)
        best = -1
        best_place = -1
        for index in range(len(fronts) - 1, -1, -1):
            front = fronts[index]
            while place > 0 and front.before(later[place - 1]):
                place -= 1
                self._take(self.base, later[place], -1)
            if self.base.place(front.size, front.gpus, self.placement) > 0:
                best = index
                best_place = place
        if best < 0:
            return -1
        self._keep(place, best_place)
        for index in range(best):
            front = fronts[index]
            self.passed[front.size] = CLOSED
        self.free.copy_from(self.base)
        return best_place

    def _walk_with_one(self, loop: Loop, place: int, stopped: list[ActiveJob]) -> int:
        """Select the first newcomer, and walk on as long as it is the only one; return the place in `later` that was reached."""
        found = self._next_newcomer(loop)
        assert found is not None
        only = found
        self._offer_newcomer(only)
        while True:
            following = self._next_newcomer(loop)
            end = self._behind(following, place)
            while place < end:
                place = self._keep_beside(only, place, end, stopped)
            if following is None or not self._offer_beside_one(following):
                return place

    def _behind(self, job: ActiveJob | None, begin: int) -> int:
        """Return the place from `begin` on of the first of the later running jobs that comes after that job; None: their number."""
        if job is None:
            return len(self.later)
        low = begin
        high = len(self.later)
        while low < high:
            middle = (low + high) // 2
            if job.before(self.later[middle]):
                high = middle
            else:
                low = middle + 1
        return low

    def _keep_beside(self, only: ActiveJob, begin: int, end: int, stopped: list[ActiveJob]) -> int:
        """Keep these running jobs beside the only newcomer, up to the first that leaves no room for it; return the next place."""
        base = self.base
        self._keep(begin, end)
        place = end
        found = base.place(only.size, only.gpus, self.placement)
        while found == 0:
            place -= 1
            self._take(base, self.later[place], -1)
            if self._occupied_up(self.later[place]) > 0:
                found = base.place(only.size, only.gpus, self.placement)
        if place < end:
            stopped.append(self.later[place])
            place += 1
        self.free.copy_from(base)
        self._settle(only, self.free, self.free.place(only.size, only.gpus, self.placement))
        return place

    def _offer_beside_one(self, job: ActiveJob) -> int:
        """Offer a job beside the only newcomer; return 1 if its whole size cannot fit any more, 0 if it may have been selected."""
        if self.base.place(job.size, job.gpus, self.placement) == 0:
            self.passed[job.size] = CLOSED
            return 1
        self._offer_newcomer(job)
        return 0

    def _walk_with_several(self, loop: Loop, place: int, stopped: list[ActiveJob]) -> None:
        """Walk on from that place in `later`, one job after the other."""
        newcomer = self._next_newcomer(loop)
        while place < len(self.later):
            job = self.later[place]
            place += 1
            while newcomer is not None and newcomer.before(job):
                self._offer_newcomer(newcomer)
                newcomer = self._next_newcomer(loop)
            if self.free.total == 0 and self._occupied_up(job) > 0:
                stopped.append(job)
                continue
            kept = self._offer_running(job)
            if self.gave_up():
                return
            if kept == 0:
                stopped.append(job)
            elif kept == 2:
                self._reopen(loop, job)
                newcomer = self._next_newcomer(loop)
        while newcomer is not None:
            self._offer_newcomer(newcomer)
            newcomer = self._next_newcomer(loop)

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
            if self.passed[size] == PASSED:
                self.passed[size] = 0
                self.cursors[size] = loop.first_behind(loop.queues[size], last.key, last.index)

    def _offer_newcomer(self, job: ActiveJob) -> None:
        """Select a waiting job if it fits behind the newcomers before it."""
        free = self.free
        if self.placement == ANYWHERE:
            if job.gpus > free.total:
                self.passed[job.size] = PASSED
                return
            free.total -= job.gpus
        elif self.counted:
            if free.take_counted(job.size) == 0:
                self.passed[job.size] = PASSED
                return
        else:
            found = free.place(job.size, job.gpus, self.placement)
            if found == 0:
                self.passed[job.size] = PASSED
                return
            self._settle(job, free, found)
            self._need(job)
        self.sizes[len(self.newcomers)] = job.size
        self.newcomers.append(job)
        self.cursors[job.size] += 1

    def _need(self, job: ActiveJob) -> None:
        """Count the slots of a new newcomer."""
        for place in range(len(job.counts)):
            share = job.counts[place]
            for gpus in range(1, share + 1):
                self.needed[gpus] += share // gpus

    def _has_slots(self) -> int:
        """Quick test: return 0 if the newcomers cannot all be laid out on `base`, whatever their nodes."""
        base = self.base
        for gpus in range(1, base.top + 1):
            if self.needed[gpus] == 0:
                break
            slots = 0
            for free in range(gpus, base.top + 1):
                slots += base.population[free] * (free // gpus)
            if slots < self.needed[gpus]:
                return 0
        return 1

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
        if job.only_node >= 0:
            return job.occupied if self.base.up[job.only_node] else 0
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
        if self.counted:
            return self._count_around(job)
        if len(self.newcomers) == 0 or not self._disturbs(job):
            self._take(base, job, 1)
            self._take(free, job, 1)
            return 1
        if len(self.newcomers) >= MANY and self.most_laid_out == NEVER:
            self.counted = 1
            return self._count_around(job)
        return self._lay_out_around(job)

    def _take(self, pool: NodePool, job: ActiveJob, sign: int) -> None:
        """Take the GPUs of a placed job (1), or return them (-1)."""
        if job.only_node >= 0:
            pool.take(job.only_node, sign * job.occupied)
            return
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
        self._take(self.base, job, 1)
        if not self._has_slots():
            self._take(self.base, job, -1)
            return 0
        self.laid_out += len(newcomers)
        for place in range(len(newcomers)):
            self._take(free, newcomers[place], -1)
        self._take(free, job, 1)
        former: list[tuple[list[int], list[int]]] = []
        for place in range(len(newcomers)):
            newcomer = newcomers[place]
            found = free.place(newcomer.size, newcomer.gpus, self.placement)
            if found == 0:
                self._take(free, job, -1)
                self._take(self.base, job, -1)
                self._lay_out_as_before(former)
                return 0
            former.append((newcomer.nodes, newcomer.counts))
            self._settle(newcomer, free, found)
        return 2

    def _count_around(self, job: ActiveJob) -> int:
        """Do what `_lay_out_around` does, by numbers of nodes."""
        base = self.base
        free = self.free
        self._take(base, job, 1)
        self.former.copy_counts(free)
        free.copy_counts(base)
        for place in range(len(self.newcomers)):
            if free.take_counted(self.sizes[place]) == 0:
                self._take(base, job, -1)
                free.copy_counts(self.former)
                return 0
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

    def _lay_out_at_last(self) -> None:
        """Lay out newcomers that were selected by numbers only."""
        self.free.copy_from(self.base)
        for job in self.newcomers:
            found = self.free.place(job.size, job.gpus, self.placement)
            self._settle(job, self.free, found)
