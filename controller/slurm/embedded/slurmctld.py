"""The emulated slurmctld: its records, its clock, and the life of a job.

Nothing runs in the background: events lie in a heap, and whoever looks at the cluster first lets it catch up with the clock,
each event at its own time. So a real clock, a virtual one and a clock that jumps give the same history.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from controller.clock import Clock, wait_for_event
from controller.slurm.client import JobKey, NodeShare, Phase, SlurmNode, SlurmPartition, SlurmReservation
from controller.slurm.embedded.description import ClusterDescription, expand_hosts
from controller.slurm.embedded.job import LAUNCH_FAILED_HELD, REQUEUED_HELD, Job, Requeue
from controller.slurm.embedded.node import Node
from controller.slurm.embedded.plugin import Wake, wake_nobody
from controller.slurm.embedded.scheduler import Scheduler

_FIRST_PRIORITY = 4_294_901_759
_FATAL_SIGNALS = frozenset({"HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "ALRM", "TERM", "XCPU"})
_IDLE_WAIT_S = 3600.0


@dataclass(slots=True)
class Partition:
    """One partition's record."""

    name: str
    nodes: tuple[str, ...]
    max_time_s: float | None
    up: bool = True

    def view(self) -> SlurmPartition:
        """As Slurm tells of it."""
        return SlurmPartition(self.name, frozenset(self.nodes), self.up, self.max_time_s)


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation's record; with `maintenance` its nodes are in state MAINT while it is active."""

    view: SlurmReservation
    maintenance: bool = False

    def active(self, now_s: float) -> bool:
        """Whether it has begun and not ended."""
        return self.view.start_time_s <= now_s < self.view.end_time_s


