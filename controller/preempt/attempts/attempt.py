"""One attempt at a preemption: its state beyond the journal's row, which is lost at a restart. Times are on the monotonic
clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from controller.agents.commands import AgentCommands, PendingCommand
from controller.preempt.attempts.checkpoint_quorum import may_pass, problem, saved_step
from controller.preempt.reports.silent_nodes import KEPT_OFF_S
from controller.preempt.text import stop_text
from controller.state.preemption import Preemption, PreemptionMethod, Stage
from policies.serving.runtime.tasks.backoff import Backoff
from protos.headway.v1 import agent_pb2

_STOP_BEFORE_S = 5.0
"""Time before the end of the ranks' pause within which no stop begins, in seconds, because a stop takes Slurm some time."""
_STOPS_AT_ONCE = 4
"""Maximum number of jobs to stop at once: Slurm stops one after the other, and the last must not be stopped too late."""
_ATTEMPTS_NAMED = 4
"""Number of newest requests because of which ranks may still be paused."""
_RETRY = Backoff(first_s=1.0, longest_s=8.0)
"""Pause before the next call to Slurm, after calls that it did not answer."""


@dataclass(frozen=True, slots=True)
class SaveOutcome:
    """Present result of the request to save."""

    step: int | None = None
    """Steps done at the checkpoint in which all ranks took part; None: not all have saved."""
    problem: str = ""
    """Reason why there will be no such checkpoint; empty: there still may be."""
    again: bool = False
    """True if another request may succeed."""


