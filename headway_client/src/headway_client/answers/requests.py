"""Requests, one for each call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway_client.answers.fields import flag, maybe_real, maybe_u32, real, text, text_table, texts, u32, u64
from headway_client.answers.message import Message


@dataclass(frozen=True)
class EmptyRequest(Message):
    """The request of a call without arguments."""


@dataclass(frozen=True)
class WhyRequest(Message):
    """Explain one job."""

    job_id: str = text(1)


@dataclass(frozen=True)
class GetReportRequest(Message):
    """Report what became of one job."""

    job_id: str = text(1)


@dataclass(frozen=True)
class UsePolicyRequest(Message):
    """Let another policy server decide."""

    address: str = text(1)


@dataclass(frozen=True)
class WatchEventsRequest(Message):
    """Send events. Times are seconds since the Unix epoch."""

    since_s: float | None = maybe_real(1)
    until_s: float | None = maybe_real(2)
    job_id: str = text(3)
    past_only: bool = flag(4)


@dataclass(frozen=True)
class PreemptRequest(Message):
    """Let a running job save, and stop it."""

    job_id: str = text(1)
    force: bool = flag(2)
    within_s: float | None = maybe_real(3)
    avoid: tuple[str, ...] = texts(4)
    only: tuple[str, ...] = texts(5)
    gpus: int | None = maybe_u32(6)
    away: bool = flag(7)


@dataclass(frozen=True)
class ListPreemptionsRequest(Message):
    """List preemptions."""

    limit: int = u32(1)
    number: int = u64(2)
    before: int = u64(3)


@dataclass(frozen=True)
class ListProfilesRequest(Message):
    """List kinds of jobs that were measured."""

    limit: int = u32(1)
    skip: int = u32(2)
    until_s: float | None = maybe_real(3)


@dataclass(frozen=True)
class GetProfileRequest(Message):
    """Show the measurements of one job."""

    job_id: str = text(1)
    limit: int = u32(2)


@dataclass(frozen=True)
class RequestProfileRequest(Message):
    """Let the agents of a running job profile its next steps."""

    job_id: str = text(1)
    steps: int | None = maybe_u32(2)


@dataclass(frozen=True)
class ExportProfilesRequest(Message):
    """Export all measurements as rows."""

    since_s: float = real(1)
    racks: Mapping[str, str] = text_table(2)
