"""One active job, which waits or runs."""

from __future__ import annotations

from simulator.kernel.constants import NEVER, NOWHERE, WAITING


class ActiveJob:
    """State of a job from its arrival to its finish. All times are integer nanoseconds.

    Invariants: `left` is the remaining work, in run time alone at the requested size; `overhead` is the cost of
    stops, which the next run serves before any work; both, `service` and `attained` are those of the instant `since` while
    the job runs. A running job occupies `counts[i]` GPUs of node `nodes[i]`; a waiting one none. While it runs, `left` is
    `left_before` less the progress of `worked` ns at the present speed: it does not depend on how often the job was settled.
    """

    def __init__(  # noqa: PLR0915 - a statement for each field
        self, index: int, submit: int, gpus: int, size: int, work: int, estimate: int, fixed: int, stop_cost: int
    ) -> None:
        """Make the job of that row of the trace, as it arrives."""
        self.index = index
        self.submit = submit
        self.gpus = gpus
        """Requested GPUs."""
        self.size = size
        """Number of its size, see `NodePool.divide`."""
        self.work = work
        """Run time alone at the requested size."""
        self.estimate = estimate
        """The estimate of `work` that policies see; -1: none."""
        self.fixed = fixed
        """1 if the job must not be stopped."""
        self.stop_cost = stop_cost
        """Overhead that each stop adds."""
        self.state = WAITING
        self.left = work
        self.saved = work
        """`left` as of the last checkpoint before this run."""
        self.left_before = work
        """`left` when the present speed began."""
        self.worked = 0
        """Time at the present speed, overhead not included."""
        self.lost = 0
        """Work done and lost in failures."""
        self.overhead = 0
        self.overhead_served = 0
        self.service = 0
        """Time spent running, overhead included."""
        self.attained = 0
        """GPU-ns occupied."""
        self.wait = 0
        """Time spent waiting, until `since` while the job waits."""
        self.since = submit
        self.start = NOWHERE
        """Start of the present or last run."""
        self.first_start = NOWHERE
        self.finish = NEVER
        """The instant at which the work will be done at the present speed."""
        self.speed = 1.0
        self.stops = 0
        self.moves = 0
        self.resizes = 0
        self.failures = 0
        self.occupied = 0
        """GPUs occupied now."""
        self.last_occupied = 0
        """GPUs occupied in the last run."""
        self.key = 0
        """Place in the policy's order."""
        self.nodes: list[int] = []
        self.counts: list[int] = []
        self.only_node = NOWHERE
        """The node of a running job that runs on one; the kernel then reads neither list."""
        self.heap_place = NOWHERE
        self.running_place = NOWHERE

    def settle(self, now: int) -> None:
        """Bring everything that changes with time up to now."""
        passed = now - self.since
        if passed <= 0:
            return
        self.since = now
        if self.state == WAITING:
            self.wait += passed
            return
        self.service += passed
        self.attained = _add(self.attained, passed, self.occupied)
        if self.overhead > 0:
            served = min(passed, self.overhead)
            self.overhead -= served
            self.overhead_served += served
            passed -= served
        self.worked += passed
        if self.speed == 1.0:
            self.left = self.left_before - self.worked
        else:
            self.left = self.left_before - int(self.worked * self.speed + 0.5)
        self.left = max(self.left, 0)

    def run_at(self, speed: float) -> None:
        """Set the speed of a settled job from now on: seconds of work done per second."""
        self.speed = speed
        self.left_before = self.left
        self.worked = 0

    def finish_from(self, now: int) -> int:
        """Return when a job, settled now, will finish at its present speed, to the nearest ns; NEVER beyond 292 years."""
        needed = self.left
        if self.speed != 1.0:
            exact = self.left_before / self.speed - self.worked
            if exact >= 4e18:
                return NEVER
            needed = max(int(exact + 0.5), 0)
        return _sum(now, _sum(self.overhead, needed))

    def charge(self, cost: int) -> None:
        """Add overhead."""
        self.overhead = _sum(self.overhead, cost)

    def remaining(self) -> int:
        """Return the estimated remaining work at `since`; NEVER without an estimate."""
        if self.estimate < 0:
            return NEVER
        left = self.estimate - (self.work - self.left)
        return left if left > 0 else 0

    def before(self, other: ActiveJob) -> bool:
        """Return whether this job comes first in the policy's order; ties go by submission."""
        return self.key < other.key or (self.key == other.key and self.index < other.index)

    def copy(self) -> ActiveJob:
        """Return an independent copy."""
        twin = ActiveJob(
            self.index, self.submit, self.gpus, self.size, self.work, self.estimate, self.fixed, self.stop_cost
        )
        twin.state = self.state
        twin.left = self.left
        twin.saved = self.saved
        twin.left_before = self.left_before
        twin.worked = self.worked
        twin.lost = self.lost
        twin.overhead = self.overhead
        twin.overhead_served = self.overhead_served
        twin.service = self.service
        twin.attained = self.attained
        twin.wait = self.wait
        twin.since = self.since
        twin.start = self.start
        twin.first_start = self.first_start
        twin.finish = self.finish
        twin.speed = self.speed
        twin.stops = self.stops
        twin.moves = self.moves
        twin.resizes = self.resizes
        twin.failures = self.failures
        twin.occupied = self.occupied
        twin.last_occupied = self.last_occupied
        twin.key = self.key
        twin.nodes = self.nodes
        twin.counts = self.counts
        twin.only_node = self.only_node
        twin.heap_place = self.heap_place
        twin.running_place = self.running_place
        return twin


def _sum(time: int, more: int) -> int:
    """Return the sum of two times; NEVER if it does not fit into 63 bits (292 years)."""
    return time + more if more <= NEVER - time else NEVER


def _add(attained: int, passed: int, occupied: int) -> int:
    """Return GPU-ns increased by time x GPUs, at most 63 bits (290 years of a GPU)."""
    if occupied > 0 and passed > (NEVER - attained) // occupied:
        return NEVER
    return attained + passed * occupied
