"""The emulated slurmctld: its clock, and the life of a job.

Nothing runs in the background: events are in a heap, and every call on the cluster first lets it catch up with the clock,
each event at its own time. So a real clock, a virtual one and a clock that jumps give the same history. The simulator's
engine (`progress`) gives the time at which the work of a running job is done. That is no event of the heap, because it
changes with every job that starts or stops on the same links.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from controller.base.clock import Clock, wait_for_event
from controller.slurm.embedded.ctld.job import LAUNCH_FAILED_HELD, REQUEUED_HELD, Job, Requeue
from controller.slurm.embedded.ctld.node import Node
from controller.slurm.embedded.ctld.plugin import Wake, wake_none
from controller.slurm.embedded.ctld.progress import JobProgress
from controller.slurm.embedded.ctld.records import Records
from controller.slurm.embedded.ctld.scheduler import Scheduler
from controller.slurm.embedded.ctld.slowdown import slowdown_models
from controller.slurm.embedded.description import ClusterDescription
from controller.slurm.model.job import JobKey, NodeShare, Phase

_FATAL_SIGNALS = frozenset({"HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "ALRM", "TERM", "XCPU"})
_IDLE_WAIT_S = 3600.0
REQUEUED = "REQUEUED"
RESUME_TIMEOUT_S = 600.0
"""ResumeTimeout: time after which a node that was to boot, and has not registered, is DOWN."""

Accounting = Callable[[str, Job], None]
"""Receives each start ("START") and each end (the job's end state, or "REQUEUED") of a run, as Slurm's accounting does."""


def _account_nothing(what: str, job: Job) -> None:
    """Accounting of a cluster that keeps none."""


class Slurmctld(Records):
    """The records, and the life cycle of jobs. Invariant: `_progress` has exactly the jobs that run or are suspended."""

    def __init__(
        self,
        description: ClusterDescription,
        clock: Clock,
        wake: Wake = wake_none,
        accounting: Accounting | None = None,
    ) -> None:
        """Start without jobs; `accounting` is called for each start and end of a job. Raises ConfigurationError."""
        super().__init__(description, clock.now())
        self.delays = description.delays
        self._clock = clock
        self._wake = wake
        self._scheduler = Scheduler(self, self.start)
        gpus = {name: node.gpus for name, node in self.nodes.items() if node.gpus}
        self._progress = JobProgress(gpus, slowdown_models(description), self.now_s)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._catches_up = False
        self._pass_planned = False
        self._backfill_planned = False
        self._changed = asyncio.Event()
        self._accounting: Accounting = accounting or _account_nothing

    # -- time ---------------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Carry out all events that are due, each at its own time; at the same time, jobs whose work is done come first.

        No effect within an event, as where `accounting` asks for a job: each event is carried out whole before the next one.
        """
        if self._catches_up:
            return
        self._catches_up = True
        try:
            until_s = self._clock.now()
            while (due_s := self._due_s()) <= until_s:
                self.now_s = max(self.now_s, due_s)
                if self._progress.next_done_s() <= due_s:
                    for job_id in self._progress.take_done():
                        self._work_done(self.jobs[job_id])
                else:
                    heapq.heappop(self._events)[2]()
            self.now_s = max(self.now_s, until_s)
        finally:
            self._catches_up = False

    def _due_s(self) -> float:
        """Return the time of the next event."""
        return min(self._events[0][0] if self._events else float("inf"), self._progress.next_done_s())

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Plan an action at that time."""
        heapq.heappush(self._events, (time_s, self.next_number(), action))
        self._changed.set()

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Plan an action after so many seconds."""
        self.at(self.now_s + delay_s, action)

    async def keep_up(self) -> None:
        """Catch up at every event, for ever: needed only where a controller waits for the cluster to wake it."""
        while True:
            self._changed.clear()
            self.catch_up()
            next_s = min(self._due_s(), self.now_s + _IDLE_WAIT_S)
            await wait_for_event(self._clock, self._changed, next_s - self._clock.now())

    # -- queue --------------------------------------------------------------------------------------------------------

    def kick(self) -> None:
        """Plan a scheduling pass, because something has changed."""
        if not self._pass_planned:
            self._pass_planned = True
            self.after(self.delays.schedule_s, self._main_pass)

    def kick_at(self, time_s: float) -> None:
        """Plan a scheduling pass at that time, because something will change then."""
        self.at(time_s, self.kick)

    def _main_pass(self) -> None:
        self._pass_planned = False
        if self.down_until_s > self.now_s:  # the restart has planned a pass
            return
        if self._scheduler.main_pass() and not self._backfill_planned:
            self._backfill_planned = True
            self.after(self.delays.backfill_s, self._backfill_pass)

    def _backfill_pass(self) -> None:
        """Start jobs by backfill, once after each change that leaves jobs waiting: without a change no nodes become free."""
        self._backfill_planned = False
        if self.down_until_s <= self.now_s:
            self._scheduler.backfill_pass()

    # -- a job's life -------------------------------------------------------------------------------------------------

    def start(self, job: Job, shares: tuple[NodeShare, ...], partition: str) -> None:
        """Give the job its nodes and launch it."""
        if job.raw_id is None:  # a task of an array is a record of its own from now on
            job.raw_id = self.issue_ids()
        for share in shares:
            self.nodes[share.node].take(job.job_id, share)
        self._occupants[job.job_id] = job
        job.partition, job.allocated = partition, shares
        job.phase, job.state, job.reason = Phase.CONFIGURING, "CONFIGURING", "None"
        job.start_time_s, job.end_time_s = self.now_s, None
        job.run += 1
        job.starts.append((self.now_s, shares))
        self._accounting("START", job)
        run = job.run
        awake_s = max((self._boot(self.nodes[share.node]) for share in shares), default=self.now_s)
        if awake_s > self.now_s:
            self.at(awake_s + self.delays.launch_s, lambda: self._launched(job, run, begins_s=awake_s))
        else:
            self.after(self.delays.launch_s, lambda: self._launched(job, run, begins_s=None))

    def _boot(self, node: Node) -> float:
        """Boot the node if it sleeps. Returns the time at which it is awake."""
        if node.power == "POWERED_DOWN":
            node.power, node.awake_at_s = "POWERING_UP", self.now_s + node.boot_s
            self.at(min(node.awake_at_s, self.now_s + RESUME_TIMEOUT_S), lambda: self._booted(node))
        return node.awake_at_s

    def _booted(self, node: Node) -> None:
        """End the node's boot: it has registered, or has not in time."""
        if node.awake_at_s <= self.now_s:
            node.power = ""
            self._wake("node")
            self.kick()
        else:
            node.power, node.awake_at_s = "POWERED_DOWN", 0.0
            self.fail_node(node, "DOWN", "ResumeTimeout")

    def _launched(self, job: Job, run: int, begins_s: float | None) -> None:
        """Run the batch script. `begins_s`: start time of the run if its nodes have booted first, which does not count."""
        if job.run != run or job.phase is not Phase.CONFIGURING:
            return
        if job.submission.launch_fails:
            job.priority, job.hold_reason = 0, LAUNCH_FAILED_HELD
            job.after, job.restarts = Requeue.HELD, job.restarts + 1
            self._tasks_ended(job, run, "NODE_FAIL")
            return
        job.phase, job.state = Phase.RUNNING, "RUNNING"
        job.start_time_s = job.start_time_s if begins_s is None else begins_s
        self._wake(f"start {job.job_id}")
        self._progress.begin(job, self.now_s)
        self._changed.set()
        if job.time_limit_s is not None:
            self._limit(job, job.time_limit_s - self.delays.launch_s)
        self.kick()  # "after" dependencies

    def _limit(self, job: Job, left_s: float) -> None:
        """Set the time until the present run reaches its time limit."""
        job.limit_at_s, run = self.now_s + left_s, job.run
        self.after(max(left_s, 0.0), lambda: self._limit_reached(job, run))

    def _limit_reached(self, job: Job, run: int) -> None:
        if job.run == run and job.phase is Phase.RUNNING and self.now_s >= job.limit_at_s:
            self.terminate(job, "TIMEOUT")

    def _work_done(self, job: Job) -> None:
        self._tasks_ended(job, job.run, "FAILED" if job.submission.exit_code else "COMPLETED")

    def suspend(self, job: Job) -> None:
        """Suspend the job and its time limit; it keeps its GPUs."""
        job.phase, job.state = Phase.SUSPENDED, "SUSPENDED"
        job.suspended_at_s = self.now_s
        self._progress.pause(job, self.now_s)
        self._changed.set()

    def resume(self, job: Job) -> None:
        """Continue the job where it was paused."""
        job.phase, job.state = Phase.RUNNING, "RUNNING"
        self._progress.resume(job, self.now_s)
        self._changed.set()
        if job.time_limit_s is not None:
            self._limit(job, job.limit_at_s - job.suspended_at_s)

    def terminate(self, job: Job, verdict: str, after: Requeue = Requeue.NO) -> None:
        """End the tasks with TERM, and after KillWait with KILL if the job traps TERM. The job makes no more progress
        meanwhile."""
        self._progress.end(job, self.now_s)
        run, job.after = job.run, after
        job.phase, job.state = Phase.COMPLETING, "COMPLETING"
        job.end_time_s = self.now_s
        wait_s = self.delays.kill_wait_s if "TERM" in job.submission.traps else 0.0
        self.after(wait_s + self.delays.exit_s, lambda: self._cleaned_up(job, run, verdict))

    def _tasks_ended(self, job: Job, run: int, verdict: str) -> None:
        self._progress.end(job, self.now_s)
        job.phase, job.state = Phase.COMPLETING, "COMPLETING"
        job.end_time_s = self.now_s
        self.after(self.delays.exit_s, lambda: self._cleaned_up(job, run, verdict))

    def _cleaned_up(self, job: Job, run: int, verdict: str) -> None:
        if job.run == run and job.phase is Phase.COMPLETING:
            self.leave_nodes(job, verdict)

    def leave_nodes(self, job: Job, verdict: str) -> None:
        """Free the job's nodes; the job ends, or goes back into the queue."""
        self._free_nodes(job)
        self._wake(f"end {job.job_id}")
        if job.after is Requeue.NO:
            self.end(
                job, "CANCELLED" if verdict == REQUEUED else verdict
            )  # its user cancelled it on the way to the queue
        else:
            self.back_into_queue(job)
        self.kick()

    def _free_nodes(self, job: Job) -> None:
        self._progress.end(job, self.now_s)
        for share in job.allocated:
            self.nodes[share.node].give_back(job.job_id)
        self._occupants.pop(job.job_id, None)

    def end(self, job: Job, verdict: str) -> None:
        """End the job; slurmctld forgets it after MinJobAge."""
        job.phase, job.state, job.allocated = Phase.ENDED, verdict, ()
        job.end_time_s = self.now_s if job.end_time_s is None else job.end_time_s
        self.outcomes[job.job_id] = verdict
        self._accounting(verdict, job)
        ended_s = self.now_s
        self.after(self.delays.min_job_age_s, lambda: self._forget(job, ended_s))
        self.kick()

    def _forget(self, job: Job, ended_s: float) -> None:
        is_same = self.jobs.get(job.job_id) is job and job.phase is Phase.ENDED
        if is_same and self.now_s >= ended_s + self.delays.min_job_age_s and job.job_id in self.outcomes:
            del self.jobs[job.job_id]

    def back_into_queue(self, job: Job) -> None:
        """Put the job back into the queue, with its old request and a begin time in the future."""
        held = job.after is Requeue.HELD or job.held  # it may have been held while it was ending
        self._accounting(REQUEUED, job)
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
        """Deliver a signal to batch shell and tasks; it ends a running job that does not trap it."""
        job.signals.append(signal)
        survives = signal in job.submission.traps and signal != "KILL"
        if signal in _FATAL_SIGNALS and not survives and job.phase is Phase.RUNNING:
            self._tasks_ended(job, job.run, "FAILED")

    def fail_node(self, node: Node, state: str, reason: str) -> None:
        """Take the node down. Its jobs are requeued, not held unless they were; those that may not be requeued fail.

        A job that is completing ends as it would have: a cancelled one is not requeued.
        """
        node.down, node.reason = state, reason
        for job in [self.jobs[job_id] for job_id in node.shares]:
            if job.phase is Phase.COMPLETING:
                continue
            if job.after is Requeue.NO and job.requeue and job.submission.batch:
                job.after, job.restarts = Requeue.HELD if job.held else Requeue.FREE, job.restarts + 1
            job.end_time_s = self.now_s
            self.leave_nodes(job, "NODE_FAIL")
        self._wake("node")
        self.kick()

    def crash(self, lose_newest: int, away_s: float | None) -> list[JobKey]:
        """Take slurmctld away for a while; the newest jobs are lost without a trace, and their ids are free again.

        Processes of a lost job are killed when its nodes register again, and until they do no node starts anything.
        """
        self.down_until_s = self.now_s + (self.delays.restart_s if away_s is None else away_s)
        self.unregistered_until_s = self.down_until_s + self.delays.register_s
        lost = sorted(self.jobs.values(), key=lambda job: _number(job.job_id))[len(self.jobs) - lose_newest :]
        # No task of an array stays behind: its number is issued again.
        first = min((_number(job.job_id)[0] for job in lost), default=self.next_id)
        lost = [job for job in self.jobs.values() if _number(job.job_id)[0] >= first] if lost else lost
        for job in lost:
            self._free_nodes(job)
            job.run += 1
            del self.jobs[job.job_id]
        self.next_id = min([self.next_id, *(_number(job.job_id)[0] for job in lost)])
        for name in [name for name in self.outcomes if _number(name)[0] >= self.next_id]:
            del self.outcomes[name]  # the next job with this id is another job
        self.kept_ids = frozenset(job.raw_id for job in self.jobs.values() if job.raw_id is not None)
        self.kick_at(self.unregistered_until_s)
        return [JobKey(job.job_id, job.submit_time_s) for job in lost]


def _number(job_id: str) -> tuple[int, int]:
    first, _, task = job_id.partition("_")
    return int(first), int(task or 0)