class Slurmctld:
    """Records and life cycle. Invariant: a node's shares are exactly those of the jobs that hold it, and fit into it."""

    def __init__(self, description: ClusterDescription, clock: Clock, wake: Wake = wake_nobody) -> None:
        self.description = description
        self.delays = description.delays
        self.now_s = clock.now()
        self.partitions = {
            partition.name: Partition(partition.name, description.members(partition), partition.max_time_s)
            for partition in description.partitions
        }
        self.nodes = _make_nodes(description, self.partitions.values())
        self.reservations: dict[str, Reservation] = {}
        self.jobs: dict[str, Job] = {}
        self._holders: dict[str, Job] = {}
        self.outcomes: dict[str, str] = {}
        """Job id → end state of every job that ended, forgotten ones too."""
        self.next_id = 1
        self.down_until_s = 0.0
        """slurmctld is away until then."""
        self.unregistered_until_s = 0.0
        """After a restart the nodes are UNKNOWN until then."""
        self._clock = clock
        self._wake = wake
        self._scheduler = Scheduler(self)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._priority = _FIRST_PRIORITY
        self._pass_planned = False
        self._backfill_planned = False
        self._changed = asyncio.Event()

    # -- time ---------------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Let everything happen that was due by now, each thing at its own time."""
        until_s = self._clock.now()
        while self._events and self._events[0][0] <= until_s:
            time_s, _, action = heapq.heappop(self._events)
            self.now_s = max(self.now_s, time_s)
            action()
        self.now_s = max(self.now_s, until_s)

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Do something at that time."""
        heapq.heappush(self._events, (time_s, next(self._numbers), action))
        self._changed.set()

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something so much later."""
        self.at(self.now_s + delay_s, action)

    async def keep_up(self) -> None:
        """Catch up at every event, for ever: needed only where somebody waits to be woken by the cluster."""
        while True:
            self._changed.clear()
            self.catch_up()
            next_s = self._events[0][0] if self._events else self.now_s + _IDLE_WAIT_S
            await wait_for_event(self._clock, self._changed, next_s - self._clock.now())

    # -- queue --------------------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        """A number greater than every one before."""
        return next(self._numbers)

    def next_priority(self) -> int:
        """Priority behind everybody in the queue (priority/basic)."""
        self._priority -= 1
        return self._priority + 1

    def queue(self) -> list[Job]:
        """Pending jobs that are not held, first come first."""
        waiting = [job for job in self.jobs.values() if job.phase is Phase.PENDING and not job.held]
        return sorted(waiting, key=lambda job: (-job.priority, job.sequence))

    def holders(self) -> list[Job]:
        """Jobs that hold nodes, in the order of their starts."""
        return list(self._holders.values())

    def kick(self) -> None:
        """Something changed: a scheduling pass follows."""
        if not self._pass_planned:
            self._pass_planned = True
            self.after(self.delays.schedule_s, self._main_pass)

    def kick_at(self, time_s: float) -> None:
        """Something will change then."""
        self.at(time_s, self.kick)

    def _main_pass(self) -> None:
        self._pass_planned = False
        if self.down_until_s > self.now_s:  # the restart has planned a pass
            return
        if self._scheduler.main_pass() and not self._backfill_planned:
            self._backfill_planned = True
            self.after(self.delays.backfill_s, self._backfill_pass)

    def _backfill_pass(self) -> None:
        """Once after every change that leaves somebody waiting: while nothing changes, time alone makes no room."""
        self._backfill_planned = False
        if self.down_until_s <= self.now_s:
            self._scheduler.backfill_pass()

    # -- a job's life -------------------------------------------------------------------------------------------------

    def start(self, job: Job, shares: tuple[NodeShare, ...], partition: str) -> None:
        """Give the job its nodes and launch it."""
        for share in shares:
            self.nodes[share.node].take(job.job_id, share)
        self._holders[job.job_id] = job
        job.partition, job.allocated = partition, shares
        job.phase, job.state, job.reason = Phase.CONFIGURING, "CONFIGURING", "None"
        job.start_time_s, job.end_time_s = self.now_s, None
        job.run += 1
        job.starts.append((self.now_s, shares))
        run = job.run
        self.after(self.delays.launch_s, lambda: self._launched(job, run))

    def _launched(self, job: Job, run: int) -> None:
        if job.run != run or job.phase is not Phase.CONFIGURING:
            return
        if job.submission.launch_fails:
            job.priority, job.hold_reason = 0, LAUNCH_FAILED_HELD
            job.after, job.restarts = Requeue.HELD, job.restarts + 1
            self._tasks_ended(job, run, "NODE_FAIL")
            return
        job.phase, job.state = Phase.RUNNING, "RUNNING"
        self._wake(f"start {job.job_id}")
        limit_s = float("inf") if job.time_limit_s is None else job.time_limit_s - self.delays.launch_s
        self._run_for(job, job.submission.duration_s, limit_s)
        self.kick()  # "after" dependencies

    def _run_for(self, job: Job, left_s: float, limit_left_s: float) -> None:
        """Run on, until the work is done or the time limit is reached."""
        job.done_at_s, job.limit_at_s = self.now_s + left_s, self.now_s + limit_left_s
        run = job.run
        self.after(max(min(left_s, limit_left_s), 0.0), lambda: self._run_out(job, run))

    def _run_out(self, job: Job, run: int) -> None:
        due_s = min(job.done_at_s, job.limit_at_s)
        if job.run != run or job.phase is not Phase.RUNNING or self.now_s < due_s:
            return
        if job.limit_at_s < job.done_at_s:
            self.terminate(job, "TIMEOUT")
        else:
            self._tasks_ended(job, run, "FAILED" if job.submission.exit_code else "COMPLETED")

    def suspend(self, job: Job) -> None:
        """The job stands still, and so does its time limit; it keeps its GPUs."""
        job.phase, job.state = Phase.SUSPENDED, "SUSPENDED"
        job.suspended_at_s = self.now_s

    def resume(self, job: Job) -> None:
        """The job goes on where it stood."""
        job.phase, job.state = Phase.RUNNING, "RUNNING"
        self._run_for(job, job.done_at_s - job.suspended_at_s, job.limit_at_s - job.suspended_at_s)

    def terminate(self, job: Job, verdict: str, after: Requeue = Requeue.NO) -> None:
        """TERM, then KILL after KillWait for jobs that do not heed it."""
        run, job.after = job.run, after
        job.phase, job.state = Phase.COMPLETING, "COMPLETING"
        job.end_time_s = self.now_s
        wait_s = self.delays.kill_wait_s if "TERM" in job.submission.traps else 0.0
        self.after(wait_s + self.delays.exit_s, lambda: self._cleaned_up(job, run, verdict))

    def _tasks_ended(self, job: Job, run: int, verdict: str) -> None:
        job.phase, job.state = Phase.COMPLETING, "COMPLETING"
        job.end_time_s = self.now_s
        self.after(self.delays.exit_s, lambda: self._cleaned_up(job, run, verdict))

    def _cleaned_up(self, job: Job, run: int, verdict: str) -> None:
        if job.run == run and job.phase is Phase.COMPLETING:
            self.leave_nodes(job, verdict)

    def leave_nodes(self, job: Job, verdict: str) -> None:
        """The job's nodes are free; it ends, or goes back into the queue."""
        self._free_nodes(job)
        self._wake(f"end {job.job_id}")
        if job.after is Requeue.NO:
            self.end(job, verdict)
        else:
            self.back_into_queue(job)
        self.kick()

    def _free_nodes(self, job: Job) -> None:
        for share in job.allocated:
            self.nodes[share.node].give_back(job.job_id)
        self._holders.pop(job.job_id, None)

    def end(self, job: Job, verdict: str) -> None:
        """The job is over; slurmctld forgets it after MinJobAge."""
        job.phase, job.state, job.allocated = Phase.ENDED, verdict, ()
        job.end_time_s = self.now_s if job.end_time_s is None else job.end_time_s
        self.outcomes[job.job_id] = verdict
        ended_s = self.now_s
        self.after(self.delays.min_job_age_s, lambda: self._forget(job, ended_s))
        self.kick()

    def _forget(self, job: Job, ended_s: float) -> None:
        is_same = self.jobs.get(job.job_id) is job and job.phase is Phase.ENDED
        if is_same and self.now_s >= ended_s + self.delays.min_job_age_s and job.job_id in self.outcomes:
            del self.jobs[job.job_id]

    def back_into_queue(self, job: Job) -> None:
        """Pending again, under its old request and with a begin time in the future."""
        held = job.after is Requeue.HELD
        self.outcomes.pop(job.job_id, None)
        job.run += 1
        begin_s = float(int(self.now_s)) + self.delays.requeue_s + 1.0
        job.reset_for_requeue(self.now_s, begin_s, self.next_number())
        if held:
            job.priority = 0
            job.hold_reason = job.hold_reason or REQUEUED_HELD
            job.reason = job.hold_reason
        else:
            job.priority, job.hold_reason = self.next_priority(), ""
            job.reason = "BeginTime"
        self.kick_at(begin_s)

    def deliver(self, job: Job, signal: str) -> None:
        """A signal reaches batch shell and tasks; it ends a running job that does not expect it."""
        job.signals.append(signal)
        survives = signal in job.submission.traps and signal != "KILL"
        if signal in _FATAL_SIGNALS and not survives and job.phase is Phase.RUNNING:
            self._tasks_ended(job, job.run, "FAILED")

    def fail_node(self, node: Node, state: str, reason: str) -> None:
        """The node is gone: its jobs are requeued, not held, as they were; those that may not be requeued have failed."""
        node.down, node.reason = state, reason
        for job in [self.jobs[job_id] for job_id in node.shares]:
            if job.after is Requeue.NO and job.requeue and job.submission.batch:
                job.after, job.restarts = Requeue.HELD if job.held else Requeue.FREE, job.restarts + 1
            job.end_time_s = self.now_s
            self.leave_nodes(job, "NODE_FAIL")
        self._wake("node")
        self.kick()

    def crash(self, lose_newest: int, away_s: float | None) -> list[JobKey]:
        """Away for a while; the newest jobs are as if they had never been, and their ids are free again.

        Processes of a lost job are killed when its nodes register again, and until they do no node starts anything.
        """
        self.down_until_s = self.now_s + (self.delays.restart_s if away_s is None else away_s)
        self.unregistered_until_s = self.down_until_s + self.delays.register_s
        lost = sorted(self.jobs.values(), key=lambda job: _number(job.job_id))[len(self.jobs) - lose_newest :]
        for job in lost:
            self._free_nodes(job)
            job.run += 1
            del self.jobs[job.job_id]
        self.next_id = min([self.next_id, *(_number(job.job_id)[0] for job in lost)])
        self.kick_at(self.unregistered_until_s)
        return [JobKey(job.job_id, job.submit_time_s) for job in lost]

    def may_start_jobs(self, node: Node) -> bool:
        """Whether the node's state lets it start jobs; reservations are another matter."""
        return node.available and self.unregistered_until_s <= self.now_s

    def node_view(self, node: Node) -> SlurmNode:
        """As Slurm tells of it."""
        if self.unregistered_until_s > self.now_s and not node.down:
            return replace(node.view(False), state="UNKNOWN", available=False)
        return node.view(self.in_maintenance(node.name))

    def in_maintenance(self, node: str) -> bool:
        """Whether a maintenance reservation has the node now."""
        return any(r.maintenance and r.active(self.now_s) and node in r.view.nodes for r in self.reservations.values())


def _number(job_id: str) -> tuple[int, int]:
    first, _, task = job_id.partition("_")
    return int(first), int(task or 0)


def _make_nodes(description: ClusterDescription, partitions: Iterable[Partition]) -> dict[str, Node]:
    members = [(partition.name, frozenset(partition.nodes)) for partition in partitions]
    return {
        name: Node(
            name=name,
            gpus=kind.gpus,
            gpu_type=kind.gpu_type,
            cpus=kind.cpus,
            memory_mib=kind.memory_mib,
            features=frozenset(kind.features),
            partitions=frozenset(partition for partition, nodes in members if name in nodes),
        )
        for kind in description.nodes
        for name in expand_hosts(kind.names)
    }
