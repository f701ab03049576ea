"""One open stream of one agent: checks and forwards what arrives, signs and numbers what is sent."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from controller.agents.entry.admission import Admitted, RefusedError
from controller.agents.entry.connections import end_of
from controller.agents.reports.clock_offset import AgentClock
from controller.profiles.sightings import Arrival
from nodeagent.uplink.session import Direction, SessionError, Signer
from policies.serving.runtime.strict_requests import Malformed
from policies.serving.runtime.tasks.task_groups import first_of
from policies.serving.runtime.tasks.token_bucket import TokenBucket
from protos.headway.v1 import agent_pb2

if TYPE_CHECKING:  # the class is generic in the type stubs only
    Context = grpc.aio.ServicerContext[agent_pb2.AgentMessage, agent_pb2.ControllerMessage]

MAX_QUEUED = 256
"""Maximum number of messages for one agent that wait to be sent, and of reports of one agent that wait to be stored."""
_MAX_NUMBER = 2**63 - 1


class AgentStream:
    """A stream that has been admitted. Invariant: only reports for which `stored` was called are acknowledged."""

    def __init__(self, admitted: Admitted, context: Context, offset_s: float, bucket: TokenBucket) -> None:
        """`offset_s`: seconds by which the node's clock is behind the controller's, from the hello."""
        hello = admitted.hello
        self.node = hello.node
        self.run_id = hello.run_id
        self.called_s = admitted.called_s
        self.offset_s = offset_s
        self._numa = tuple(
            (gpu.index, gpu.numa_node)
            for gpu in hello.topology.gpus
            if gpu.HasField("index") and gpu.HasField("numa_node")
        )
        self._context = context
        self.other_end = end_of(context.peer())
        """Address and port of the agent's end; None: a Unix socket."""
        self._clock = AgentClock()
        self._verifier = admitted.verifier
        self._signer = Signer(admitted.key, Direction.FROM_CONTROLLER)
        self._bucket = bucket
        self._queue: deque[agent_pb2.ControllerBody] = deque()
        """Bound: `MAX_QUEUED`."""
        self._news = asyncio.Event()
        self._acknowledged = 0
        self._unacknowledged = False
        self._last_report = 0
        self._room = asyncio.Semaphore(MAX_QUEUED)
        self._ended = asyncio.Event()
        self._why = RefusedError(grpc.StatusCode.OK, "")

    def send(self, body: agent_pb2.ControllerBody) -> bool:
        """Queue a message for the agent. Returns False when too many wait already."""
        if len(self._queue) >= MAX_QUEUED or self._ended.is_set():
            return False
        self._queue.append(body)
        self._news.set()
        return True

    def stored(self, number: int) -> None:
        """Acknowledge that report: it is in the store."""
        self._room.release()
        self._acknowledged = max(self._acknowledged, number)
        self._unacknowledged = True
        self._news.set()

    def end(self, code: grpc.StatusCode, reason: str) -> None:
        """End the stream with this status for the agent."""
        if not self._ended.is_set():
            self._why = RefusedError(code, reason)
            self._ended.set()

    async def run(
        self,
        welcome: agent_pb2.AgentWelcome,
        forward: Callable[[AgentStream, Arrival], Awaitable[None]],
        beat_s: float,
        silence_s: float,
    ) -> None:
        """Serve the stream until it ends; it ends with RefusedError, or by cancellation."""
        self._acknowledged = welcome.acknowledged
        await self._send(agent_pb2.ControllerBody(welcome=welcome))
        await first_of(self._sending(beat_s), self._receiving(forward, silence_s), self._until_ended())

    async def _until_ended(self) -> None:
        await self._ended.wait()
        raise self._why

    async def _sending(self, beat_s: float) -> None:
        while True:
            self._news.clear()
            while self._queue:
                await self._send(self._queue.popleft())
            if self._unacknowledged:
                await self._acknowledge()
            if not self._queue and not self._unacknowledged:
                try:
                    async with asyncio.timeout(beat_s):
                        await self._news.wait()
                except TimeoutError:
                    await self._acknowledge()  # repeated as a sign of life

    async def _acknowledge(self) -> None:
        self._unacknowledged = False
        number = self._acknowledged
        await self._send(agent_pb2.ControllerBody(acknowledgement=agent_pb2.AgentAcknowledgement(number=number)))

    async def _send(self, body: agent_pb2.ControllerBody) -> None:
        content = body.SerializeToString()
        number, mac = self._signer.sign(content)
        await self._context.write(agent_pb2.ControllerMessage(number=number, body=content, mac=mac))

    async def _receiving(self, forward: Callable[[AgentStream, Arrival], Awaitable[None]], silence_s: float) -> None:
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    message: object = await self._context.read()
            except TimeoutError:
                reason = f"no message arrived for {silence_s:g} s"
                raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, reason) from None
            if isinstance(message, Malformed):
                raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "not an AgentMessage")
            if not isinstance(message, agent_pb2.AgentMessage):  # the agent has ended its side
                raise RefusedError(grpc.StatusCode.OK, "")
            reports = self._reports(message)
            for report in reports:
                await self._room.acquire()
                await forward(self, self._arrival(report))
            delay_s = self._bucket.delay_s(time.monotonic())
            if delay_s > 0:
                await asyncio.sleep(delay_s)

    def _arrival(self, report: agent_pb2.AgentReport) -> Arrival:
        made_s = self._clock.when(report.monotonic_ns) if report.HasField("monotonic_ns") else None
        return Arrival(self.node, self.run_id, report, time.time(), self.offset_s, self._numa, made_s)

    def _reports(self, message: agent_pb2.AgentMessage) -> Sequence[agent_pb2.AgentReport]:
        """Return the reports in a message; none in a sign of life. Raises RefusedError."""
        try:
            self._verifier.take(message.number, message.body, message.mac)
            body = agent_pb2.AgentBody.FromString(message.body)
        except SessionError as error:
            raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, str(error)) from error
        except DecodeError as error:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "not an AgentBody") from error
        match body.WhichOneof("kind"):
            case "reports":
                for report in body.reports.reports:
                    if not self._last_report < report.number <= _MAX_NUMBER:
                        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "numbers of reports must rise")
                    self._last_report = report.number
                if body.reports.HasField("monotonic_ns"):
                    self._clock.arrived(body.reports.monotonic_ns)
                return body.reports.reports
            case "hello":
                raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the agent has sent a second hello")
            case _:
                return ()
