"""The event loop: jobs arrive, run and finish; time goes from event to event.

At one instant, all finishes come first, then all arrivals; then the caller decides once. Times are integer nanoseconds, so a
trace of 10^8 s runs without drift and simultaneous events coincide exactly. Finished jobs are in a log apart from active ones:
copying the loop takes time in proportion to the active jobs, however long the trace is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulator.kernel.constants import (
    ALL_JOBS,
    ARRIVAL,
    BY_ARRIVAL,
    BY_ATTAINED,
    BY_DURATION,
    BY_GPUS,
    BY_LEVELS,
    BY_QUEUES,
    BY_REMAINING,
    FINISH,
    INTERRUPT,
    NEVER,
    NO_JOBS,
    NOWHERE,
    ON_SEVERAL_NODES,
    ROUND,
    RUNNING,
    WAITING,
)
from simulator.kernel.job import ActiveJob
from simulator.kernel.log import FinishLog, SeriesLog, SpanLog
from simulator.kernel.nodes import NodePool


class Loop:
    """Clock and active jobs.

    Invariants: `pool` counts exactly the GPUs that running jobs occupy. Running jobs are in `heap`, the earliest `finish` first.
    Waiting jobs are in the queue of their size, sorted by (key, index), where `order` gives the key, which does not change while
    a job waits. `touched` are the jobs that started, stopped or finished since the caller last emptied it.
    """

    def __init__(
        self,
        pool: NodePool,
        arrivals: Callable[[int], ActiveJob],
        submit: Sequence[int],
        order: int = BY_ARRIVAL,
        threshold: int = 0,
    ) -> None:
        """Prepare for jobs that arrive at the times of `submit` (ns, increasing); `arrivals` makes the job of a row.

        `order` is the order of waiting jobs; `threshold` (GPU-ns) is that of the two queues of `BY_QUEUES`, and the first of
        `BY_LEVELS`.
        """
        self.pool = pool
        self.arrivals = arrivals
        self.submit = submit
        self.num_jobs = len(submit)
        self.order = order
        self.threshold = threshold
        self.now = 0
        self.arrived = 0
        self.next_arrival = submit[0] if self.num_jobs else NEVER
        self.interrupt = NEVER
        """An instant at which the loop must stop for the caller."""
        self.timer = NEVER
        """Time of the next round."""
        self.checkpoint_period = NEVER
        """Work between checkpoints of a running job, ns."""
        self.track = NO_JOBS
        """The jobs whose starts, stops and finishes are added to `touched`."""
        self.num_waiting = 0
        self.heap: list[ActiveJob] = []
        self.running: list[ActiveJob] = []
        """Running jobs, in no order; policies may sort it."""
        self.queues: list[list[ActiveJob]] = [[] for _ in range(pool.num_sizes)]
        self.touched: list[ActiveJob] = []
        self.finished = FinishLog()
        self.series: SeriesLog | None = None
        self.spans: SpanLog | None = None

    # The clock

    def next_instant(self) -> int:
        """Go to the next instant with an event, and handle its events.

        Returns what did: a sum of FINISH, ARRIVAL, INTERRUPT and ROUND; 0 when nothing will ever happen again.
        """
        when = self.peek()
        if when == NEVER:
            return 0
        self.now = when
        happened = 0
        while len(self.heap) > 0:
            first = self.heap[0]
            if first.finish > when:
                break
            self._finish(first)
            happened |= FINISH
        while self.next_arrival <= when:
            self._arrive()
            happened |= ARRIVAL
        if self.interrupt <= when:
            self.interrupt = NEVER
            happened |= INTERRUPT
        if self.timer <= when:
            self.timer = NEVER
            happened |= ROUND
        return happened

    def peek(self) -> int:
        """Return the next instant with an event, if no decision comes before; NEVER if there is none."""
        when = min(self.next_arrival, self.interrupt, self.timer)
        if len(self.heap) > 0:
            first = self.heap[0]
            when = min(when, first.finish)
        return when

    def set_round(self, period: int) -> None:
        """Set the next round at the next multiple of so many ns; 0: no rounds."""
        self.timer = (self.now // period + 1) * period if period > 0 else NEVER

    def note(self) -> None:
        """Record the state of the cluster, if it is recorded."""
        if self.series is not None:
            self.series.add(self.now, self.pool, self.num_waiting, len(self.running))

    # Changes of jobs

    def _arrive(self) -> None:
        job = self.arrivals(self.arrived)
        self.arrived += 1
        self.next_arrival = self.submit[self.arrived] if self.arrived < self.num_jobs else NEVER
        self._enqueue(job)

    def _finish(self, job: ActiveJob) -> None:
        job.settle(self.now)
        job.left = 0
        self.finished.add(job)
        self._leave(job)

    def start(self, job: ActiveJob, found: int) -> None:
        """Start a waiting job, already out of its queue, on the `found` nodes that the pool chose last."""
        pool = self.pool
        nodes: list[int] = []
        counts: list[int] = []
        occupied = 0
        for place in range(found):
            nodes.append(pool.chosen[place])
            counts.append(pool.chosen_gpus[place])
            occupied += pool.chosen_gpus[place]
        pool.take_chosen(found)
        self._run(job, nodes, counts, occupied)

    def start_on(self, job: ActiveJob, nodes: list[int], counts: list[int]) -> None:
        """Start a waiting job, already out of its queue, on those nodes with so many GPUs on each."""
        occupied = 0
        for place in range(len(nodes)):
            self.pool.take(nodes[place], counts[place])
            occupied += counts[place]
        self._run(job, nodes, counts, occupied)

    def _run(self, job: ActiveJob, nodes: list[int], counts: list[int], occupied: int) -> None:
        job.settle(self.now)
        job.state = RUNNING
        job.since = self.now
        job.nodes = nodes
        job.counts = counts
        job.occupied = occupied
        job.only_node = nodes[0] if len(nodes) == 1 else NOWHERE
        job.start = self.now
        if job.first_start == NOWHERE:
            job.first_start = self.now
        job.saved = job.left
        job.run_at(1.0)
        job.running_place = len(self.running)
        self.running.append(job)
        self.num_waiting -= 1
        job.finish = job.finish_from(self.now)
        job.heap_place = len(self.heap)
        self.heap.append(job)
        self._rise(job)
        self._touch(job)

    def set_speed(self, job: ActiveJob, speed: float) -> None:
        """Set the speed of the running job from now on: seconds of work done per second."""
        if job.speed == speed:
            return
        job.settle(self.now)
        job.run_at(speed)
        self._reschedule(job)

    def stop(self, job: ActiveJob) -> None:
        """Checkpoint and stop the running job; it waits again, and its next run begins with the overhead."""
        job.settle(self.now)
        job.stops += 1
        job.charge(job.stop_cost)
        self._leave(job)
        self._enqueue(job)

    def charge(self, job: ActiveJob, cost: int) -> None:
        """Let the running job spend so many ns without progress."""
        job.settle(self.now)
        job.charge(cost)
        self._reschedule(job)

    def fail(self, job: ActiveJob) -> None:
        """Kill the running job: work since its last checkpoint is lost, and it waits again."""
        job.settle(self.now)
        job.failures += 1
        lost = (job.saved - job.left) % self.checkpoint_period
        job.left += lost
        job.lost += lost
        job.charge(job.stop_cost)
        self._leave(job)
        self._enqueue(job)

    def _leave(self, job: ActiveJob) -> None:
        """Free the GPUs of a settled running job."""
        if self.spans is not None:
            self.spans.add(job)
        for place in range(len(job.nodes)):
            self.pool.take(job.nodes[place], -job.counts[place])
        job.last_occupied = job.occupied
        job.occupied = 0
        job.only_node = NOWHERE
        job.state = WAITING
        self._out_of_running(job)
        self._out_of_heap(job)
        self._touch(job)

    def _touch(self, job: ActiveJob) -> None:
        if self.track == ALL_JOBS or (self.track == ON_SEVERAL_NODES and len(job.nodes) > 1):
            self.touched.append(job)

    # Queues

    def _enqueue(self, job: ActiveJob) -> None:
        job.key = self.key_of(job)
        queue = self.queues[job.size]
        queue.insert(self.first_behind(queue, job.key, job.index), job)
        self.num_waiting += 1

    def first_behind(self, queue: list[ActiveJob], key: int, index: int) -> int:
        """Return the place of the first job of the queue after (key, index)."""
        low = 0
        high = len(queue)
        if high > 0 and _before(queue[high - 1], key, index):
            return high
        while low < high:
            middle = (low + high) // 2
            if _before(queue[middle], key, index):
                low = middle + 1
            else:
                high = middle
        return low

    def dequeue(self, job: ActiveJob) -> None:
        """Take a waiting job out of its queue, before it starts."""
        queue = self.queues[job.size]
        del queue[self.first_behind(queue, job.key, job.index - 1)]

    def key_of(self, job: ActiveJob) -> int:
        """Return the key of a settled job in the policy's order, lowest first."""
        order = self.order
        if order == BY_ARRIVAL:
            return 0
        if order == BY_GPUS:
            return job.gpus
        if order in (BY_ATTAINED, BY_QUEUES, BY_LEVELS):
            return _service_key(order, job.attained, self.threshold)
        remaining = job.remaining()
        if remaining == NEVER or order == BY_REMAINING:
            return remaining
        if order == BY_DURATION:
            return job.service + remaining
        return remaining * job.gpus if remaining <= NEVER // job.gpus else NEVER

    def reorder(self, order: int, threshold: int) -> None:
        """Change the order of jobs."""
        self.order = order
        self.threshold = threshold
        for job in self.running:
            job.settle(self.now)
            job.key = self.key_of(job)
        for queue in self.queues:
            for job in queue:
                job.key = self.key_of(job)
            queue.sort(key=_order)

    # The list of running jobs and the heap of their finishes

    def _out_of_running(self, job: ActiveJob) -> None:
        last = self.running.pop()
        if last is not job:
            place = job.running_place
            self.running[place] = last
            last.running_place = place

    def _reschedule(self, job: ActiveJob) -> None:
        job.finish = job.finish_from(self.now)
        self._rise(job)
        self._sink(job)

    def _out_of_heap(self, job: ActiveJob) -> None:
        last = self.heap.pop()
        if last is not job:
            place = job.heap_place
            self.heap[place] = last
            last.heap_place = place
            self._rise(last)
            self._sink(last)
        job.finish = NEVER

    def _rise(self, job: ActiveJob) -> None:
        place = job.heap_place
        while place > 0:
            above = self.heap[(place - 1) // 2]
            if above.finish < job.finish or (above.finish == job.finish and above.index < job.index):
                break
            self.heap[place] = above
            above.heap_place = place
            place = (place - 1) // 2
        self.heap[place] = job
        job.heap_place = place

    def _sink(self, job: ActiveJob) -> None:
        place = job.heap_place
        size = len(self.heap)
        while True:
            child = 2 * place + 1
            if child >= size:
                break
            below = self.heap[child]
            if child + 1 < size and _sooner(self.heap[child + 1], below):
                child += 1
                below = self.heap[child]
            if not _sooner(below, job):
                break
            self.heap[place] = below
            below.heap_place = place
            place = child
        self.heap[place] = job
        job.heap_place = place

    # Copies

    def fork(self) -> Loop:
        """Return an independent copy, without the records of series and spans."""
        twin = Loop(self.pool.copy(), self.arrivals, self.submit, self.order, self.threshold)
        twin.now = self.now
        twin.arrived = self.arrived
        twin.next_arrival = self.next_arrival
        twin.interrupt = self.interrupt
        twin.timer = self.timer
        twin.checkpoint_period = self.checkpoint_period
        twin.track = self.track
        twin.num_waiting = self.num_waiting
        twin.running = [job.copy() for job in self.running]
        twin.heap = [twin.running[job.running_place] for job in self.heap]
        twin.queues = [[job.copy() for job in queue] for queue in self.queues]
        twin.touched = _copies(self.touched, [twin.running, *twin.queues]) if self.touched else []
        twin.finished = FinishLog(self.finished)
        return twin


def _copies(jobs: list[ActiveJob], copied: list[list[ActiveJob]]) -> list[ActiveJob]:
    """Return copies of these jobs; finished jobs, which do not change any more, are not copied."""
    by_index = {job.index: job for copies in copied for job in copies}
    return [by_index.get(job.index, job) for job in jobs]


def _order(job: ActiveJob) -> tuple[int, int]:
    return job.key, job.index


def _before(job: ActiveJob, key: int, index: int) -> bool:
    return job.key < key or (job.key == key and job.index <= index)


def _service_key(order: int, attained: int, threshold: int) -> int:
    """Return the key by attained service: itself, its queue, or how often it must be halved until it is below the threshold."""
    if order == BY_ATTAINED:
        return attained
    if order == BY_QUEUES:
        return int(attained >= threshold)
    level = 0
    while attained >= threshold and attained > 0:
        attained >>= 1
        level += 1
    return level


def _sooner(one: ActiveJob, other: ActiveJob) -> bool:
    return one.finish < other.finish or (one.finish == other.finish and one.index < other.index)
