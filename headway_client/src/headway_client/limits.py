"""Limits of calls: their time, their number at once, and the size of an answer; and the errors of calls that exceed them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import grpc
from headway_client.calls import ADVICE, Call
from headway_client.errors import AnswerTimeoutError, HeadwayError, InvalidRequestError
from headway_client.sockets import failure
from headway_client.wire.call_end import call_end_of

MAX_ANSWER_BYTES = 64 << 20
"""Maximum size of an answer unless the program gives another, in bytes: a queue of 200,000 jobs."""
MAX_CALLS = 6
"""Calls of one client at once. The controller gives a user 16 connections, for all programs and streams of events together."""


def check_limits(timeout_s: float | None, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
    """Raise InvalidRequestError for invalid limits."""
    if timeout_s is not None and not (0 < timeout_s < math.inf):
        raise InvalidRequestError(f"{timeout_s} s is not a time limit; give more than 0 seconds")
    if max_answer_bytes < 1:
        raise InvalidRequestError(f"max_answer_bytes: {max_answer_bytes} is too small; give 1 at least")


def limit_of(call: Call[Any], timeout_s: float | None) -> float:
    """Return the time limit of a call, in seconds: the client's, or the call's own; not beyond the wait that it is part of."""
    return min(call.timeout_s if timeout_s is None else timeout_s, call.longest_s)


def too_late(method: str, limit_s: float) -> AnswerTimeoutError:
    """Return the error of a call without a whole answer within its time limit."""
    return AnswerTimeoutError(f"the controller did not answer the call {method} within {limit_s:g} s ({ADVICE})")


def problem_of(error: Any, call: Call[Any], path: Path, limit_s: float, max_bytes: int) -> HeadwayError:
    """Return the error of a call through that socket, from gRPC's error, or from a call of gRPC that has ended."""
    end = call_end_of(error)
    if end.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return too_late(call.method, limit_s)
    if end.away:
        return failure(path, end, admin=call.admin)
    return end.error(max_bytes)
