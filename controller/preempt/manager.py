"""Preemptions under way: begins them, follows them by agents' reports and Slurm's snapshots, and gives the cycle orders to stop.

Nothing here changes anything in Slurm: the cycle does it, through its journaled verbs. Every change of a stage is in the journal
before Headway acts on it, so that a controller that was killed continues each preemption. Deadlines are on a clock
that is never set; only across a restart they are on the wall clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from controller.base.apart import apart
from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.base.errors import JournalError, PreemptionRefusedError
from controller.base.events import EventLog
from controller.base.listener_failures import ListenerFailures
from controller.observe.role import in_scope
from controller.preempt.attempts.attempt import PreemptionAttempt
from controller.preempt.attempts.called_off import CalledOff
from controller.preempt.attempts.open_preemptions import Listener, OpenPreemptions
from controller.preempt.attempts.saving import Saving
from controller.preempt.attempts.stop_orders import StopOrders
from controller.preempt.preemptibility import Preemptibility, preemptibility
from controller.preempt.reports.job_agents import Agents, JobAgents
from controller.preempt.reports.job_reports import NodeReport, newest_step
from controller.preempt.reports.silent_nodes import kept_off
from controller.preempt.text import end_text, forced_text
from controller.profiles.windows import RunKey
from controller.slurm.client import Failure
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.journal import Journal
from controller.state.ledger import Ledger
from controller.state.preemption import (
    Cause,
    EndReason,
    Preemption,
    PreemptionMethod,
    RelocationConstraint,
    Stage,
    after_snapshot,
    moved,
)
from controller.state.preemption_table import PreemptedJob
from protos.headway.v1 import agent_pb2

log = structlog.get_logger(__name__)

UNWATCHED_S = 60.0
"""Time after which a job that runs again is no longer watched, where no agent on its nodes could report its steps."""
_TICK_S = 0.25
_PLACED_SOON_S = 15.0
"""Time after a stop in which Slurm is read as often as possible, because the job's processes end and it can be placed again."""
_ANYWHERE = RelocationConstraint()


