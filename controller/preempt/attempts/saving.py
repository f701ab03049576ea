"""The first half of a preemption: ranks get a request to save; if they miss its deadline, the preemption is called off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from controller.agents.commands import AgentCommands
from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.base.errors import JournalError
from controller.preempt.attempts.attempt import PreemptionAttempt, SaveOutcome
from controller.preempt.attempts.called_off import CalledOff
from controller.preempt.attempts.open_preemptions import OpenPreemptions
from controller.preempt.reports.job_agents import JobAgents
from controller.preempt.text import lost_text
from controller.state.preemption import EndReason, PreemptionMethod, Stage, left_s, moved

log = structlog.get_logger(__name__)

STEP_WATCH_S = 900.0
"""Time after which a job that runs again without reporting a step is no longer watched."""
QUIESCE_AT_LEAST_S = 30.0
"""Minimum pause of ranks beyond the deadline: Slurm has to be called, and may be slow."""
_REQUEST_AGAIN_S = 1.0


class Saving:
    """Watches deadlines. Invariant: a job is due to be stopped only after all its ranks have saved, unless it is forced."""

    def __init__(
        self,
        settings: Callable[[], ControllerSettings],
        open_: OpenPreemptions,
        agents: JobAgents,
        called_off: CalledOff,
        clock: Clock,
        monotonic: Callable[[], float],
        wanted: asyncio.Event,
    ) -> None:
        """`wanted` is set whenever the cycle has something to stop or to signal."""
        self._settings = settings
        self._open = open_
        self._agents = agents
        self._called_off = called_off
        self._clock = clock
        self._monotonic = monotonic
        self._wanted = wanted

    def tick(self) -> None:
        """Do everything that is due now."""
        now = self._monotonic()
        for attempt in self._open.all:
            try:
                self._advance(attempt, now)
            except JournalError as error:  # it stays as it was, and the next tick tries again
                log.error("preemption_not_recorded", job=attempt.row.job_id, problem=str(error))
                break  # the others cannot be written either; where the file is locked, each attempt takes seconds
            except Exception:  # a bug here must make no other job miss its deadline
                log.exception("preemption_stuck", job=attempt.row.job_id)
        if self._agents.commands is not None:
            self._agents.commands.repeat(now)

    def on_connected(self, node: str) -> None:
        """Repeat the commands that the agent of a new stream may have missed."""
        if self._agents.commands is not None:
            self._agents.commands.on_connected(node)
        for attempt in self._open.all:
            if attempt.row.stage is Stage.SAVED and not attempt.busy and node in attempt.row.nodes:
                self._request_again(attempt, node)

    def call_off(self, attempt: PreemptionAttempt, reason: EndReason, problem: str) -> None:
        """Leave the job where it is, and let its ranks train on. Raises JournalError."""
        self._open.change(attempt, moved(attempt.row, Stage.CALLED_OFF, self._clock.now(), problem, reason))
        self._called_off.add(attempt.row)
        commands = self._agents.commands
        if commands is not None and attempt.row.attempt and attempt.row.way is PreemptionMethod.CHECKPOINT:
            attempt.go_on(commands, self._monotonic() + self._settings().preemption_still_s)

    def _request_again(self, attempt: PreemptionAttempt, node: str) -> None:
        """Request another save: ranks that lost their agent may have trained on since the last one."""
        attempt.forget(self._agents.commands)
        attempt.failure = f"the agent of {node} was away after it had saved"
        attempt.deadline = self._monotonic() + left_s(attempt.row, self._clock.now())
        try:
            self._open.change(attempt, replace(attempt.row, stage=Stage.ASKED))
        except JournalError as error:
            attempt.seen = False  # the next snapshot repeats this, and the job is not stopped before
            log.error("preemption_not_recorded", job=attempt.row.job_id, problem=str(error))
        else:
            self.tick()

    def _advance(self, attempt: PreemptionAttempt, now: float) -> None:
        row = attempt.row
        if attempt.busy or not attempt.seen:
            return
        match row.stage:
            case Stage.ASKED:
                self._await_save(attempt, now)
            case Stage.SAVED:
                if now >= attempt.quiesced_until:
                    problem = f"Slurm did not stop it in time: {attempt.failure or 'Slurm was not called'}"
                    self.call_off(attempt, EndReason.NOT_STOPPED, problem)
            case Stage.STARTED:
                started_s = row.started_s if row.started_s is not None else row.asked_s
                now_s = self._clock.now()
                if now_s - started_s > STEP_WATCH_S:
                    problem = row.problem or "no step was reported"
                    self._open.change(attempt, replace(row, ended_s=now_s, problem=problem))
        if attempt.due(now):
            self._wanted.set()

    def _await_save(self, attempt: PreemptionAttempt, now: float) -> None:
        """Send the request to save, if the job continues from a checkpoint; evaluate the answers; and watch the deadline."""
        commands = self._agents.commands
        if attempt.row.way is PreemptionMethod.CHECKPOINT and commands is not None:
            if attempt.request is None and attempt.request_at <= now < attempt.deadline:
                self._request_save(attempt, commands, now)
            outcome = attempt.outcome()
            if outcome.step is not None:
                self._saved(attempt, outcome.step)
                return
            if outcome.problem:
                self._not_saved(attempt, outcome, now)
        if not attempt.row.open or now < attempt.deadline:
            return
        if not attempt.row.force or now >= attempt.deadline + self._settings().preemption_still_s:
            self.call_off(attempt, EndReason.NOT_SAVED, attempt.late_text())
        elif not attempt.row.problem:
            step = self._agents.newest_step(attempt.row)
            lost = f"{attempt.late_text()}; stopped by force: {lost_text(step)}"
            self._open.change(attempt, replace(attempt.row, problem=lost, step=step), silent=True)

    def _request_save(self, attempt: PreemptionAttempt, commands: AgentCommands, now: float) -> None:
        """Send the request to save. Its number is in the journal before, so that no id is used twice."""
        row = replace(attempt.row, attempt=attempt.row.attempt + 1)
        self._open.change(attempt, row, silent=row.attempt == 1)
        quiesce_s = max(self._settings().preemption_still_s, row.within_s + QUIESCE_AT_LEAST_S)
        attempt.request_save(commands, quiesce_s, now, self._monotonic)

    def _saved(self, attempt: PreemptionAttempt, step: int) -> None:
        self._open.change(attempt, moved(replace(attempt.row, step=step), Stage.SAVED, self._clock.now()))
        attempt.try_at = 0.0
        self._wanted.set()

    def _not_saved(self, attempt: PreemptionAttempt, outcome: SaveOutcome, now: float) -> None:
        """Repeat the request where that may help: an agent that has reconnected may not know its ranks yet. With force,
        always."""
        if outcome.again or attempt.row.force:
            attempt.forget(self._agents.commands)
            attempt.failure = outcome.problem
            attempt.request_at = now + _REQUEST_AGAIN_S
        else:
            self.call_off(attempt, EndReason.NOT_SAVED, outcome.problem)
