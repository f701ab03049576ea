"""Preemptions. Times are seconds since the Unix epoch; None = not reached."""

from __future__ import annotations

from dataclasses import dataclass

from headway_client.answers.fields import (
    flag,
    many,
    maybe_real,
    maybe_u32,
    maybe_u64,
    real,
    text,
    texts,
    u32,
    u64,
    word,
)
from headway_client.answers.message import Message
from headway_client.words import PreemptionCause, PreemptionEndReason, PreemptionStage, PreemptionWay


@dataclass(frozen=True)
class PreemptionRecord(Message):
    """One preemption: a running job that saves, is stopped, and continues later."""

    number: int = u64(1)
    """Identifies the preemption."""
    job_id: str = text(2)
    cause: PreemptionCause = word(3, PreemptionCause)
    why: str = text(4)
    """A sentence for people."""
    way: PreemptionWay = word(5, PreemptionWay)
    force: bool = flag(6)
    """True = the job is stopped even if it does not save in time, or cannot."""
    nodes: tuple[str, ...] = texts(7)
    """Nodes of its last run."""
    avoid: tuple[str, ...] = texts(8)
    """Nodes that its next placement must avoid."""
    only: tuple[str, ...] = texts(9)
    """The only nodes that its next placement may use; empty = any."""
    gpus: int | None = maybe_u32(10)
    """Total number of GPUs from now on; None = as before."""
    within_s: float = real(11)
    """Time to save in, seconds."""
    stage: PreemptionStage = word(12, PreemptionStage)
    open: bool = flag(13)
    """False = the preemption has ended."""
    asked_s: float = real(14)
    saved_s: float | None = maybe_real(15)
    stopped_s: float | None = maybe_real(16)
    started_s: float | None = maybe_real(17)
    resumed_s: float | None = maybe_real(18)
    ended_s: float | None = maybe_real(19)
    step: int | None = maybe_u64(20)
    """Training steps done at the checkpoint from which it resumes."""
    problem: str = text(21)
    """Why it was called off, or has ended; with force, what was lost."""
    restarts: int = u32(22)
    """Number of times that Slurm had requeued the job before."""
    user_changes_left: int | None = maybe_u32(23)
    """In the answer to a user's own request: number of changes of their own jobs that they may request now; None = no limit."""
    reason: PreemptionEndReason = word(24, PreemptionEndReason)
    """Why it was called off, or is over, for programs; `problem` is the text for people."""


@dataclass(frozen=True)
class PreemptionList(Message):
    """Several preemptions."""

    preemptions: tuple[PreemptionRecord, ...] = many(1, PreemptionRecord)
    """Newest first."""
    more: bool = flag(2)
    """True = there are older ones that this user may see: ask for those before the last number."""
