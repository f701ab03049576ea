"""Every call of the service: its name, its request, its answer, and how long it may take. Both clients are made of this."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar, Union

from headway_client.answers.jobs import Event, Explanation, Queue
from headway_client.answers.message import Message
from headway_client.answers.preemptions import PreemptionList, PreemptionRecord
from headway_client.answers.profiles import JobMeasurements, ProfileList, RequestedProfile
from headway_client.answers.reports import JobSummary
from headway_client.answers.requests import (
    EmptyRequest,
    ExportProfilesRequest,
    GetProfileRequest,
    GetReportRequest,
    ListPreemptionsRequest,
    ListProfilesRequest,
    PreemptRequest,
    RequestProfileRequest,
    UsePolicyRequest,
    WatchEventsRequest,
    WhyRequest,
)
from headway_client.answers.slowdown_rows import SlowdownRows
from headway_client.answers.status import PolicyInfo, Status
from headway_client.answers.usage import Usage
from headway_client.errors import ProtocolError
from headway_client.wire.channel import SERVICE, check_request

A = TypeVar("A", bound=Message)

JobId = Union[int, str]
"""Slurm's job id: 123 or "123"; "123_4" for one task of an array."""

ADVICE = (
    "`systemctl status headway-controller` and `headway doctor` show the cause. Jobs are not affected: while the controller is "
    "away, Slurm schedules by itself"
)
_SOON_S = 5.0
_POLICY_S = 60.0
_AGENTS_S = 15.0
_STORE_S = 60.0
_EXPORT_S = 600.0


@dataclass(frozen=True)
class Call(Generic[A]):
    """One call, ready to be sent."""

    method: str
    request: Message
    answer: type[A]
    admin: bool = False
    """True = only admin.sock takes it."""
    timeout_s: float = _SOON_S
    """Time limit unless the client has another, seconds."""
    longest_s: float = math.inf
    """Time limit that holds for each client, seconds."""
    pieces: bool = False
    """True = the answer comes in any number of messages, whose lists are to be joined."""

    @property
    def path(self) -> str:
        """gRPC's name of the method."""
        return SERVICE + self.method

    def encode(self) -> bytes:
        """Return the request as bytes. Raises InvalidRequestError: gRPC would swallow the errors of a serializer of its own."""
        return check_request(self.request.encode())

    def decode(self, messages: Sequence[bytes]) -> A:
        """Return the answer in these messages. Raises ProtocolError."""
        if not self.pieces:
            if len(messages) != 1:
                raise ProtocolError(f"the answer has {len(messages)} messages, and should have one")
            return self.answer.decode(messages[0])
        found = [self.answer.decode(message) for message in messages]
        names = [field.name for field in fields(self.answer)]  # type: ignore[arg-type]
        joined: Any = {name: tuple(row for piece in found for row in getattr(piece, name)) for name in names}
        return self.answer(**joined)


def status() -> Call[Status]:
    """State of controller, policy and cluster."""
    return Call("GetStatus", EmptyRequest(), Status)


def queue() -> Call[Queue]:
    """Every managed job that has not ended."""
    return Call("GetQueue", EmptyRequest(), Queue)


def why(job_id: JobId) -> Call[Explanation]:
    """Explanation of one job."""
    return Call("Why", WhyRequest(str(job_id)), Explanation)


def report(job_id: JobId) -> Call[JobSummary]:
    """Report on one job."""
    return Call("GetReport", GetReportRequest(str(job_id)), JobSummary, timeout_s=_STORE_S)


def usage() -> Call[Usage]:
    """GPU time of users."""
    return Call("GetUsage", EmptyRequest(), Usage, timeout_s=_STORE_S)


def policy() -> Call[PolicyInfo]:
    """The policy that decides."""
    return Call("GetPolicy", EmptyRequest(), PolicyInfo)


def use_policy(address: str) -> Call[PolicyInfo]:
    """Another policy server."""
    return Call("UsePolicy", UsePolicyRequest(address), PolicyInfo, admin=True, timeout_s=_POLICY_S)


def events(
    since_s: float | None = None, until_s: float | None = None, job_id: JobId = "", *, past_only: bool = False
) -> Call[Event]:
    """Past events since then, if that is given or only those are wanted, and coming ones."""
    begin_s = 0.0 if since_s is None and past_only else since_s
    return Call("WatchEvents", WatchEventsRequest(begin_s, until_s, str(job_id), past_only), Event)


def preempt(
    job_id: JobId,
    *,
    force: bool = False,
    within_s: float | None = None,
    only: Iterable[str] = (),
    avoid: Iterable[str] = (),
    gpus: int | None = None,
    away: bool = False,
) -> Call[PreemptionRecord]:
    """A preemption, with the nodes or the GPUs that the job is to have afterwards."""
    request = PreemptRequest(str(job_id), force, within_s, _names(avoid), _names(only), gpus, away)
    return Call("Preempt", request, PreemptionRecord)


def move(
    job_id: JobId, *, only: Iterable[str], avoid: Iterable[str], force: bool, within_s: float | None
) -> Call[PreemptionRecord]:
    """A preemption after which the job runs on other nodes: any but its present ones, where none are named."""
    to, off = _names(only), _names(avoid)
    return preempt(job_id, force=force, within_s=within_s, only=to, avoid=off, away=not to and not off)


def preemptions(limit: int = 0, number: int = 0, before: int = 0) -> Call[PreemptionList]:
    """Open and past preemptions (0: from the newest on), or the one of that number."""
    return Call("ListPreemptions", ListPreemptionsRequest(limit, number, before), PreemptionList)


def profiles(limit: int = 0, skip: int = 0, until_s: float | None = None) -> Call[ProfileList]:
    """Kinds of jobs that were measured."""
    return Call("ListProfiles", ListProfilesRequest(limit, skip, until_s), ProfileList, admin=True, timeout_s=_STORE_S)


def profile(job_id: JobId, limit: int) -> Call[JobMeasurements]:
    """Measurements of one job."""
    request = GetProfileRequest(str(job_id), limit)
    return Call("GetProfile", request, JobMeasurements, timeout_s=_STORE_S)


def request_profile(job_id: JobId, steps: int | None) -> Call[RequestedProfile]:
    """A new profile of a running job."""
    return Call("RequestProfile", RequestProfileRequest(str(job_id), steps), RequestedProfile, timeout_s=_AGENTS_S)


def export_profiles(since_s: float, racks: Mapping[str, str]) -> Call[SlowdownRows]:
    """All measurements as rows."""
    request = ExportProfilesRequest(since_s, racks)
    return Call("ExportProfiles", request, SlowdownRows, admin=True, timeout_s=_EXPORT_S, pieces=True)


def _names(given: Iterable[str]) -> tuple[str, ...]:
    """Return the names of nodes; one name may stand alone."""
    return (given,) if isinstance(given, str) else tuple(given)
