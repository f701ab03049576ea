"""The agent's end of the stream to the controller: it dials, sends a hello and then the outbox, and dials again after an end.

It blocks no other part of the agent: reports wait in the outbox until there is a stream; commands arrive as callbacks. Whatever
the network, the controller or munged do, `run` continues.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from nodeagent.errors import AgentError
from nodeagent.uplink.ca_file import read_ca_file
from nodeagent.uplink.endpoint import Endpoint, parse_endpoint, require_local
from nodeagent.uplink.munge import CredentialCodec
from nodeagent.uplink.outbox import Outbox
from nodeagent.uplink.session import KEY_BYTES, METADATA_KEY, Direction, Signer, Verifier, make_ticket
from policies.serving.runtime.tasks.backoff import Backoff, Retries
from policies.serving.runtime.tasks.supervise import cancelled_by_others
from policies.serving.runtime.tasks.task_groups import first_of
from protos.headway.v1 import agent_pb2, agent_pb2_grpc

if TYPE_CHECKING:  # the class is generic in the type stubs only
    _Call = grpc.aio.StreamStreamCall[agent_pb2.AgentMessage, agent_pb2.ControllerMessage]

MAX_MESSAGE_BYTES = 256 << 10
"""The longest message that either side accepts; the frame of a profile has at most 64 KiB."""
_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
    # Each stream has its own connection, which ends with it.
    ("grpc.use_local_subchannel_pool", 1),
)
log = structlog.get_logger(__name__)


class StreamError(AgentError):
    """The stream ended, or could not begin; the text is the reason."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Settings of the stream to the controller."""

    addresses: tuple[str, ...]
    """host:port, or unix:///path, of each controller: one of them works, and the others stand by and serve no agents."""
    controller_uid: int = 0
    """Uid of the controller's process: only this uid can read the credentials."""
    ca_file: Path | None = None
    """PEM file of the CA that signed the controller's certificate; None = no TLS."""
    dial_timeout_s: float = 10.0
    """Longest time from dialling to the controller's welcome."""
    beat_s: float = 8.0
    """Interval of empty messages while there is nothing to report."""
    silence_s: float = 30.0
    """The stream ends if the controller is silent for so long. It repeats its acknowledgement more often."""
    first_pause_s: float = 0.5
    """Pause before the second try to dial; it doubles with every failure, and is shortened at random, by half at most."""
    longest_pause_s: float = 30.0
    steady_s: float = 10.0
    """After a stream that lasted so long, and had a welcome, the pauses start again with the first."""


@dataclass(slots=True)
class StreamStatus:
    """State of the stream."""

    connected: bool = False
    """The controller has sent its welcome, and the stream has not ended."""
    streams: int = 0
    """Number of welcomes so far."""
    last_error: str = ""
    """The reason why the last stream ended, or could not begin."""


