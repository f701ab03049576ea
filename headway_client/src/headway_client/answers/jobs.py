"""The queue, the explanation of a job, and events. Times are seconds since the Unix epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway_client.answers.fields import (
    many,
    maybe_real,
    maybe_sub,
    maybe_u32,
    maybe_u64,
    real,
    text,
    text_table,
    texts,
    u32,
    u64,
    word,
)
from headway_client.answers.message import Message
from headway_client.words import EventKind, JobState


@dataclass(frozen=True)
class StartEstimate(Message):
    """When a waiting job will start. Of ten such ranges, eight should hold. Times are seconds since the Unix epoch."""

    earliest_s: float = real(1)
    """It starts earlier with a probability of one in ten."""
    median_s: float = real(2)
    """Earlier and later are as probable."""
    latest_s: float = real(3)
    """It starts later with a probability of one in ten; 0 = so late that no time can be given."""
    known: int = u32(4)
    """Number of earlier ranges of about this horizon of which it is known whether they held; 0 = none yet."""
    held: int = u32(5)
    """So many of these held."""
    stand_in: str = text(6)
    """Policy by whose rule it was made, where that of the deciding policy cannot be computed so often; empty = its own."""
    made_s: float = real(7)
    """When it was made."""


@dataclass(frozen=True)
class QueueEntry(Message):
    """One managed job that has not ended."""

    job_id: str = text(1)
    user: str = text(2)
    name: str = text(3)
    """Name of the job, as its user chose it: untrusted text."""
    partition: str = text(4)
    state: JobState = word(5, JobState)
    num_gpus: int = u32(6)
    """GPUs of all its nodes together."""
    submit_time_s: float = real(7)
    """Time of the submission, seconds since the Unix epoch."""
    wait_s: float = real(8)
    """Seconds that it has waited, all its waits together."""
    placement: str = text(9)
    """Nodes with their GPUs, "n1:8,n2:4"; empty while it waits."""
    why: str = text(10)
    """One sentence."""
    waits_for: str = text(11)
    """Reason of its wait, as one of few phrases; empty = it does not wait."""
    slowdown: float | None = maybe_real(12)
    """How many times slower it trains than alone; None = not known."""
    slowdown_confidence: float | None = maybe_real(13)
    """From 0 to 1."""
    beside: tuple[str, ...] = texts(14)
    """Ids of jobs that share a link or host with it."""
    idle_gpus: int | None = maybe_u32(15)
    """Its GPUs on which it had no process in its newest window; None = not measured."""
    start: StartEstimate | None = maybe_sub(16, StartEstimate)
    """When it will start; None = it does not wait, or there is no estimate."""
    steps: int | None = maybe_u64(17)
    """Optimizer steps that it has made in all runs; None = it does not run, or they are not known."""
    steps_in_all: int | None = maybe_u64(18)
    """Optimizer steps that it trains in all, as its user has said (`headway=steps:N`); None = not given."""


@dataclass(frozen=True)
class Queue(Message):
    """Every managed job that has not ended."""

    entries: tuple[QueueEntry, ...] = many(1, QueueEntry)
    """Waiting jobs first, in the policy's order; then starting, yielded, running and ineligible ones."""


@dataclass(frozen=True)
class DecisionRecord(Message):
    """One decision about a job."""

    time_s: float = real(1)
    """Time of the decision, seconds since the Unix epoch."""
    sequence: int = u64(2)
    """Number of the snapshot since the controller started."""
    snapshot_digest: str = text(3)
    """SHA-256 of the state that was decided on."""
    policy: str = text(4)
    """Name of the policy, or fallback:NAME."""
    placement: str = text(5)
    reason: str = text(6)
    """The policy's own words; may be empty."""


@dataclass(frozen=True)
class Explanation(Message):
    """Why a job waits, or why it runs where it runs."""

    job_id: str = text(1)
    state: JobState = word(2, JobState)
    sentence: str = text(3)
    """A sentence for people."""
    facts: Mapping[str, str] = text_table(4)
    """The values on which the sentence is based, by name."""
    decisions: tuple[DecisionRecord, ...] = many(5, DecisionRecord)
    """Decisions for the job, newest first."""
    start: StartEstimate | None = maybe_sub(6, StartEstimate)
    """When it will start; None = it does not wait, or there is no estimate."""


@dataclass(frozen=True)
class Event(Message):
    """Something that has happened."""

    time_s: float = real(1)
    """Seconds since the Unix epoch."""
    kind: EventKind = word(2, EventKind)
    job_id: str = text(3)
    """Empty = the event is not about one job."""
    user: str = text(5)
    """The job's user; empty = the event is not about one job, or the user is not known."""
    text: str = text(4)
    """A sentence for people."""
