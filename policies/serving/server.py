"""The gRPC policy server: one policy behind the service headway.v1.Policy, with standard health and reflection."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from policies.api import ContinuedLearner, Learner, Policy, ordered_by
from policies.errors import WireError
from policies.serving.runtime import listen
from policies.serving.runtime.address import parse_address
from policies.serving.runtime.gc_pauses import paused_collector
from policies.serving.runtime.sdnotify import Notifier
from policies.serving.runtime.tasks.single_thread import Worker
from policies.wire import messages as wire
from protos.headway.v1 import policy_pb2

SERVICE = policy_pb2.DESCRIPTOR.services_by_name["Policy"].full_name
MAX_REQUEST_BYTES = 64 << 20
"""Snapshots beyond this are refused; one of 10,000 jobs and 2,000 nodes is 1.3 MB."""
HUNG_AFTER_S = 60.0
"""A decision that takes longer counts as hung: the watchdog gets no more signals, and systemd restarts the server."""
GRACE_S = 5.0
"""Time for calls in flight when the server ends, in seconds."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    # Otherwise two servers on one port would silently share its calls.
    ("grpc.so_reuseport", 0),
)
_log = structlog.get_logger("policy")
Result = TypeVar("Result")


class PolicyServer:
    """Serves one policy at one address.

    The policy is only ever called from one thread of its own, one call at a time, so that it needs no locks, and health
    checks are answered during a decision.
    """

    def __init__(self, policy: Policy, address: str, between: Callable[[], object] = lambda: None) -> None:
        """`address` is unix:///path, or host:port on loopback (port 0: any free one). Raises AddressError.

        `between` is called between the policy's answers, in the policy's thread.
        """
        self._policy = policy
        self._wanted = parse_address(address)
        self._worker = Worker("policy", between)
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=_OPTIONS)
        self._listens = False
        self.address = str(self._wanted)
        """Address at which it listens; after `start` with its real port."""

    async def start(self) -> None:
        """Listen and answer. Raises ListenError."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self.address = str(listen.bind(self._server, self._wanted))
        self._listens = True
        await self._server.start()
        if isinstance(self._policy, ContinuedLearner):
            self._policy.begin()
        await self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        _log.info("serving", policy=self._policy.spec.name, address=self.address)

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Report not serving, let calls in flight end for at most that long, and stop."""
        await self._health.enter_graceful_shutdown()
        await listen.end(self._server, grace_s)
        self._worker.end()
        if isinstance(self._policy, ContinuedLearner):
            await asyncio.to_thread(self._policy.end)
        # gRPC has removed its socket as the first thing: the file that may be there now is that of the next server.
        if self._listens:
            _log.info("stopped", policy=self._policy.spec.name, address=self.address)

    @property
    def hung(self) -> bool:
        """True if the policy has been busy with one call for longer than HUNG_AFTER_S."""
        return self._worker.busy_s > HUNG_AFTER_S

    def _handlers(self) -> grpc.GenericRpcHandler:
        # Requests come as bytes, so that this class can check them and answer INVALID_ARGUMENT.
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Describe": grpc.unary_unary_rpc_method_handler(self._describe),
                "Decide": grpc.unary_unary_rpc_method_handler(self._decide),
                "Learn": grpc.stream_unary_rpc_method_handler(self._learn),
            },
        )

    async def _describe(self, _request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        spec = replace(self._policy.spec, ordered_by=ordered_by(self._policy))
        if isinstance(self._policy, ContinuedLearner):
            spec = replace(spec, learning=self._policy.learning())
        return wire.encode_spec(spec).SerializeToString()

    async def _decide(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        def answer() -> bytes:
            state = wire.parse_state(request)
            return wire.encode_decision(self._policy.decide(state), state.sequence).SerializeToString()

        return await self._run(answer, context)

    async def _learn(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        received = 0
        async for request in requests:
            await self._run(partial(self._take_in, request), context)
            received += 1
        return policy_pb2.LearnSummary(received=received).SerializeToString()

    def _take_in(self, request: bytes) -> None:
        try:
            outcome = wire.decode_outcome(policy_pb2.Outcome.FromString(request))
        except DecodeError as error:
            raise WireError(f"Outcome: {len(request)} bytes that cannot be decoded as one") from error
        if isinstance(self._policy, Learner):
            self._policy.learn(outcome)

    async def _run(self, work: Callable[[], Result], context: grpc.aio.ServicerContext[bytes, bytes]) -> Result:
        try:
            return await self._worker.run(work)
        except WireError as error:
            _log.warning("refused", peer=context.peer(), error=str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Exception as error:  # noqa: BLE001 - policies are third-party code: the caller gets the error, and the server continues
            _log.exception("policy failed", policy=self._policy.spec.name)
            await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
        raise AssertionError("abort returned")


async def serve(policy: Policy, address: str, notifier: Notifier | None = None) -> None:
    """Serve until SIGTERM or SIGINT, and notify systemd. Raises AddressError and ListenError."""
    notifier = Notifier() if notifier is None else notifier
    with paused_collector() as collector:
        await _serve(PolicyServer(policy, address, between=collector.collect), policy.spec.name, notifier)


async def _serve(server: PolicyServer, name: str, notifier: Notifier) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await server.start()
    notifier.ready(f"{name} on {server.address}")
    while not ended.is_set():
        if not server.hung:
            notifier.watchdog()
        with suppress(TimeoutError):
            async with asyncio.timeout((notifier.watchdog_s or 60.0) / 2):
                await ended.wait()
    notifier.stopping()
    await server.stop()
