"""Refuse requests that are not messages of their type, answer calls in which something is cancelled, and count failing calls.

gRPC by itself answers UNKNOWN to the former, instead of INVALID_ARGUMENT, and writes a traceback into the log for each of them:
anybody who may connect could fill it. It does not answer the latter at all, as if their callers had gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from policies.serving.runtime.tasks.supervise import cancelled_by_others
from policies.serving.runtime.tasks.task_groups import Failed, uncounted

_WHY = "the request is not a message of its type; install the same version of Headway on both sides"
_CANCELLED = "something that this call waited for was cancelled in the server; try again"


class Malformed:
    """Stands in place of a request that could not be parsed. Only handlers of streams receive it."""


class StrictRequests(grpc.aio.ServerInterceptor):
    """Refuses malformed requests to all methods of a server. Invariant: no handler of a single request is called with anything
    but its message, and each call of a single request is answered, unless its caller or the server has ended it. Such a call that
    ends by an error which is no refusal is counted."""

    def __init__(self, failed: Failed = uncounted) -> None:
        """`failed` counts the errors, which are defects of the server; gRPC logs them, and answers UNKNOWN."""
        self._failed = failed

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the method's handler behind the check; None where there is no such method."""
        handler = await continuation(handler_call_details)
        return None if handler is None else _checked(handler, self._failed)


def _checked(handler: Any, failed: Failed) -> Any:
    ends = {
        "request_deserializer": _or_malformed(handler.request_deserializer),
        "response_serializer": handler.response_serializer,
    }
    if handler.request_streaming:
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(handler.stream_stream, **ends)
        return grpc.stream_unary_rpc_method_handler(handler.stream_unary, **ends)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(_refusing_stream(handler.unary_stream, failed), **ends)
    return grpc.unary_unary_rpc_method_handler(_refusing(handler.unary_unary, failed), **ends)


def _or_malformed(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    if parse is None:
        return None

    def parsed(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return Malformed()

    return parsed


def _refusing(serve: Callable[[Any, Any], Awaitable[Any]], failed: Failed) -> Callable[[Any, Any], Awaitable[Any]]:
    async def served(request: Any, context: Any) -> Any:
        if isinstance(request, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _WHY)
        async with _answering(context, failed):
            return await serve(request, context)

    return served


def _refusing_stream(
    serve: Callable[[Any, Any], AsyncIterator[Any]], failed: Failed
) -> Callable[[Any, Any], AsyncIterator[Any]]:
    async def served(request: Any, context: Any) -> AsyncIterator[Any]:
        if isinstance(request, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _WHY)
        async with _answering(context, failed):
            async for answer in serve(request, context):
                yield answer

    return served


@asynccontextmanager
async def _answering(context: Any, failed: Failed) -> AsyncIterator[None]:
    """End the call with UNAVAILABLE when something that it waits for is cancelled. Count that, and errors that are no refusals."""
    try:
        yield
    except asyncio.CancelledError as error:
        if not cancelled_by_others():  # gRPC has: the caller has gone, or the server stops
            raise
        failed(error)
        await context.abort(grpc.StatusCode.UNAVAILABLE, _CANCELLED)
    except grpc.aio.AbortError:  # the handler refuses the call
        raise
    except Exception as error:
        failed(error)
        raise
