"""The end of a call: gRPC's status and metadata, and the error that they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from headway_client.errors import (
    AnswerTimeoutError,
    BusyError,
    ControllerError,
    HeadwayError,
    InvalidRequestError,
    NotFoundError,
    NotPermittedError,
    NotReadyError,
    ProtocolError,
    RefusedError,
    UnavailableError,
    VersionError,
)
from headway_client.wire.channel import too_large
from headway_client.words import Reason

_REASON = "headway-reason"
_TOO_LARGE = "larger than max"
"""gRPC says so when it refuses to read a message; it has no status code of its own for that."""
BY_CODE: dict[grpc.StatusCode, type[HeadwayError]] = {
    grpc.StatusCode.CANCELLED: UnavailableError,  # the controller ends
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.DEADLINE_EXCEEDED: AnswerTimeoutError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.PERMISSION_DENIED: NotPermittedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: BusyError,
    grpc.StatusCode.FAILED_PRECONDITION: RefusedError,
    grpc.StatusCode.UNIMPLEMENTED: VersionError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
}
"""Class of each status code; every other code is a ControllerError."""
_BY_REASON: dict[Reason, type[HeadwayError]] = {Reason.NOT_READY: NotReadyError}


@dataclass(frozen=True)
class CallEnd:
    """The end of a call that failed: the status code, the text for people, and the controller's reason."""

    code: grpc.StatusCode
    text: str
    reason: Reason | None = None

    @property
    def away(self) -> bool:
        """True when no controller has answered."""
        return self.reason is None and BY_CODE.get(self.code) is UnavailableError

    def error(self, max_bytes: int) -> HeadwayError:
        """Return the error that this is; `max_bytes` was the limit of the answer."""
        text = self.text or f"the controller refused the call with {self.code.name}, and gave no text"
        if self.reason is not None:
            return _BY_REASON.get(self.reason, BY_CODE.get(self.code, ControllerError))(text, self.reason)
        if self.code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in text:
            return too_large(max_bytes)
        if self.code is grpc.StatusCode.INTERNAL:  # gRPC's own; the controller gives a reason
            return ProtocolError(f"the answer is damaged: {text}")
        return BY_CODE.get(self.code, ControllerError)(text)


def call_end_of(error: Any) -> CallEnd:
    """Return the end in a grpc.RpcError, or in a call that has ended: both have it, though their types do not say so."""
    metadata: Sequence[tuple[str, str]] = error.trailing_metadata() or ()
    reason = next((value for key, value in metadata if key == _REASON), None)
    return CallEnd(error.code(), error.details() or "", Reason(reason) if reason else None)
