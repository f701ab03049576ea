"""Calls of the Admin service, as operators and users make them in the scripted runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from controller.admin.protocol import ADMIN_SOCKET, REASON, STATUS_SOCKET
from protos.headway.v1 import admin_pb2, admin_pb2_grpc

ANSWER_S = 20.0
"""Time for one answer, seconds."""
_Make = Callable[[str], Any]
"""Returns the request about the job of that id."""
_OF_ALL: dict[str, _Make] = {
    "GetStatus": lambda _: admin_pb2.GetStatusRequest(),
    "GetQueue": lambda _: admin_pb2.GetQueueRequest(),
    "Why of a job that is not known": lambda _: admin_pb2.WhyRequest(job_id="9999"),
    "Why": lambda job_id: admin_pb2.WhyRequest(job_id=job_id),
    "GetReport": lambda job_id: admin_pb2.GetReportRequest(job_id=job_id),
    "GetUsage": lambda _: admin_pb2.GetUsageRequest(),
    "GetPolicy": lambda _: admin_pb2.GetPolicyRequest(),
    "GetProfile": lambda job_id: admin_pb2.GetProfileRequest(job_id=job_id),
    "ListPreemptions": lambda _: admin_pb2.ListPreemptionsRequest(),
    "WatchEvents": lambda job_id: admin_pb2.WatchEventsRequest(since_s=0.0, past_only=True, job_id=job_id),
    "RequestProfile": lambda job_id: admin_pb2.RequestProfileRequest(job_id=job_id, steps=5),
}
"""Calls that users may make for jobs of their own."""
_OPERATORS = _OF_ALL | {
    "ListProfiles": lambda _: admin_pb2.ListProfilesRequest(),
    "ExportProfiles": lambda _: admin_pb2.ExportProfilesRequest(),
    "Preempt": lambda job_id: admin_pb2.PreemptRequest(job_id=job_id, force=True, within_s=1.0, away=True),
}
_STREAMS = {"WatchEvents", "ExportProfiles"}


class Calls:
    """Makes each call once. Invariant: `unanswered` has the calls that got neither an answer nor an error in time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.unanswered: list[str] = []

    async def all(self, job_id: str) -> list[str]:
        """Make all calls about that job, those of users and those of operators. Returns what went wrong; a refusal is an answer."""
        failed = []
        for socket, calls in ((STATUS_SOCKET, _OF_ALL), (ADMIN_SOCKET, _OPERATORS)):
            async with grpc.aio.insecure_channel(f"unix:{self._folder / socket}") as channel:
                stub = admin_pb2_grpc.AdminStub(channel)
                for name, make in calls.items():
                    if problem := await self._one(stub, name, make(job_id)):
                        failed.append(f"{name} at {socket}: {problem}")
        return failed

    async def _one(self, stub: Any, name: str, request: Any) -> str:
        try:
            call = getattr(stub, name.split(maxsplit=1)[0])(request, timeout=ANSWER_S)
            if name in _STREAMS:
                async for _ in call:
                    pass
            else:
                await call
        except grpc.aio.AioRpcError as error:
            if REASON in dict(error.trailing_metadata()):
                return ""
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self.unanswered.append(name)
            return f"{error.code().name}: {error.details()}"
        return ""
