"""Outcomes of steps whose answer is not known, by what the next snapshot showed of the job."""

from __future__ import annotations

from enum import StrEnum

from controller.slurm.model.job import Phase, SlurmJob


class StepOutcome(StrEnum):
    """Outcome of a step that Slurm has not answered, as the journal stores it. Values stay: rows of earlier versions have them.

    Other outcomes in the journal are Slurm's error messages, and `DONE` of steps that Slurm has answered.
    """

    DONE = "done"
    GONE = "job is gone"
    FOUND_PENDING = "found pending"
    FOUND_PENDING_HELD = "found pending, held"
    FOUND_CONFIGURING = "found configuring"
    FOUND_CONFIGURING_HELD = "found configuring, held"
    FOUND_RUNNING = "found running"
    FOUND_RUNNING_HELD = "found running, held"
    FOUND_COMPLETING = "found completing"
    FOUND_COMPLETING_HELD = "found completing, held"
    FOUND_SUSPENDED = "found suspended"
    FOUND_SUSPENDED_HELD = "found suspended, held"
    FOUND_ENDED = "found ended"
    FOUND_ENDED_HELD = "found ended, held"


_FOUND = {
    (phase, held): StepOutcome[f"FOUND_{phase.name}{'_HELD' if held else ''}"]
    for phase in Phase
    for held in (False, True)
}
_NOT_ANSWERED = frozenset(_FOUND.values())


def outcome_seen(verb: str, job: SlurmJob | None) -> StepOutcome:
    """Return the outcome of a step without an answer. `job`: as the snapshot shows it; None: it is gone.

    A release has been done if the job is not held, whether it is still in scope or not.
    """
    if job is None:
        return StepOutcome.GONE
    if verb == "release" and not job.held:
        return StepOutcome.DONE
    return _FOUND[job.phase, job.held]


def is_answered(outcome: str | None) -> bool:
    """Return whether Slurm has answered the step, or has certainly carried it out; otherwise it may still do so at any time."""
    return outcome is not None and outcome not in _NOT_ANSWERED
