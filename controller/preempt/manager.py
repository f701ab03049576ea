"""Preemptions under way: asks agents, follows what Slurm shows, and says what is to be stopped. The rim around `preemption`.

Nothing here changes anything in Slurm: what is to be stopped or signalled is ordered from the cycle, which does it through
the Applier. Every change of a stage is in the journal before anybody acts on it, so that a controller that was killed goes on
with each. Deadlines run on a clock that nobody sets, and only over a restart on the wall's.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

import structlog

from controller.agents.commands import AgentCommands, Line
from controller.agents.node_table import NodeStatus
from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.base.errors import JournalError, PreemptionRefusedError
from controller.base.events import EventLog
from controller.observe.role import in_scope
from controller.preempt.attempt import PreemptionAttempt, SaveOutcome, first_to_stop
from controller.preempt.called_off import CalledOff
from controller.preempt.job_reports import NodeReport, ReportTable, newest_step
from controller.preempt.preemptibility import Preemptibility, preemptibility
from controller.preempt.silent_nodes import kept_off, silent_nodes
from controller.preempt.text import event_text, forced_text, lost_text
from controller.profiles.windows import RunKey
from controller.slurm.client import Failure, FailureReason, JobKey, Phase, SlurmJob, SlurmSnapshot
from controller.state.journal import Journal
from controller.state.ledger import Ledger
from controller.state.preemption import (
    Cause,
    Preemption,
    PreemptionMethod,
    RelocationConstraint,
    Stage,
    after_look,
    left_s,
    moved,
)
from protos.headway.v1 import agent_pb2

log = structlog.get_logger(__name__)

STEP_WATCH_S = 900.0
"""A job that runs again, and of whose steps nobody tells for so long, is let out of sight."""
UNWATCHED_S = 60.0
"""The same where none of its nodes has an agent connected: then its steps cannot be told of."""
_TICK_S = 0.25
_ASK_AGAIN_S = 1.0
QUIESCE_AT_LEAST_S = 30.0
"""Ranks stand still for so long beyond the deadline at least: Slurm has to be told, and may be slow."""
_PLACED_SOON_S = 15.0
"""So long after the stop the queue is read as often as may be: its processes end, Slurm lets it settle, and it is placed."""
_NOWHERE = RelocationConstraint()

Listener = Callable[[Preemption], None]
"""Told of every change of a stage, in the event loop: it must not wait, and must not raise."""


class Agents(Line, Protocol):
    """What is asked of the server of agents."""

    @property
    def nodes(self) -> Mapping[str, NodeStatus]:
        """Every node that was heard of lately."""


class PreemptionManager:
    """Invariant: at most one open preemption by job, and of each the journal has the stage that is acted on."""

    def __init__(
        self,
        settings: Callable[[], ControllerSettings],
        journal: Journal,
        ledger: Ledger,
        events: EventLog,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Goes on with what the journal has open, from the first `see` on."""
        self._settings = settings
        self.listeners: list[Listener] = []
        self.wanted = asyncio.Event()
        """Set while `orders` has something for the cycle."""
        self.reports = ReportTable()
        self._journal = journal
        self._table = journal.preemptions
        self._ledger = ledger
        self._events = events
        self._clock = clock
        self._monotonic = monotonic
        self._agents: Agents | None = None
        self._commands: AgentCommands | None = None
        self._news = asyncio.Event()
        now_s, now = clock.now(), monotonic()
        self.called_off = CalledOff(journal.preemptions, clock)
        self._attempts = {
            row.raw_id: PreemptionAttempt(row, deadline=now + left_s(row, now_s)) for row in self._table.open()
        }

    def serve(self, agents: Agents | None) -> None:
        """These are the agents from now on."""
        self._agents = agents
        self._commands = None if agents is None else AgentCommands(agents)
        if self._commands is not None:
            self.called_off.say_go_on(self._commands, self._settings().preemption_still_s, self._monotonic())

    # --- for others

    @property
    def open(self) -> Mapping[int, Preemption]:
        """Those that have not ended, by Slurm's own number of the job; also STARTED ones, of which no step was told yet."""
        return {
            raw_id: attempt.row for raw_id, attempt in list(self._attempts.items())
        }  # also asked by the exporter's thread

    def preemptibility(self, job: SlurmJob) -> Preemptibility:
        """Whether this job may be preempted now, and how it comes back. Cheap: may be asked of every job in every cycle."""
        if not in_scope(job, frozenset(self._settings().partitions)):
            return Preemptibility(PreemptionMethod.NONE, "is not among the jobs that Headway schedules", final=True)
        attempt = self._attempts.get(job.raw_id) if job.raw_id is not None else None
        row = None if attempt is None else attempt.row
        return preemptibility(job, self._reports_of(job), self._connected(job), row, self.reports.watching)

    def begin(
        self,
        job: SlurmJob,
        cause: Cause,
        why: str,
        elsewhere: RelocationConstraint = _NOWHERE,
        *,
        force: bool = False,
        within_s: float | None = None,
    ) -> Preemption:
        """Ask the job to save, so that it can be stopped. Does not wait. `why` is a sentence for people, without a full stop.

        `within_s` None: preemption_within_s of the settings. Raises PreemptionRefusedError with words that say why not, and
        JournalError.
        """
        found = self.preemptibility(job)
        if found.final or (found.why_not and not force) or job.raw_id is None:
            raise PreemptionRefusedError(f"job {job.key.job_id} {found.why_not}")
        former = self._attempts.get(job.raw_id)
        if former is not None:
            self._change(
                former,
                replace(former.row, ended_s=self._clock.now(), problem="preempted anew before a step was told of"),
            )
        row = Preemption(
            number=0,
            job_id=job.key.job_id,
            raw_id=job.raw_id,
            submit_time_s=job.key.submit_time_s,
            restarts=job.restarts,
            cause=cause,
            why=why,
            way=found.way,
            force=force,
            nodes=tuple(share.node for share in job.allocated),
            elsewhere=elsewhere,
            within_s=self._settings().preemption_within_s if within_s is None else within_s,
            stage=Stage.ASKED,
            asked_s=self._clock.now(),
            problem=forced_text(found, newest_step(self._reports_of(job)))
            if found.way is PreemptionMethod.NONE
            else "",
        )
        attempt = PreemptionAttempt(self._table.add(row), deadline=self._monotonic() + row.within_s, seen=True)
        self._attempts[job.raw_id] = attempt
        self._tell(attempt.row)
        self.tick()
        return attempt.row

    def recent(self, job: SlurmJob, limit: int = 20) -> list[Preemption]:
        """The newest preemptions of that job, open ones too, newest first."""
        return [] if job.raw_id is None else self._table.of_job(job.raw_id, limit)

    def since(self, time_s: float) -> list[Preemption]:
        """All that were asked for since then (Unix time), oldest first: for budgets."""
        return self._table.since(time_s)

    def newest(self, limit: int) -> list[Preemption]:
        """The newest of all, newest first."""
        return self._table.newest(limit)

    def find(self, number: int) -> Preemption | None:
        """The one of that number."""
        return self._table.find(number)

    # --- agents

    def on_report(self, node: str, report: agent_pb2.AgentReport) -> None:
        """Take in what an agent reports, or answers."""
        if report.WhichOneof("kind") == "answer":
            if self._commands is not None and self._commands.on_answer(node, report.answer):
                self.tick()
            return
        found = self.reports.take(node, report)
        if found is not None:
            self._note_step(*found)

    def on_connected(self, node: str) -> None:
        """An agent's stream has begun."""
        if self._commands is not None:
            self._commands.on_connected(node)
        for attempt in list(self._attempts.values()):
            if attempt.row.stage is Stage.SAVED and not attempt.busy and node in attempt.row.nodes:
                self._ask_anew(attempt, node)

    def _ask_anew(self, attempt: PreemptionAttempt, node: str) -> None:
        """Ranks that lost their agent may have trained on: what was saved then is not all that they have done."""
        attempt.forget(self._commands)
        attempt.failure = f"the agent of {node} was away after it had saved"
        attempt.deadline = self._monotonic() + left_s(attempt.row, self._clock.now())
        try:
            self._change(attempt, replace(attempt.row, stage=Stage.ASKED))
        except JournalError as error:
            attempt.seen = False  # then it is done at the next look, and nobody stops it before
            log.error("preemption_not_recorded", job=attempt.row.job_id, problem=str(error))
        else:
            self.tick()

    def _note_step(self, run: RunKey, report: NodeReport) -> None:
        attempt = self._attempts.get(run.job_id)
        if attempt is None or run.restart <= attempt.row.restarts or report.stepped_ago_s is None:
            return
        row, now_s = attempt.row, self._clock.now()
        started_s = row.started_s if row.started_s is not None else now_s
        first_s = min(max(now_s - report.stepped_ago_s, started_s), now_s)
        lost = ""
        if row.step is not None and (report.restored_step or 0) < row.step:
            began = "anew" if report.restored_step is None else f"at step {report.restored_step}"
            lost = f"it began {began}, though step {row.step} was saved"
        self._change(attempt, moved(replace(row, started_s=started_s), Stage.RESUMED, first_s, lost))

    def _reports_of(self, job: SlurmJob) -> Mapping[str, NodeReport]:
        """Only what agents of the job's own nodes say: another node has no part in whether it may be preempted."""
        known = {} if job.raw_id is None else self.reports.of(RunKey(job.raw_id, job.restarts))
        nodes = {share.node for share in job.allocated} if known else set()
        return {node: report for node, report in known.items() if node in nodes}

    def _connected(self, job: SlurmJob) -> set[str]:
        nodes = {} if self._agents is None else self._agents.nodes
        found = ((share.node, nodes.get(share.node)) for share in job.allocated)
        return {node for node, status in found if status is not None and status.connected}

    def silent(self, snapshot: SlurmSnapshot) -> frozenset[str]:
        """Nodes whose agent is not connected; none where no agent is."""
        known = {} if self._agents is None else self._agents.nodes
        connected = {node for node, status in known.items() if status.connected}
        return silent_nodes((node.name for node in snapshot.nodes), connected) if connected else frozenset()

    def kept_off(self, jobs: Iterable[SlurmJob], snapshot: SlurmSnapshot) -> dict[JobKey, frozenset[str]]:
        """Nodes that stopped jobs are not to be placed on now, because the agents there are silent."""
        return kept_off(jobs, self.open, self.silent(snapshot), self._clock.now()) if self._attempts else {}

    # --- time

    async def run(self) -> None:
        """See to deadlines and to what has to be said again, until cancelled."""
        while True:
            self.tick()
            if self._attempts:
                await asyncio.sleep(_TICK_S)
            else:
                self._news.clear()
                await self._news.wait()

    def tick(self) -> None:
        """Everything that is due now."""
        now = self._monotonic()
        for attempt in list(self._attempts.values()):
            try:
                self._go_on(attempt, now)
            except JournalError as error:  # it stays as it was, and is tried again
                log.error("preemption_not_recorded", job=attempt.row.job_id, problem=str(error))
                break  # nor can the others be written; where the file is locked, each try takes seconds
            except Exception:  # a bug here must cost no other job its deadline
                log.exception("preemption_stuck", job=attempt.row.job_id)
        if self._commands is not None:
            self._commands.repeat(now)

    def _go_on(self, attempt: PreemptionAttempt, now: float) -> None:
        row = attempt.row
        if attempt.busy or not attempt.seen:
            return
        match row.stage:
            case Stage.ASKED:
                self._asked(attempt, now)
            case Stage.SAVED:
                if now >= attempt.quiesced_until:
                    self._call_off(attempt, f"Slurm did not stop it in time: {attempt.failure or 'it was not asked'}")
            case Stage.STARTED:
                started_s = row.started_s if row.started_s is not None else row.asked_s
                now_s = self._clock.now()
                if now_s - started_s > STEP_WATCH_S:
                    self._change(attempt, replace(row, ended_s=now_s, problem=row.problem or "no step was told of"))
        if attempt.due(now):
            self.wanted.set()

    def _asked(self, attempt: PreemptionAttempt, now: float) -> None:
        """Ask the ranks where that is its way; take in what they answered; and mind the deadline."""
        if attempt.row.way is PreemptionMethod.CHECKPOINT and self._commands is not None:
            if attempt.asking is None and attempt.ask_at <= now < attempt.deadline:
                self._ask(attempt, self._commands, now)
            outcome = attempt.outcome()
            if outcome.step is not None:
                self._saved(attempt, outcome.step)
                return
            if outcome.problem:
                self._not_saved(attempt, outcome, now)
        if not attempt.row.open or now < attempt.deadline:
            return
        if not attempt.row.force or now >= attempt.deadline + self._settings().preemption_still_s:
            self._call_off(attempt, attempt.late_text())
        elif not attempt.row.problem:
            lost = f"{attempt.late_text()}; stopped by force: {lost_text(self._newest_step(attempt.row))}"
            self._change(attempt, replace(attempt.row, problem=lost, step=self._newest_step(attempt.row)), silent=True)

    def _ask(self, attempt: PreemptionAttempt, commands: AgentCommands, now: float) -> None:
        """Before anybody is asked, the number of the attempt is in the journal: an id is never used twice."""
        row = replace(attempt.row, attempt=attempt.row.attempt + 1)
        self._change(attempt, row, silent=row.attempt == 1)
        quiesce_s = max(self._settings().preemption_still_s, row.within_s + QUIESCE_AT_LEAST_S)
        attempt.ask(commands, quiesce_s, now, self._monotonic)

    def _saved(self, attempt: PreemptionAttempt, step: int) -> None:
        self._change(attempt, moved(replace(attempt.row, step=step), Stage.SAVED, self._clock.now()))
        attempt.try_at = 0.0
        self.wanted.set()

    def _not_saved(self, attempt: PreemptionAttempt, outcome: SaveOutcome, now: float) -> None:
        """An agent that has come anew may not know its ranks yet: it is asked again. With force so is every other."""
        if outcome.again or attempt.row.force:
            attempt.forget(self._commands)
            attempt.failure = outcome.problem
            attempt.ask_at = now + _ASK_AGAIN_S
        else:
            self._call_off(attempt, outcome.problem)

    def _call_off(self, attempt: PreemptionAttempt, problem: str) -> None:
        self._change(attempt, moved(attempt.row, Stage.CALLED_OFF, self._clock.now(), problem))
        self.called_off.add(attempt.row)
        if self._commands is not None and attempt.row.attempt and attempt.row.way is PreemptionMethod.CHECKPOINT:
            attempt.go_on(self._commands, self._monotonic() + self._settings().preemption_still_s)

    # --- the cycle

    def see(self, snapshot: SlurmSnapshot) -> None:
        """Follow what Slurm shows of the jobs. Raises JournalError."""
        self.reports.keep(
            {job.raw_id for job in snapshot.jobs if job.allocated and job.raw_id is not None} | self._attempts.keys()
        )
        self.called_off.look(snapshot, frozenset(self._attempts))
        if not self._attempts:
            self.tick()
            return
        wanted = {attempt.row.job_id for attempt in self._attempts.values()}
        jobs: dict[str, SlurmJob] = {}
        for job in snapshot.jobs:
            job_id = job.key.job_id
            if job_id in wanted and (job_id not in jobs or jobs[job_id].key.submit_time_s < job.key.submit_time_s):
                jobs[job_id] = job
        for attempt in list(self._attempts.values()):
            self._see(attempt, jobs.get(attempt.row.job_id))
        self.tick()

    def _see(self, attempt: PreemptionAttempt, job: SlurmJob | None) -> None:
        before = attempt.row
        if attempt.over:
            self._change(attempt, moved(before, Stage.OVER, self._clock.now(), attempt.over))
            return
        after = self._unwatched(after_look(before, job, self._clock.now()), job)
        if after.stopped_s is not None and before.stopped_s is None and job is not None:
            self._send(job.key, after)
        if after != before:
            self._change(attempt, after)
        elif attempt.refused and job is not None and job.phase is Phase.RUNNING:
            self._call_off(attempt, f"Slurm refused to stop it: {attempt.refused}")
        elif not attempt.seen and before.stage is Stage.SAVED:
            # While nobody looked its ranks may have trained on: what was saved then is not all that it has done.
            self._change(attempt, replace(before, stage=Stage.ASKED))
        attempt.seen = True

    def _unwatched(self, row: Preemption, job: SlurmJob | None) -> Preemption:
        """The row, ended where the job has run for a while and no agent is there to tell of its steps."""
        now_s = self._clock.now()
        runs = row.open and row.stage is Stage.STARTED and job is not None and job.phase is Phase.RUNNING
        if not runs or now_s - (row.started_s or now_s) <= UNWATCHED_S or job is None or self._connected(job):
            return row
        problem = f"it has run for {UNWATCHED_S:.0f} s; no agent on its nodes tells of its steps"
        return replace(row, ended_s=now_s, problem=row.problem or problem)

    def orders(self) -> tuple[list[Preemption], list[Preemption]]:
        """What the cycle is to stop now, and what it is to signal. Each is to be told of by `stopped` or `signalled`."""
        self.wanted.clear()
        now = self._monotonic()
        due = [attempt for attempt in self._attempts.values() if attempt.due(now)]
        stops = first_to_stop(due, now)
        signals = self._recorded([attempt for attempt in due if not attempt.to_stop(now)])
        for attempt in (*stops, *signals):
            attempt.busy = True
        return [attempt.row for attempt in stops], [attempt.row for attempt in signals]

    def _recorded(self, signals: Iterable[PreemptionAttempt]) -> list[PreemptionAttempt]:
        """Those of them of which the journal has it now that they are signalled; the others come next time."""
        recorded: list[PreemptionAttempt] = []
        try:
            for attempt in signals:
                self._change(attempt, replace(attempt.row, attempt=1), silent=True)
                recorded.append(attempt)
        except JournalError as error:
            log.error("signal_not_recorded", problem=str(error))
        return recorded

    def stopped(self, row: Preemption, failure: Failure | None) -> None:
        """How the order to stop it went."""
        attempt = self._attempts.get(row.raw_id)
        if attempt is None or attempt.row.number != row.number:
            return
        if failure is None:
            self._send(JobKey(row.job_id, row.submit_time_s), row)
            self._change(attempt, moved(attempt.row, Stage.STOPPED, self._clock.now()))
        elif failure.unavailable:
            attempt.tried(failure.message, self._monotonic())
        elif failure.reason is FailureReason.ENDED_FIRST:
            # Slurm shows it pending and requeued, as if it had been stopped, but only its user may let it run again.
            attempt.over, attempt.try_at, attempt.busy = f"the job {failure.message}", math.inf, False
            self._see(attempt, None)
        else:
            attempt.refused, attempt.try_at = failure.message, math.inf
        attempt.busy = False

    def signalled(self, row: Preemption, failure: Failure | None) -> None:
        """How the signal went. One that may have got through is waited for."""
        attempt = self._attempts.get(row.raw_id)
        if attempt is None or attempt.row.number != row.number:
            return
        attempt.busy = False
        if failure is None:
            return
        if failure.unavailable:
            attempt.failure = failure.message
        else:
            attempt.refused = failure.message

    def orders_over(self) -> None:
        """Nobody is stopped or signalled now. What was not told of may have been done or not: what shows it is waited for."""
        for attempt in self._attempts.values():
            if attempt.busy:
                attempt.busy = False
                attempt.tried("it is not known whether it was asked", self._monotonic())

    @property
    def moving(self) -> bool:
        """Something is about to show in Slurm, or somebody to be placed: look again soon."""
        return any(self._moves(attempt.row) for attempt in self._attempts.values())

    def _moves(self, row: Preemption) -> bool:
        if row.stage is Stage.STOPPED and row.stopped_s is not None:
            return abs(self._clock.now() - row.stopped_s) < _PLACED_SOON_S
        return row.stage is Stage.SAVED or (row.stage is Stage.ASKED and row.way is PreemptionMethod.SIGNAL)

    # --- rows

    def _send(self, key: JobKey, row: Preemption) -> None:
        """Where it goes is written down before it is said to be stopped: the row would not say so again."""
        self._ledger.set_constraint(key, row.elsewhere)
        self._journal.save_jobs(self._ledger, [key])

    def _change(self, attempt: PreemptionAttempt, row: Preemption, *, silent: bool = False) -> None:
        """Write it down, then let it be so."""
        self._table.save(row)
        attempt.row = row
        if not row.open:
            del self._attempts[row.raw_id]
        if not silent:
            self._tell(row)

    def _tell(self, row: Preemption) -> None:
        words = event_text(row)
        log.info("preemption", number=row.number, job=row.job_id, stage=row.stage.value, text=words)
        self._events.add("preempt", row.job_id, words)
        for listener in self.listeners:
            listener(row)
        self._news.set()

    def _newest_step(self, row: Preemption) -> int | None:
        known = self.reports.of(RunKey(row.raw_id, row.restarts))
        return newest_step({node: report for node, report in known.items() if node in row.nodes})
