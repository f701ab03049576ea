"""Refuse requests that are not messages of their type, with INVALID_ARGUMENT.

gRPC by itself answers UNKNOWN, and writes a traceback into the log for each of them: anybody who may connect could fill it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

_WHY = "the request is not a message of its type; install the same version of Headway on both sides"


class Malformed:
    """Stands in place of a request that could not be parsed. Only handlers of streams receive it."""


class StrictRequests(grpc.aio.ServerInterceptor):
    """Refuses malformed requests to all methods of a server. Invariant: no handler of a single request is called with anything
    but its message."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the method's handler behind the check; None where there is no such method."""
        handler = await continuation(handler_call_details)
        return None if handler is None else _checked(handler)


def _checked(handler: Any) -> Any:
    ends = {
        "request_deserializer": _or_malformed(handler.request_deserializer),
        "response_serializer": handler.response_serializer,
    }
    if handler.request_streaming:
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(handler.stream_stream, **ends)
        return grpc.stream_unary_rpc_method_handler(handler.stream_unary, **ends)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(_refusing_stream(handler.unary_stream), **ends)
    return grpc.unary_unary_rpc_method_handler(_refusing(handler.unary_unary), **ends)


def _or_malformed(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    if parse is None:
        return None

    def parsed(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return Malformed()

    return parsed


def _refusing(serve: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def served(request: Any, context: Any) -> Any:
        if isinstance(request, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _WHY)
        return await serve(request, context)

    return served


def _refusing_stream(serve: Callable[[Any, Any], AsyncIterator[Any]]) -> Callable[[Any, Any], AsyncIterator[Any]]:
    async def served(request: Any, context: Any) -> AsyncIterator[Any]:
        if isinstance(request, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _WHY)
        async for answer in serve(request, context):
            yield answer

    return served