class ControllerStream:
    """The connection of one agent. Invariant: at most one stream at a time; each sends every report that is not acknowledged."""

    def __init__(
        self,
        settings: StreamSettings,
        hello: Callable[[], agent_pb2.AgentHello],
        outbox: Outbox,
        on_command: Callable[[agent_pb2.AgentCommand], None],
        on_settings: Callable[[agent_pb2.AgentSettings], None] = lambda _: None,
        codec: CredentialCodec | None = None,
        rng: random.Random | None = None,
        now: Callable[[], float] = time.time,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`hello` describes the node, and is called at every dial; run and time are filled in here. Callbacks must not wait.

        `prepare` is awaited before each call of `hello`, for facts that must be waited for; it has a time limit of its own.
        Without `codec` only Unix sockets and loopback addresses are dialled. Raises EndpointError.
        """
        self._settings = settings
        self._endpoints = [parse_endpoint(address) for address in settings.addresses]
        if codec is None:
            for endpoint in self._endpoints:
                require_local(endpoint)
        self._at = 0
        """Number of the address that is dialled next."""
        self._reasons: dict[int, str] = {}
        """Reason of the last end by address: each is logged when it changes. Bound: the addresses of the settings."""
        self._hello = hello
        self._prepare = prepare
        self._outbox = outbox
        self._on_command = on_command
        self._on_settings = on_settings
        self._codec = codec
        self._now = now
        rng = random.Random() if rng is None else rng  # noqa: S311 - spreads dials, keeps no secret
        self._retries = Retries(Backoff(settings.first_pause_s, settings.longest_pause_s), rng)
        self.status = StreamStatus()

    async def run(self) -> None:
        """Keep a stream open until cancelled. Without a welcome the next address is dialled; each is tried before a pause."""
        while True:
            begun_s, welcomes = time.monotonic(), self.status.streams
            self._note(await self._one_stream())
            if self.status.streams == welcomes:  # however long that took: the controller may hang
                self._at = (self._at + 1) % len(self._endpoints)
                if self._at:
                    continue
            elif time.monotonic() - begun_s > self._settings.steady_s:
                self._retries.reset()
            await asyncio.sleep(self._retries.next_s())

    @property
    def _endpoint(self) -> Endpoint:
        return self._endpoints[self._at]

    async def _one_stream(self) -> str:
        """Run one stream to its end, and return the reason for it."""
        try:
            # A separate task: if the other side cancels the stream, gRPC cancels the task.
            await first_of(self._stream())
        except asyncio.CancelledError:
            if not cancelled_by_others():
                raise
            return "the controller cancelled the stream"
        except Exception as error:  # noqa: BLE001 - a bug costs a stream, not the agent
            return _reason(error)
        finally:
            self.status.connected = False
        return "the stream ended"

    def _note(self, reason: str) -> None:
        if reason != self._reasons.get(self._at):
            log.warning("stream_ended", controller=str(self._endpoint), reason=reason)
        self._reasons[self._at] = self.status.last_error = reason

    async def _stream(self) -> None:
        """Run one stream until it ends, which is always by an exception."""
        if self._prepare is not None:
            await self._prepare()
        hello = self._hello()
        hello.run_id, hello.time_s = self._outbox.run_id, self._now()
        body = agent_pb2.AgentBody(hello=hello).SerializeToString()
        key, metadata = await self._credential(body, hello.time_s)
        signer, verifier = Signer(key, Direction.FROM_AGENT), Verifier(key, Direction.FROM_CONTROLLER)
        async with self._dialled(metadata) as call:
            async with asyncio.timeout(self._settings.dial_timeout_s):
                await _write(call, signer, body)
                first = await _read(call, verifier)
            if first.WhichOneof("kind") != "welcome" or first.welcome.acknowledged > self._outbox.last:
                raise StreamError("the controller did not welcome this run of the agent")
            self._outbox.acknowledge(first.welcome.acknowledged)
            self._on_settings(first.welcome.settings)
            self.status.connected = True
            self.status.streams += 1
            log.info("stream_opened", controller=str(self._endpoint), unsent=len(self._outbox))
            await first_of(self._send(call, signer, first.welcome.acknowledged), self._receive(call, verifier))

    async def _credential(self, body: bytes, time_s: float) -> tuple[bytes | None, tuple[tuple[str, str], ...]]:
        """Return the key of the stream, and the metadata that carry it."""
        if self._codec is None:
            return None, ()
        key = secrets.token_bytes(KEY_BYTES)
        ticket = make_ticket(body, time_s, key).pack()
        return key, ((METADATA_KEY, await self._codec.encode(ticket, self._settings.controller_uid)),)

    @asynccontextmanager
    async def _dialled(self, metadata: tuple[tuple[str, str], ...]) -> AsyncIterator[_Call]:
        """Open a call on a new channel, and close both afterwards."""
        if self._settings.ca_file is None:
            channel = grpc.aio.insecure_channel(self._endpoint.target, options=_CHANNEL_OPTIONS)
        else:
            roots = await asyncio.to_thread(read_ca_file, self._settings.ca_file)
            channel = grpc.aio.secure_channel(
                self._endpoint.target, grpc.ssl_channel_credentials(roots), options=_CHANNEL_OPTIONS
            )
        async with channel:
            stub = agent_pb2_grpc.AgentsStub(channel)
            call: _Call = stub.Connect(metadata=metadata)
            try:
                yield call
            finally:
                call.cancel()

    async def _send(self, call: _Call, signer: Signer, sent: int) -> None:
        """Send every report after number `sent`, and an empty message when there is none."""
        while True:
            body = agent_pb2.AgentBody(beat=agent_pb2.AgentBeat())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.beat_s):
                    reports = await self._outbox.wait_after(sent)
                    sent = reports[-1].number
                    now_ns = time.monotonic_ns()
                    body = agent_pb2.AgentBody(reports=agent_pb2.AgentReports(reports=reports, monotonic_ns=now_ns))
            await _write(call, signer, body.SerializeToString())

    async def _receive(self, call: _Call, verifier: Verifier) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.silence_s):
                    body = await _read(call, verifier)
            except TimeoutError:
                raise StreamError(f"the controller was silent for {self._settings.silence_s:g} s") from None
            match body.WhichOneof("kind"):
                case "acknowledgement":
                    self._outbox.acknowledge(body.acknowledgement.number)
                case "settings":
                    self._on_settings(body.settings)
                case "command":
                    self._on_command(body.command)
                case _:
                    log.warning("unknown_message", size=body.ByteSize())  # from a newer controller


async def _write(call: _Call, signer: Signer, body: bytes) -> None:
    """Sign and send a message. Raises StreamError and grpc.aio.AioRpcError."""
    number, mac = signer.sign(body)
    try:
        await call.write(agent_pb2.AgentMessage(number=number, body=body, mac=mac))
    except asyncio.InvalidStateError as error:  # the call ended a moment ago, and its end was not read yet
        raise await _end_of(call) from error


async def _end_of(call: _Call) -> StreamError:
    """Return why a call has ended."""
    code, details = await call.code(), await call.details()
    return StreamError(f"the controller ended the stream: {code.name}: {(details or '')[:500]}")


async def _read(call: _Call, verifier: Verifier) -> agent_pb2.ControllerBody:
    """Read and verify the next message. Raises StreamError, SessionError and grpc.aio.AioRpcError."""
    message = await call.read()
    if not isinstance(message, agent_pb2.ControllerMessage):  # the end of the stream
        raise await _end_of(call)
    verifier.take(message.number, message.body, message.mac)
    try:
        return agent_pb2.ControllerBody.FromString(message.body)
    except DecodeError as error:
        raise StreamError("the controller sent an invalid message") from error


def _reason(error: Exception) -> str:
    """Return the reason why a stream ended, as text."""
    match error:
        case TimeoutError():
            return "no welcome in time"
        case grpc.aio.AioRpcError():
            return f"{error.code().name}: {(error.details() or '')[:500]}"
        case AgentError() | OSError():
            return str(error)
        case _:
            log.error("stream_failed", exc_info=error)
            return f"{type(error).__name__}: {error}"