@dataclass(slots=True)
class PreemptionAttempt:
    """Invariant: `row` is the row that the journal has."""

    row: Preemption
    deadline: float
    """Time by which the job has to have saved."""
    seen: bool = False
    """True once a snapshot has been read since the controller started."""
    request: PendingCommand | None = None
    request_at: float = 0.0
    quiesced_until: float = math.inf
    """Time until which the ranks are certainly paused, less a margin."""
    busy: bool = False
    """True while the cycle stops or signals the job."""
    try_at: float = 0.0
    """Earliest time of the next call to Slurm."""
    tries: int = 0
    failure: str = ""
    """Problem of the last call that may be repeated."""
    refused: str = ""
    """Slurm's refusal; the next snapshot shows the state of the job."""
    stopped_at: float = math.inf
    """Time at which the job was noted as stopped; infinite before."""
    over: str = ""
    """Reason why the attempt is over, whatever Slurm shows: kept until the journal has it."""

    def request_save(self, commands: AgentCommands, quiesce_s: float, now: float, clock: Callable[[], float]) -> None:
        """Send the request to save to the agents of all nodes. Ranks that have saved pause for at least `quiesce_s` from now
        on."""
        row = self.row
        deadline = self.deadline

        def make() -> agent_pb2.AgentCommand:
            left_s = max(deadline - clock(), 0.0)
            return agent_pb2.AgentCommand(
                job=_name(row), save=agent_pb2.SaveRequest(within_s=left_s, still_s=quiesce_s, why=stop_text(row))
            )

        # A repeated request does not prolong the pause of ranks that have saved for the one before.
        self.quiesced_until = min(self.quiesced_until, now + quiesce_s - _STOP_BEFORE_S)
        self.request = commands.send(PendingCommand(save_id(row), row.nodes, make, deadline))

    def forget(self, commands: AgentCommands | None) -> None:
        """Drop the last request: its answers no longer matter."""
        if self.request is not None and commands is not None:
            commands.drop(self.request)
        self.request = None

    def go_on(self, commands: AgentCommands, until: float) -> None:
        """Let all ranks train on, also those that did not receive the newest request and are paused because of an earlier one."""
        if self.request is not None:
            commands.drop(self.request)
        for attempt in range(self.row.attempt, max(self.row.attempt - _ATTEMPTS_NAMED, 0), -1):
            row = replace(self.row, attempt=attempt)
            commands.send(PendingCommand(f"{save_id(row)}.go", row.nodes, partial(_go_on, row), until))

    def outcome(self) -> SaveOutcome:
        """Return the combined result of the agents' answers."""
        request = self.request
        if request is None:
            return SaveOutcome()
        step = saved_step(request.nodes, request.answers)
        if step is not None:
            return SaveOutcome(step)
        found = problem(request.nodes, request.answers)
        refusing = {node: answer for node, answer in request.answers.items() if not answer.accepted}
        # An agent that was cut off may no longer know its ranks, and its ranks may no longer know it.
        again = bool(refusing) and all(
            node in request.reconnected and may_pass(answer) for node, answer in refusing.items()
        )
        return SaveOutcome(problem=found, again=again)

    def is_just_stopped(self, now: float, now_s: float) -> bool:
        """Return whether the job continues from a checkpoint and was stopped so recently that it avoids silent nodes.

        It still does so when its new nodes fail before its first step. `now_s` is the time by the wall clock. It counts too,
        because a controller that started while that clock was ahead knows no other time of the stop.
        """
        row = self.row
        if row.way is not PreemptionMethod.CHECKPOINT or row.stage not in {Stage.STOPPED, Stage.STARTED}:
            return False
        by_wall_s = math.inf if row.stopped_s is None else now_s - row.stopped_s
        return 0 <= now - self.stopped_at < KEPT_OFF_S or 0 <= by_wall_s < KEPT_OFF_S

    def due(self, now: float) -> bool:
        """Return whether the job is to be stopped or signalled now."""
        return not self.busy and self.seen and now >= self.try_at and (self.to_stop(now) or self.to_signal)

    def to_stop(self, now: float) -> bool:
        """Return whether all ranks have saved and are paused, or the job is stopped by force."""
        row = self.row
        forced = row.force and row.stage is Stage.ASKED and (row.way is PreemptionMethod.NONE or now >= self.deadline)
        return (row.stage is Stage.SAVED and now < self.quiesced_until) or forced

    @property
    def to_signal(self) -> bool:
        """True if the job has to be signalled to requeue itself; once only, because a second signal may do something else."""
        return self.row.stage is Stage.ASKED and self.row.way is PreemptionMethod.SIGNAL and self.row.attempt == 0

    @property
    def may_be_called_off(self) -> bool:
        """True if no order to stop the job has been given, and no signal: Slurm, or the job itself, might still carry it out."""
        row = self.row
        if row.stage not in {Stage.ASKED, Stage.SAVED} or row.force or self.busy or self.refused or self.over:
            return False
        signalled = row.way is PreemptionMethod.SIGNAL and row.attempt > 0
        return not signalled and self.tries == 0

    def tried(self, failure: str, now: float) -> None:
        """Note that Slurm did not answer; the pauses between calls become longer."""
        self.failure = failure
        self.try_at = now + _RETRY.pause_s(self.tries)
        self.tries += 1

    def late_text(self) -> str:
        """Return the text that says what was missing at the deadline."""
        within = f"within {self.row.within_s:g} s"
        if self.row.way is PreemptionMethod.SIGNAL:
            unsure = f" ({self.failure})" if self.failure else ""
            return f"it did not requeue itself {within} of USR1{unsure}"
        if self.request is None:
            return f"it did not save {within}: {self.failure or 'its agents could not be reached'}"
        unreached = sorted(self.request.open - self.request.delivered)
        if unreached:
            return f"it did not save {within}: the agents of {', '.join(unreached)} are not connected"
        missing = sorted(self.request.open)
        return f"it did not save {within}: the agents of {', '.join(missing)} have not answered"


def first_to_stop(due: Iterable[PreemptionAttempt], now: float) -> list[PreemptionAttempt]:
    """Return the attempts to stop now, at most a few; those whose ranks' pause ends first come first."""
    return sorted((attempt for attempt in due if attempt.to_stop(now)), key=lambda attempt: attempt.quiesced_until)[
        :_STOPS_AT_ONCE
    ]


def _go_on(row: Preemption) -> agent_pb2.AgentCommand:
    return agent_pb2.AgentCommand(job=_name(row), go_on=agent_pb2.GoOnRequest(save_id=save_id(row)))


def save_id(preemption: Preemption) -> str:
    """Return the id of the present request. It contains the time, so that a new journal repeats no id: agents remember answers."""
    return f"p{preemption.number}.{preemption.attempt}.{int(preemption.asked_s)}"


def _name(preemption: Preemption) -> agent_pb2.JobName:
    return agent_pb2.JobName(job_id=preemption.raw_id, restart=preemption.restarts)
