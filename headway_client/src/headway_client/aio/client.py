"""The client for programs with asyncio. Each method is that of `Client`, to be awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import grpc
from headway_client import calls, steps
from headway_client.aio.asking import ask
from headway_client.aio.event_stream import AsyncEventStream
from headway_client.answers.jobs import Explanation, Queue
from headway_client.answers.message import Message
from headway_client.answers.preemptions import PreemptionList, PreemptionRecord
from headway_client.answers.profiles import JobMeasurements, ProfileList, RequestedProfile
from headway_client.answers.reports import JobSummary
from headway_client.answers.slowdown_rows import SlowdownRows
from headway_client.answers.snapshot import Snapshot
from headway_client.answers.status import PolicyInfo, Status
from headway_client.answers.usage import Usage
from headway_client.calls import Call, JobId
from headway_client.errors import ClosedError, HeadwayError
from headway_client.limits import MAX_ANSWER_BYTES, MAX_CALLS, check_limits, limit_of, problem_of, too_late
from headway_client.sockets import Address, PathLike
from headway_client.steps import Pause, Steps, Until
from headway_client.wire.channel import metadata_for

A = TypeVar("A", bound=Message)
T = TypeVar("T")


class AsyncClient:
    """A client of the controller. The tasks of one event loop may share it.

    Every call opens its own gRPC channel, so a controller that was restarted is found at once. Invariant: a call ends by
    its time limit, with an answer or a HeadwayError.
    """

    def __init__(
        self,
        socket: PathLike | None = None,
        *,
        timeout_s: float | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        user: str | None = None,
    ) -> None:
        """As for `Client`."""
        check_limits(timeout_s, max_answer_bytes)
        self._address = Address(socket)
        self._timeout_s = timeout_s
        self._max_bytes = max_answer_bytes
        self._metadata = metadata_for(user)
        self._places: asyncio.Semaphore | None = None
        self._streams: set[AsyncEventStream] = set()
        self._closed = False

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all streams of events. Later calls raise ClosedError."""
        self._closed = True
        for stream in list(self._streams):
            stream.close()

    async def status(self) -> Status:
        """Return the state of controller, policy, agents and nodes."""
        return await self._ask(calls.status())

    async def queue(self) -> Queue:
        """Return every managed job that has not ended."""
        return await self._ask(calls.queue())

    async def why(self, job_id: JobId) -> Explanation:
        """Explain one job."""
        return await self._ask(calls.why(job_id))

    async def report(self, job_id: JobId) -> JobSummary:
        """Report what became of a job: how long it waited and why, where it ran, and what its stops and other jobs cost it."""
        return await self._ask(calls.report(job_id))

    async def usage(self) -> Usage:
        """Return the GPU time of users over the last seven days, as far as this user may see it."""
        return await self._ask(calls.usage())

    async def policy(self) -> PolicyInfo:
        """Return the policy that decides."""
        return await self._ask(calls.policy())

    async def use_policy(self, address: str) -> PolicyInfo:
        """Let the policy server at that address decide, if it passes the checks."""
        return await self._ask(calls.use_policy(address))

    async def preempt(self, job_id: JobId, *, force: bool = False, within_s: float | None = None) -> PreemptionRecord:
        """Let a running job save, stop it, and let the policy place it again. Returns at once."""
        return await self._ask(calls.preempt(job_id, force=force, within_s=within_s))

    async def move(
        self,
        job_id: JobId,
        *,
        to: Iterable[str] = (),
        off: Iterable[str] = (),
        force: bool = False,
        within_s: float | None = None,
    ) -> PreemptionRecord:
        """Preempt a job and place it on other nodes."""
        return await self._ask(calls.move(job_id, only=to, avoid=off, force=force, within_s=within_s))

    async def resize(
        self, job_id: JobId, gpus: int, *, force: bool = False, within_s: float | None = None
    ) -> PreemptionRecord:
        """Preempt a job and start it with that total number of GPUs."""
        return await self._ask(calls.preempt(job_id, gpus=gpus, force=force, within_s=within_s))

    async def preemptions(self, limit: int = 0, *, number: int = 0, before: int = 0) -> PreemptionList:
        """Return the newest preemptions, or those with numbers below `before`, or only the one of that number."""
        return await self._ask(calls.preemptions(limit, number, before))

    async def profiles(self, limit: int = 0, *, skip: int = 0, until_s: float | None = None) -> ProfileList:
        """Return the kinds of jobs that were measured, without the newest `skip` of those with windows until `until_s`."""
        return await self._ask(calls.profiles(limit, skip, until_s))

    async def profile(self, job_id: JobId, limit: int = 0) -> JobMeasurements:
        """Return what was measured of one job."""
        return await self._ask(calls.profile(job_id, limit))

    async def request_profile(self, job_id: JobId, steps: int | None = None) -> RequestedProfile:
        """Let the agents of a running job profile its next steps; `profile` has the result when the ranks have made them."""
        return await self._ask(calls.request_profile(job_id, steps))

    async def export_profiles(self, since_s: float = 0.0, racks: Mapping[str, str] | None = None) -> SlowdownRows:
        """Return everything measured since then, as rows for fitting."""
        return await self._ask(calls.export_profiles(since_s, racks or {}))

    def events(
        self,
        *,
        since_s: float | None = None,
        until_s: float | None = None,
        job_id: JobId = "",
        past_only: bool = False,
        idle_s: float | None = None,
    ) -> AsyncEventStream:
        """Return events from the moment when the stream is entered, and before them the past ones since `since_s`.

        See `Client.events` for the arguments.
        """
        check_limits(idle_s)
        self._check_open()
        call = calls.events(since_s, until_s, job_id, past_only=past_only)
        limit_s = limit_of(call, self._timeout_s)
        return AsyncEventStream(
            self._find_for_events, call, limit_s, self._max_bytes, idle_s, self._streams, self._metadata
        )

    async def wait(
        self,
        job_id: JobId,
        until: Until = None,
        *,
        timeout_s: float | None = None,
        every_s: float = 1.0,
        away_s: float = 60.0,
    ) -> Explanation:
        """Wait until a job is in one of those states (None: in another than now), or has ended, and explain it then."""
        return await self._run(steps.wait(job_id, until, timeout_s, every_s, away_s, time.monotonic))

    async def wait_for_preemption(
        self, number: int, *, timeout_s: float | None = None, every_s: float = 0.5, away_s: float = 60.0
    ) -> PreemptionRecord:
        """Wait until a preemption has ended; its `stage` and `problem` say how."""
        return await self._run(steps.wait_for_preemption(number, timeout_s, every_s, away_s, time.monotonic))

    async def snapshot(self) -> Snapshot:
        """Return status, queue and preemptions together, as far as this user may see them."""
        return await self._run(steps.snapshot())

    async def _run(self, work: Steps[T]) -> T:
        """Carry out steps, and return their result."""
        answer: Any = None
        error: HeadwayError | None = None
        while True:
            try:
                step = work.send(answer) if error is None else work.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = error = None
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                continue
            try:
                answer = await self._ask(step)
            except HeadwayError as problem:
                error = problem

    async def _ask(self, call: Call[A]) -> A:
        self._check_open()
        limit_s = limit_of(call, self._timeout_s)
        request = call.encode()
        if self._places is None:  # not before: up to Python 3.9 it belongs to the event loop in which it is made
            self._places = asyncio.Semaphore(MAX_CALLS)
        try:
            messages = await asyncio.wait_for(self._ask_in_turn(call, request, self._places, limit_s), limit_s)
        except asyncio.TimeoutError:
            raise too_late(call.method, limit_s) from None
        return call.decode(messages)

    async def _ask_in_turn(
        self, call: Call[Any], request: bytes, places: asyncio.Semaphore, limit_s: float
    ) -> list[bytes]:
        end_s = time.monotonic() + limit_s
        async with places:
            path = self._address.find(admin=call.admin)
            try:
                return await ask(path, call, request, self._max_bytes, end_s - time.monotonic(), self._metadata)
            except grpc.RpcError as error:
                # Its traceback refers to the call, and with it to the connection, which would stay open until Python looks for
                # cycles. The controller closes connections of a user who has too many.
                raise problem_of(error, call, path, limit_s, self._max_bytes) from error.with_traceback(None)

    def _find_for_events(self) -> Path:
        self._check_open()
        return self._address.find(admin=False)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client was closed")
