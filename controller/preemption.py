"""One running job that is taken off its nodes to come back: what is recorded of it, and which phase may follow which. Pure.

A preemption goes ASKED, SAVED, STOPPED, STARTED, RESUMED, or ends in CALLED_OFF or OVER. Nothing is stopped before it is SAVED,
unless an operator forces it. The table of preemptions is in the journal, so that a controller that was killed goes on with each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Who wants it."""

    OPERATOR = "operator"
    THRESHOLD = "threshold"
    POLICY = "policy"


class Way(StrEnum):
    """How the job comes back."""

    CHECKPOINT = "checkpoint"
    """Its ranks save when agents ask them, and say when they have."""
    SIGNAL = "signal"
    """It saves and requeues itself on SIGUSR1, as its user has declared."""
    NONE = "none"
    """It cannot, but the operator forces it."""


class Stage(StrEnum):
    """How far a preemption has come."""

    ASKED = "asked"
    """The ranks were asked to save, and train on until they have."""
    SAVED = "saved"
    """All ranks have; they stand still, and the job is about to be requeued."""
    STOPPED = "stopped"
    """Back in the queue, held, to be placed again."""
    STARTED = "started"
    """It runs again."""
    RESUMED = "resumed"
    """It has made a step since. The end, where agents tell of steps; elsewhere STARTED is."""
    CALLED_OFF = "called off"
    """The job was left where it is; `problem` says why. An end."""
    OVER = "over"
    """The job ended before it was stopped, or before it ran again. An end."""

    @property
    def ended(self) -> bool:
        """Nothing more follows."""
        return self in _ENDS


_ENDS = frozenset({Stage.RESUMED, Stage.CALLED_OFF, Stage.OVER})


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where and how large a job is to be when it is placed again."""

    avoid: frozenset[str] = frozenset()
    """Nodes that it is kept off, for as long as it can be placed without them in an empty cluster."""
    only: frozenset[str] = frozenset()
    """Nodes that it is to run on; empty: any."""
    gpus: int | None = None
    """GPUs in all; None: as many as before."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """One row of the table. Times in seconds since the Unix epoch, by the controller's clock; None: not come to."""

    number: int
    job_id: str
    """As users name it."""
    raw_id: int
    """As the job's processes know it."""
    submit_time_s: int
    """Of the run that is to be stopped; a requeue gives the job another."""
    restarts: int
    """Of the run that is to be stopped."""
    cause: Cause
    why: str
    """A sentence for people."""
    way: Way
    force: bool
    """Stop it even where it does not save in time."""
    nodes: tuple[str, ...]
    """Of the run that is to be stopped."""
    elsewhere: Elsewhere
    within_s: float
    """Seconds from `asked_s` on in which it has to save."""
    stage: Stage
    asked_s: float
    saved_s: float | None = None
    stopped_s: float | None = None
    started_s: float | None = None
    resumed_s: float | None = None
    ended_s: float | None = None
    step: int | None = None
    """Steps done at the checkpoint; None: not told."""
    attempt: int = 0
    """How often its ranks were asked, or its processes signalled."""
    problem: str = ""
    """Why it was called off, or is over; what is lost where it was forced."""

    @property
    def open(self) -> bool:
        """Something may follow. A job of whose steps nobody tells is STARTED in the end."""
        return self.ended_s is None
