"""A client for a policy server, for event loops.

Whatever the server does (hang, die, come back, answer with invalid data), each call ends by its deadline with an answer that is
checked, or with a PolicyServerError that says what was wrong. The same holds when the client is closed during the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from policies.api import Decision, Outcome, PolicySpec
from policies.documents import printable
from policies.errors import PolicyFault, PolicyServerError, WireError
from policies.model import ClusterState
from policies.serving.peers import TrustedUsers
from policies.serving.relay import Relay
from policies.serving.runtime.address import parse_address
from policies.serving.runtime.tasks.task_groups import Failed, uncounted
from policies.wire.messages import decode_spec, encode_outcome, parse_decision, serialize_state
from protos.headway.v1 import policy_pb2

SERVICE = "headway.v1.Policy"
MAX_REPLY_BYTES = 16 << 20
"""A decision on 10,000 jobs with a reason for each is below 3 MiB; longer replies are refused unread."""

_TOO_LARGE = "larger than max"
"""gRPC's words, of either side, for a message that is not read; it has no status code of its own for that."""

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REPLY_BYTES),
    ("grpc.max_send_message_length", -1),
    # A restarted server is found again within half a second. (The "min" one is how long a single attempt may take.)
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 1000),
    # Proxies configured for the web must not be used for a socket on this machine.
    ("grpc.enable_http_proxy", 0),
    # Otherwise two clients in one process share a connection, and one's trouble becomes the other's.
    ("grpc.use_local_subchannel_pool", 1),
    # An open connection shows that the server is there, also between calls.
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
)

if TYPE_CHECKING:  # the classes are generic in the type stubs only
    _Unary = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    _Streaming = grpc.aio.StreamUnaryMultiCallable[bytes, bytes]


class PolicyClient:
    """A connection to one policy server; it opens at the first call, and again after it has broken.

    Use as an async context manager, or call `close`. Safe for concurrent calls on one event loop.
    """

    def __init__(self, address: str, trusted: TrustedUsers | None = None, failed: Failed = uncounted) -> None:
        """`address` is unix:///path or host:port on loopback. Raises AddressError.

        With `trusted`, no request is sent to a server whose process belongs to another user. `failed` counts
        connections to it that fail for an error of this code.
        """
        where = parse_address(address)
        self.address = str(where)
        self._relay = None if trusted is None else Relay(where, trusted, failed)
        target = where.target if self._relay is None else self._relay.target
        authority = [] if self._relay is None else [("grpc.default_authority", "localhost")]
        self._channel = grpc.aio.insecure_channel(target, options=[*_CHANNEL_OPTIONS, *authority])
        # Replies come as bytes, so that this class can check them and say what is wrong with them.
        self._describe: _Unary = self._channel.unary_unary(f"/{SERVICE}/Describe")
        self._decide: _Unary = self._channel.unary_unary(f"/{SERVICE}/Decide")
        self._learn: _Streaming = self._channel.stream_unary(f"/{SERVICE}/Learn")
        self._check: _Unary = self._channel.unary_unary("/grpc.health.v1.Health/Check")

    @property
    def connection(self) -> int:
        """Number of the newest connection: while it is unchanged, the same process answers. Always 0 without `trusted`."""
        return 0 if self._relay is None else self._relay.connection

    @property
    def connected(self) -> bool:
        """True if that connection is open, as far as is known; always True without `trusted`."""
        return self._relay is None or self._relay.connected

    async def describe(self, deadline_s: float = 2.0) -> PolicySpec:
        """Return the policy's spec. Raises PolicyServerError."""
        request = policy_pb2.DescribeRequest().SerializeToString()
        reply = await self._answer(lambda: self._describe(request, timeout=deadline_s))
        try:
            return decode_spec(policy_pb2.PolicyDescription.FromString(reply))
        except (WireError, DecodeError) as error:
            raise self._error(PolicyFault.INVALID_REPLY, f"Describe: {error}") from error

    async def healthy(self, deadline_s: float = 2.0) -> bool:
        """Return whether the server reports that the policy is serving. False also when it cannot be reached. Never raises."""
        request = health_pb2.HealthCheckRequest(service=SERVICE).SerializeToString()
        try:
            answer = await self._answer(lambda: self._check(request, timeout=deadline_s))
            reply = health_pb2.HealthCheckResponse.FromString(answer)
        except (PolicyServerError, DecodeError):
            return False
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)

    async def decide(self, state: ClusterState, deadline_s: float) -> Decision:
        """Return the policy's decision on that state. Raises PolicyServerError."""
        request = serialize_state(state)
        reply = await self._answer(lambda: self._decide(request, timeout=deadline_s))
        try:
            sequence, decision = parse_decision(reply, state)
        except WireError as error:
            raise self._error(PolicyFault.INVALID_REPLY, f"Decide: {error}") from error
        if sequence != state.sequence:
            detail = f"the answer is for snapshot {sequence}, the request was for {state.sequence}"
            raise self._error(PolicyFault.WRONG_SEQUENCE, detail)
        return decision

    async def learn(self, outcomes: Iterable[Outcome], deadline_s: float = 10.0) -> int:
        """Report how jobs ended. Returns how many reports the server read. Raises PolicyServerError."""

        async def stream() -> AsyncIterator[bytes]:
            for outcome in outcomes:
                yield encode_outcome(outcome).SerializeToString()

        reply = await self._answer(lambda: self._learn(stream(), timeout=deadline_s))
        try:
            return policy_pb2.LearnSummary.FromString(reply).received
        except DecodeError as error:
            raise self._error(PolicyFault.INVALID_REPLY, f"Learn: {error}") from error

    async def close(self) -> None:
        """End the connection; calls in flight end with a PolicyServerError."""
        await self._channel.close()
        if self._relay is not None:
            await self._relay.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _answer(self, begin: Callable[[], Awaitable[bytes]]) -> bytes:
        try:
            if self._relay is not None:
                await self._relay.start()
            return await begin()
        except grpc.aio.AioRpcError as error:
            raise self._server_error(error) from error
        except (grpc.aio.BaseError, OSError) as error:
            raise self._error(PolicyFault.UNREACHABLE, f"{type(error).__name__}: {error}") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The call was cancelled and not this task: grpc.aio does so when the channel is closed.
            raise self._error(PolicyFault.UNREACHABLE, "the connection was closed during the call") from error

    def _server_error(self, error: grpc.aio.AioRpcError) -> PolicyServerError:
        if self._relay is not None and self._relay.problem and error.code() is grpc.StatusCode.UNAVAILABLE:
            fault = PolicyFault.UNTRUSTED if self._relay.refused else PolicyFault.UNREACHABLE
            return self._error(fault, self._relay.problem)
        words = error.details() or ""
        if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in words:
            return self._error(PolicyFault.TOO_LARGE, _too_large(words))
        return self._error(_fault(error), f"{error.code().name}: {words or 'the server gave no text'}")

    def _error(self, fault: PolicyFault, detail: str) -> PolicyServerError:
        return PolicyServerError(fault, self.address, printable(detail[:500]))


def _fault(error: grpc.aio.AioRpcError) -> PolicyFault:
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            return PolicyFault.UNREACHABLE
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return PolicyFault.DEADLINE
        case _:
            return PolicyFault.FAILED


def _too_large(words: str) -> str:
    """Return which message was too large, from gRPC's words about it."""
    if f"vs. {MAX_REPLY_BYTES})" in words:
        return f"the answer is longer than the {MAX_REPLY_BYTES >> 20} MiB that are read: give shorter or fewer reasons ({words})"
    return f"the server does not read a request of this size: raise grpc.max_receive_message_length there ({words})"
