"""A request that is no message of its type is refused, logged nowhere, and costs no other call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from policies.serving.runtime.strict_requests import Malformed, StrictRequests
from protos.headway.v1 import policy_pb2

_ENDS: dict[str, Any] = {
    "request_deserializer": policy_pb2.Outcome.FromString,
    "response_serializer": policy_pb2.Outcome.SerializeToString,
}


async def _one(request: policy_pb2.Outcome, _context: Any) -> policy_pb2.Outcome:
    return request


async def _several(request: policy_pb2.Outcome, _context: Any) -> AsyncIterator[policy_pb2.Outcome]:
    for _ in range(2):
        yield request


async def _cancelled(_request: policy_pb2.Outcome, _context: Any) -> policy_pb2.Outcome:
    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    result: policy_pb2.Outcome = await cancelled
    return result


async def _cancelled_later(request: policy_pb2.Outcome, context: Any) -> AsyncIterator[policy_pb2.Outcome]:
    yield request
    yield await _cancelled(request, context)


async def _broken(_request: policy_pb2.Outcome, _context: Any) -> policy_pb2.Outcome:
    raise KeyError("a defect")


async def _broken_later(request: policy_pb2.Outcome, _context: Any) -> AsyncIterator[policy_pb2.Outcome]:
    yield request
    raise KeyError("a defect later")


async def _refused(_request: policy_pb2.Outcome, context: Any) -> policy_pb2.Outcome:
    await context.abort(grpc.StatusCode.NOT_FOUND, "no such job")
    raise AssertionError("abort raises")


async def _stream(requests: AsyncIterator[Any], _context: Any) -> AsyncIterator[policy_pb2.Outcome]:
    async for request in requests:
        yield policy_pb2.Outcome(job_id="malformed") if isinstance(request, Malformed) else request


@pytest.fixture
def failures() -> list[BaseException]:
    """Errors that were counted."""
    return []


@pytest.fixture
async def channel(tmp_path: Path, failures: list[BaseException]) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server(interceptors=(StrictRequests(failures.append),))
    handlers = {
        "One": grpc.unary_unary_rpc_method_handler(_one, **_ENDS),
        "Several": grpc.unary_stream_rpc_method_handler(_several, **_ENDS),
        "Cancelled": grpc.unary_unary_rpc_method_handler(_cancelled, **_ENDS),
        "CancelledLater": grpc.unary_stream_rpc_method_handler(_cancelled_later, **_ENDS),
        "Broken": grpc.unary_unary_rpc_method_handler(_broken, **_ENDS),
        "BrokenLater": grpc.unary_stream_rpc_method_handler(_broken_later, **_ENDS),
        "Refused": grpc.unary_unary_rpc_method_handler(_refused, **_ENDS),
        "Stream": grpc.stream_stream_rpc_method_handler(_stream, **_ENDS),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", handlers),))
    server.add_insecure_port(f"unix:{tmp_path}/s.sock")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s.sock") as opened:
        yield opened
    await server.stop(0)


GOOD = policy_pb2.Outcome(job_id="7").SerializeToString()
BAD = b"\x0a\xff"


async def test_single_requests(channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture) -> None:
    one, several = channel.unary_unary("/Test/One"), channel.unary_stream("/Test/Several")
    with caplog.at_level(logging.DEBUG):
        for call in (one(BAD, timeout=60), _all(several(BAD, timeout=60))):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Traceback" not in caplog.text
    assert await one(GOOD, timeout=60) == GOOD
    assert await _all(several(GOOD, timeout=60)) == [GOOD, GOOD]


async def test_calls_that_end_by_an_error_of_the_server_are_counted_and_refusals_are_not(
    channel: grpc.aio.Channel, failures: list[BaseException]
) -> None:
    for name, code in (("Broken", grpc.StatusCode.UNKNOWN), ("Refused", grpc.StatusCode.NOT_FOUND)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/Test/{name}")(GOOD, timeout=60)
        assert caught.value.code() is code
    with pytest.raises(grpc.aio.AioRpcError):
        await channel.unary_unary("/Test/One")(BAD, timeout=60)
    with pytest.raises(grpc.aio.AioRpcError):
        await _all(channel.unary_stream("/Test/BrokenLater")(GOOD, timeout=60))
    assert [str(error) for error in failures] == ["'a defect'", "'a defect later'"]


async def test_a_call_in_which_something_is_cancelled_is_answered_and_counted(
    channel: grpc.aio.Channel, failures: list[BaseException]
) -> None:
    for call in (
        channel.unary_unary("/Test/Cancelled")(GOOD, timeout=60),
        _all(channel.unary_stream("/Test/CancelledLater")(GOOD, timeout=60)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert [type(error) for error in failures] == [asyncio.CancelledError] * 2


async def test_streams_are_told(channel: grpc.aio.Channel) -> None:
    async def requests() -> AsyncIterator[bytes]:
        yield GOOD
        yield BAD

    answers = await _all(channel.stream_stream("/Test/Stream")(requests(), timeout=60))
    assert [policy_pb2.Outcome.FromString(answer).job_id for answer in answers] == ["7", "malformed"]


async def test_an_unknown_method_is_answered_with_unimplemented(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary("/Test/None")(GOOD, timeout=60)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def _all(call: Any) -> list[bytes]:
    return [answer async for answer in call]
