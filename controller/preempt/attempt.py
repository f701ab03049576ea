"""One preemption as it is driven: what is known of it beyond its row, and lost with the controller. Times are monotonic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from controller.agents.commands import AgentCommands, Asking
from controller.base.backoff import Backoff
from controller.preempt.checkpoint_quorum import may_pass, problem, saved_step
from controller.state.preemption import Preemption, PreemptionMethod, Stage
from protos.headway.v1 import agent_pb2

_STOP_BEFORE_S = 5.0
"""So long before ranks train on by themselves nobody begins to stop them: Slurm takes a moment."""
_STOPS_AT_ONCE = 4
"""Slurm is asked for one after the other, and each takes a moment: nobody is to be late for those before it."""
_ATTEMPTS_NAMED = 4
"""What ranks stand still for is among the newest."""
_RETRY = Backoff(first_s=1.0, longest_s=8.0)
"""Pause before Slurm is asked again after it did not answer."""


@dataclass(frozen=True, slots=True)
class SaveOutcome:
    """What has come of asking so far."""

    step: int | None = None
    """Steps done at the checkpoint that all ranks have taken part in."""
    problem: str = ""
    """Why there will be none."""
    again: bool = False
    """Asking again may help."""


@dataclass(slots=True)
class PreemptionAttempt:
    """Invariant: `row` is what the journal has."""

    row: Preemption
    deadline: float
    """By then it has to have saved."""
    seen: bool = False
    """Slurm has shown the job since the controller started."""
    asking: Asking | None = None
    ask_at: float = 0.0
    quiesced_until: float = math.inf
    """Until then the ranks stand still for certain, a margin taken off."""
    busy: bool = False
    """Slurm is being asked to stop or signal it."""
    try_at: float = 0.0
    """Not before this is Slurm asked (again)."""
    tries: int = 0
    failure: str = ""
    """Why the last try came to nothing."""
    refused: str = ""
    """Slurm said no. What has become of the job shows at the next look."""
    over: str = ""
    """Why nothing more follows, whatever Slurm shows: kept until the journal has it."""

    def ask(self, commands: AgentCommands, quiesce_s: float, now: float, clock: Callable[[], float]) -> None:
        """Ask the agents of all its nodes. From now on the ranks stand still for `quiesce_s` at least, once they do."""
        row = self.row
        deadline = self.deadline

        def make() -> agent_pb2.AgentCommand:
            left_s = max(deadline - clock(), 0.0)
            return agent_pb2.AgentCommand(
                job=_name(row), save=agent_pb2.SaveRequest(within_s=left_s, still_s=quiesce_s)
            )

        # Ranks that stand still since they were asked before do so no longer for that.
        self.quiesced_until = min(self.quiesced_until, now + quiesce_s - _STOP_BEFORE_S)
        self.asking = commands.ask(Asking(save_id(row), row.nodes, make, deadline))

    def forget(self, commands: AgentCommands | None) -> None:
        """Answers to what was asked last no longer matter."""
        if self.asking is not None and commands is not None:
            commands.drop(self.asking)
        self.asking = None

    def go_on(self, commands: AgentCommands, until: float) -> None:
        """Tell all ranks to train on: also those that have not heard the newest attempt, and stand still for one before."""
        if self.asking is not None:
            commands.drop(self.asking)
        for attempt in range(self.row.attempt, max(self.row.attempt - _ATTEMPTS_NAMED, 0), -1):
            asked = replace(self.row, attempt=attempt)
            commands.ask(Asking(f"{save_id(asked)}.go", asked.nodes, partial(_go_on, asked), until))

    def outcome(self) -> SaveOutcome:
        """What the agents answered, put together."""
        asking = self.asking
        if asking is None:
            return SaveOutcome()
        step = saved_step(asking.nodes, asking.answers)
        if step is not None:
            return SaveOutcome(step)
        found = problem(asking.nodes, asking.answers)
        refusing = {node: answer for node, answer in asking.answers.items() if not answer.accepted}
        # Who was cut off may have lost sight of its ranks, and they of it.
        again = bool(refusing) and all(
            node in asking.came_back and may_pass(answer) for node, answer in refusing.items()
        )
        return SaveOutcome(problem=found, again=again)

    def due(self, now: float) -> bool:
        """Whether Slurm is to be asked for something now."""
        return not self.busy and self.seen and now >= self.try_at and (self.to_stop(now) or self.to_signal)

    def to_stop(self, now: float) -> bool:
        """All ranks have saved and stand still, or it is stopped as it is."""
        row = self.row
        forced = row.force and row.stage is Stage.ASKED and (row.way is PreemptionMethod.NONE or now >= self.deadline)
        return (row.stage is Stage.SAVED and now < self.quiesced_until) or forced

    @property
    def to_signal(self) -> bool:
        """It has to be told to requeue itself. That is done once: what a second signal does, nobody knows."""
        return self.row.stage is Stage.ASKED and self.row.way is PreemptionMethod.SIGNAL and self.row.attempt == 0

    def tried(self, failure: str, now: float) -> None:
        """Slurm did not answer: it is asked again, ever less often."""
        self.failure = failure
        self.try_at = now + _RETRY.pause_s(self.tries)
        self.tries += 1

    def late_text(self) -> str:
        """What has not happened by the deadline."""
        within = f"within {self.row.within_s:g} s"
        if self.row.way is PreemptionMethod.SIGNAL:
            unsure = f" ({self.failure})" if self.failure else ""
            return f"it did not requeue itself {within} of USR1{unsure}"
        if self.asking is None:
            return f"it did not save {within}: {self.failure or 'its agents could not be asked'}"
        unheard = sorted(self.asking.open - self.asking.said)
        if unheard:
            return f"it did not save {within}: the agents of {', '.join(unheard)} are not connected"
        missing = sorted(self.asking.open)
        return f"it did not save {within}: nothing heard from {', '.join(missing)}"


def first_to_stop(due: Iterable[PreemptionAttempt], now: float) -> list[PreemptionAttempt]:
    """As many as are stopped at once, of those that are due: first those whose ranks train on first."""
    return sorted((attempt for attempt in due if attempt.to_stop(now)), key=lambda attempt: attempt.quiesced_until)[
        :_STOPS_AT_ONCE
    ]


def _go_on(row: Preemption) -> agent_pb2.AgentCommand:
    return agent_pb2.AgentCommand(job=_name(row), go_on=agent_pb2.GoOnRequest(save_id=save_id(row)))


def save_id(preemption: Preemption) -> str:
    """Of the present attempt. With the time, so that a journal that began anew gives no id twice: agents remember their answers."""
    return f"p{preemption.number}.{preemption.attempt}.{int(preemption.asked_s)}"


def _name(preemption: Preemption) -> agent_pb2.JobName:
    return agent_pb2.JobName(job_id=preemption.raw_id, restart=preemption.restarts)
