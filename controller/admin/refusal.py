"""Refusal of a call of the Admin service: a gRPC status code, the reason as a word for programs, and a text for users."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn

import grpc

from controller.admin.protocol import REASON, Reason

if TYPE_CHECKING:  # a class of the type stubs only
    from protos.headway.v1 import admin_pb2_grpc

_CODES = {
    Reason.NOT_READY: grpc.StatusCode.UNAVAILABLE,
    Reason.JOBS_PRIVATE: grpc.StatusCode.PERMISSION_DENIED,
    Reason.ADMIN_ONLY: grpc.StatusCode.PERMISSION_DENIED,
    Reason.INVALID_JOB_ID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.UNKNOWN_JOB: grpc.StatusCode.NOT_FOUND,
    Reason.NOTHING_MEASURED: grpc.StatusCode.NOT_FOUND,
    Reason.NO_AGENTS: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.INVALID_ADDRESS: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.POLICY_UNUSABLE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.INVALID_PREEMPTION: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.NOT_PREEMPTIBLE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NOT_RESIZABLE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.JOURNAL_FAILED: grpc.StatusCode.INTERNAL,
    Reason.PROFILES_UNREADABLE: grpc.StatusCode.INTERNAL,
    Reason.USER_NOT_ACCEPTED: grpc.StatusCode.PERMISSION_DENIED,
    Reason.NOT_PROFILABLE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NOT_YOUR_JOB: grpc.StatusCode.PERMISSION_DENIED,
    Reason.CHANGES_SPENT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_MANY_CALLS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_MANY_WATCHERS: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class CallRefused(Exception):  # noqa: N818 - it is an answer, and no fault
    """The call is refused, for that reason; the text is for the user."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def no_agents(so: str) -> CallRefused:
    """Return the refusal of a call that needs agents. `so` says what follows from their absence."""
    return CallRefused(
        Reason.NO_AGENTS,
        f"no node agents report to this controller, so {so}; set agents_address in controller.toml, and run headway-agent on the "
        "nodes",
    )


@asynccontextmanager
async def refusing(context: admin_pb2_grpc._ServicerContext) -> AsyncIterator[None]:
    """End the call as refused when the code within raises CallRefused."""
    try:
        yield
    except CallRefused as error:
        await refuse(context, error.reason, str(error))


async def refuse(context: admin_pb2_grpc._ServicerContext, reason: Reason, text: str) -> NoReturn:
    """End the call with that reason."""
    context.set_trailing_metadata(((REASON, reason.value),))
    await context.abort(_CODES[reason], text)
    raise AssertionError("abort raises")