class PreemptionManager:
    """The preemptions of one controller. Invariant: a preemption begins only for a preemptible job, or by force."""

    def __init__(
        self,
        settings: Callable[[], ControllerSettings],
        journal: Journal,
        ledger: Ledger,
        events: EventLog,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
        failures: ListenerFailures | None = None,
    ) -> None:
        """Continue the preemptions that are open in the journal, from the first `update` on. `failures` gets those of listeners."""
        self._settings = settings
        self._table = journal.preemptions
        self._clock = clock
        self._monotonic = monotonic
        self.wanted = asyncio.Event()
        """Set while `orders` has something for the cycle."""
        self.called_off = CalledOff(journal.preemptions, clock)
        self._agents = JobAgents()
        self._open = OpenPreemptions(journal, ledger, events, clock, monotonic, failures or ListenerFailures(events))
        self._saving = Saving(settings, self._open, self._agents, self.called_off, clock, monotonic, self.wanted)
        self._orders = StopOrders(self._open, clock, monotonic, self.wanted)

    def serve(self, agents: Agents | None) -> None:
        """Use this server of agents from now on; None: no agents are served."""
        self._agents.serve(agents)
        if self._agents.commands is not None:
            self.called_off.repeat_go_on(self._agents.commands, self._settings().preemption_still_s, self._monotonic())

    # --- queries and requests

    @property
    def listeners(self) -> list[Listener]:
        """Functions that are called after every change of a stage."""
        return self._open.listeners

    @property
    def open(self) -> Mapping[int, Preemption]:
        """Preemptions that have not ended, by Slurm's own number of the job; also STARTED ones without a reported step.

        The exporter's thread calls it too.
        """
        return self._open.rows

    def preemptibility(self, job: SlurmJob) -> Preemptibility:
        """Return whether this job may be preempted now, and by which method. Cheap enough for every job in every cycle."""
        if not in_scope(job, frozenset(self._settings().partitions)):
            return Preemptibility(PreemptionMethod.NONE, "is not among the jobs that Headway schedules", final=True)
        attempt = self._open.of_job(job.raw_id)
        row = None if attempt is None else attempt.row
        watching = self._agents.reports.watching
        return preemptibility(job, self._agents.of_run(job), self._agents.connected(job), row, watching)

    def steps_done(self, job: SlurmJob) -> int | None:
        """Return the optimizer steps that the job has done, all runs together; None: not known.

        A job that waits, or has made no step since it was stopped, has done those of its checkpoint.
        """
        reports = [report for report in self._agents.of_run(job).values() if report.steps is not None]
        if reports:
            return min(report.steps_done for report in reports)
        attempt = None if job.raw_id is None else self._open.of_job(job.raw_id)
        if attempt is not None and attempt.row.step is not None:
            return attempt.row.step
        return 0 if job.phase is Phase.PENDING and job.restarts == 0 else None

    def begin(
        self,
        job: SlurmJob,
        cause: Cause,
        why: str,
        constraint: RelocationConstraint = _ANYWHERE,
        *,
        force: bool = False,
        within_s: float | None = None,
    ) -> Preemption:
        """Request the job to save, so that it can be stopped. Does not wait. `why` is a sentence for users, without a full stop.

        `within_s` None: preemption_within_s of the settings. Raises PreemptionRefusedError with the reason, and JournalError.
        """
        found = self.preemptibility(job)
        if found.final or (found.why_not and not force) or job.raw_id is None:
            raise PreemptionRefusedError(job.key.job_id, found.why_not)
        former = self._open.of_job(job.raw_id)
        if former is not None:
            problem = "preempted again before a step was reported"
            self._open.change(former, replace(former.row, ended_s=self._clock.now(), problem=problem))
        cannot = found.way is PreemptionMethod.NONE
        row = _row_of(
            job,
            cause=cause,
            why=why,
            way=found.way,
            force=force,
            constraint=replace(constraint, user=job.user),
            within_s=self._settings().preemption_within_s if within_s is None else within_s,
            asked_s=self._clock.now(),
            problem=forced_text(found, newest_step(self._agents.of_run(job))) if cannot else "",
        )
        attempt = self._open.add(row, self._monotonic() + row.within_s)
        self.tick()
        return attempt.row

    def call_off(self, number: int, reason: EndReason) -> bool:
        """Let a job that is to be stopped train on, if nothing has been done yet to stop it. Returns whether it trains on.

        Raises JournalError.
        """
        attempt = next((one for one in self._open.all if one.row.number == number), None)
        if attempt is None or not attempt.may_be_called_off:
            return False
        self._saving.call_off(attempt, reason, end_text(reason))
        return True

    def recent(self, job: SlurmJob, limit: int = 20) -> list[Preemption]:
        """Return the newest preemptions of that job, open ones too, newest first."""
        return [] if job.raw_id is None else self._table.of_job(job.raw_id, limit)

    def since(self, time_s: float) -> list[Preemption]:
        """Return all preemptions that were begun since then (Unix time), oldest first: for budgets."""
        return self._table.since(time_s)

    def newest(self, limit: int) -> list[Preemption]:
        """Return the newest preemptions of all jobs, newest first."""
        return self._table.newest(limit)

    def jobs(self, before: int, limit: int) -> list[PreemptedJob]:
        """Return the jobs of the preemptions below a number, newest first."""
        return self._table.jobs(before, limit)

    def numbered(self, numbers: Sequence[int]) -> list[Preemption]:
        """Return the preemptions of these numbers, newest first."""
        return self._table.numbered(numbers)

    def find(self, number: int) -> Preemption | None:
        """Return the preemption with that number."""
        return self._table.find(number)

    # --- agents

    def on_report(self, node: str, report: agent_pb2.AgentReport) -> None:
        """Process a report or an answer of an agent. Does not raise for a journal that fails."""
        if report.WhichOneof("kind") == "answer":
            commands = self._agents.commands
            if commands is not None and commands.on_answer(node, report.answer):
                self.tick()
            return
        found = self._agents.reports.take(node, report)
        if found is not None:
            self._note_step(*found)

    def on_connected(self, node: str) -> None:
        """Repeat the commands that the agent of a new stream may have missed."""
        self._saving.on_connected(node)

    def _note_step(self, run: RunKey, report: NodeReport) -> None:
        """Note the first step of a job that runs again. If it cannot be recorded, the next report repeats it."""
        attempt = self._open.of_job(run.job_id)
        if attempt is None or run.restart <= attempt.row.restarts or report.stepped_ago_s is None:
            return
        row, now_s = attempt.row, self._clock.now()
        started_s = row.started_s if row.started_s is not None else now_s
        first_s = min(max(now_s - report.stepped_ago_s, started_s), now_s)
        lost = ""
        if row.step is not None and (report.restored_step or 0) < row.step:
            began = "from the start" if report.restored_step is None else f"at step {report.restored_step}"
            lost = f"it began {began}, although step {row.step} was saved"
        try:
            self._open.change(attempt, moved(replace(row, started_s=started_s), Stage.RESUMED, first_s, lost))
        except JournalError as error:
            log.error("preemption_not_recorded", job=row.job_id, problem=str(error))

    def silent(self, snapshot: SlurmSnapshot) -> frozenset[str]:
        """Return the nodes whose agents are not connected, also because power saving has them off; none when no agent at all is
        connected."""
        return self._agents.silent(snapshot)

    def kept_off(self, jobs: Iterable[SlurmJob], snapshot: SlurmSnapshot) -> dict[JobKey, frozenset[str]]:
        """Return the nodes that stopped jobs must avoid for now, because the agents there are silent, although the nodes are up."""
        now, now_s = self._monotonic(), self._clock.now()
        just_stopped = {attempt.row.raw_id for attempt in self._open.all if attempt.is_just_stopped(now, now_s)}
        if not just_stopped:
            return {}
        asleep = {node.name for node in snapshot.nodes if node.is_asleep}
        return kept_off(jobs, just_stopped, self.silent(snapshot) - asleep)

    # --- time

    async def run(self) -> None:
        """Follow deadlines, and repeat commands that were not answered, until cancelled."""
        while True:
            self.tick()
            if self._open:
                await asyncio.sleep(_TICK_S)
            else:
                self._open.changed.clear()
                await self._open.changed.wait()

    def tick(self) -> None:
        """Do everything that is due now."""
        self._saving.tick()

    # --- the cycle

    def update(self, snapshot: SlurmSnapshot) -> None:
        """Update the preemptions by a snapshot of Slurm. Raises JournalError."""
        present = {job.raw_id for job in snapshot.jobs if job.allocated and job.raw_id is not None}
        open_ids = frozenset(self._open.rows)
        self._agents.reports.keep(present | open_ids | snapshot.unread, {node.name for node in snapshot.nodes})
        self.called_off.update(snapshot, open_ids)
        if self._open:
            wanted = {attempt.row.job_id for attempt in self._open.all}
            jobs: dict[str, SlurmJob] = {}
            for job in snapshot.jobs:
                job_id = job.key.job_id
                if job_id in wanted and (job_id not in jobs or jobs[job_id].key.submit_time_s < job.key.submit_time_s):
                    jobs[job_id] = job
            for attempt in self._open.all:
                if attempt.over or attempt.row.raw_id not in snapshot.unread:
                    with apart("preemptions", attempt.row.job_id):
                        self._update(attempt, jobs.get(attempt.row.job_id))
        self.tick()

    def _update(self, attempt: PreemptionAttempt, job: SlurmJob | None) -> None:
        if attempt.over:
            self._orders.end(attempt)
            return
        before = attempt.row
        after = self._unwatched(after_snapshot(before, job, self._clock.now()), job)
        if after.stopped_s is not None and before.stopped_s is None and job is not None:
            self._open.constrain(job.key, after)
        if after.stage is Stage.CALLED_OFF:
            self._saving.call_off(attempt, after.reason or EndReason.NOT_STOPPED, after.problem)
        elif after != before:
            self._open.change(attempt, after)
        elif attempt.refused and job is not None and job.phase is Phase.RUNNING:
            problem = f"Slurm refused to stop it: {attempt.refused}"
            self._saving.call_off(attempt, EndReason.NOT_STOPPED, problem)
        elif not attempt.seen and before.stage is Stage.SAVED:
            # The ranks may have trained on while no controller ran, so they have to save once more.
            self._open.change(attempt, replace(before, stage=Stage.ASKED))
        attempt.seen = True

    def _unwatched(self, row: Preemption, job: SlurmJob | None) -> Preemption:
        """Return the row; it is ended when the job has run for a while and no agent can report its steps."""
        now_s = self._clock.now()
        runs = row.open and row.stage is Stage.STARTED and job is not None and job.phase is Phase.RUNNING
        if not runs or now_s - (row.started_s or now_s) <= UNWATCHED_S or job is None or self._agents.connected(job):
            return row
        problem = f"it has run for {UNWATCHED_S:.0f} s; no agent on its nodes reports its steps"
        return replace(row, ended_s=now_s, problem=row.problem or problem)

    def orders(self) -> tuple[list[Preemption], list[Preemption]]:
        """Return the preemptions to stop now, and those to signal; the cycle reports by `stopped`, `signalled` and
        `orders_over`."""
        return self._orders.give()

    def stopped(self, row: Preemption, failure: Failure | None) -> None:
        """Record the result of an order to stop a job. Raises JournalError."""
        self._orders.stopped(row, failure)

    def signalled(self, row: Preemption, failure: Failure | None) -> None:
        """Record the result of a signal to a job."""
        self._orders.signalled(row, failure)

    def orders_over(self) -> None:
        """End all orders, those without a report too."""
        self._orders.close()

    @property
    def moving(self) -> bool:
        """True if a change in Slurm is expected, or a stopped job is about to be placed: Slurm is read again soon."""
        return any(self._moves(row) for row in self.open.values())

    def _moves(self, row: Preemption) -> bool:
        if row.stage is Stage.STOPPED and row.stopped_s is not None:
            return abs(self._clock.now() - row.stopped_s) < _PLACED_SOON_S
        return row.stage is Stage.SAVED or (row.stage is Stage.ASKED and row.way is PreemptionMethod.SIGNAL)


def _row_of(job: SlurmJob, **more: Any) -> Preemption:
    """Return the row of a new preemption; the table gives it its number."""
    return Preemption(
        number=0,
        job_id=job.key.job_id,
        raw_id=job.raw_id or 0,
        submit_time_s=job.key.submit_time_s,
        cluster=job.key.cluster,
        restarts=job.restarts,
        nodes=tuple(share.node for share in job.allocated),
        stage=Stage.ASKED,
        **more,
    )
