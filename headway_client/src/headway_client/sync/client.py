"""The client for ordinary programs: each method waits for its answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

import grpc
from headway_client import calls, steps
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
from headway_client.sync.asking import ask
from headway_client.sync.event_stream import EventStream
from headway_client.wire.channel import metadata_for

A = TypeVar("A", bound=Message)
T = TypeVar("T")


class Client:
    """A client of the controller. Threads may share it.

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
        """`socket` None: the sockets of the controller of this machine, as the command `headway` finds them.

        `timeout_s` is the time limit of each call, in seconds; None: 5, and more for `use_policy` and measurements.
        `user` makes the calls for that user: only the user `web_user` of the controller's settings may, and only on status.sock.
        Raises InvalidRequestError.
        """
        check_limits(timeout_s, max_answer_bytes)
        self._address = Address(socket)
        self._timeout_s = timeout_s
        self._max_bytes = max_answer_bytes
        self._metadata = metadata_for(user)
        self._places = threading.BoundedSemaphore(MAX_CALLS)
        self._streams: set[EventStream] = set()
        self._closed = False

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all streams of events, also those that another thread reads. Later calls raise ClosedError."""
        self._closed = True
        for stream in list(self._streams):
            stream.close()

    def status(self) -> Status:
        """Return the state of controller, policy, agents and nodes."""
        return self._ask(calls.status())

    def queue(self) -> Queue:
        """Return every managed job that has not ended."""
        return self._ask(calls.queue())

    def why(self, job_id: JobId) -> Explanation:
        """Explain one job."""
        return self._ask(calls.why(job_id))

    def report(self, job_id: JobId) -> JobSummary:
        """Report what became of a job: how long it waited and why, where it ran, and what its stops and other jobs cost it."""
        return self._ask(calls.report(job_id))

    def usage(self) -> Usage:
        """Return the GPU time of users over the last seven days, as far as this user may see it."""
        return self._ask(calls.usage())

    def policy(self) -> PolicyInfo:
        """Return the policy that decides."""
        return self._ask(calls.policy())

    def use_policy(self, address: str) -> PolicyInfo:
        """Let the policy server at that address decide, if it passes the checks; else RefusedError, and the policy stays."""
        return self._ask(calls.use_policy(address))

    def preempt(self, job_id: JobId, *, force: bool = False, within_s: float | None = None) -> PreemptionRecord:
        """Let a running job save, stop it, and let the policy place it again. Returns at once.

        `within_s` is the time to save in, in seconds; None: as the controller's settings say. With `force` the job is stopped even
        if it does not save in time, or cannot.
        """
        return self._ask(calls.preempt(job_id, force=force, within_s=within_s))

    def move(
        self,
        job_id: JobId,
        *,
        to: Iterable[str] = (),
        off: Iterable[str] = (),
        force: bool = False,
        within_s: float | None = None,
    ) -> PreemptionRecord:
        """Preempt a job and place it on other nodes: those of `to`, any but those of `off`, or any but its present ones."""
        return self._ask(calls.move(job_id, only=to, avoid=off, force=force, within_s=within_s))

    def resize(
        self, job_id: JobId, gpus: int, *, force: bool = False, within_s: float | None = None
    ) -> PreemptionRecord:
        """Preempt a job and start it with that total number of GPUs."""
        return self._ask(calls.preempt(job_id, gpus=gpus, force=force, within_s=within_s))

    def preemptions(self, limit: int = 0, *, number: int = 0, before: int = 0) -> PreemptionList:
        """Return the newest preemptions, at most `limit` (0: 1000, the controller's maximum), or only the one of that number.

        `before`: only those with smaller numbers; with the last number of an answer that has `more`, the next ones.
        """
        return self._ask(calls.preemptions(limit, number, before))

    def profiles(self, limit: int = 0, *, skip: int = 0, until_s: float | None = None) -> ProfileList:
        """Return the kinds of jobs that were measured, at most `limit` (0: 1000, the controller's maximum).

        `skip`, `until_s`: with the number of kinds so far and the `until_s` of an answer that has `more`, the next ones.
        """
        return self._ask(calls.profiles(limit, skip, until_s))

    def profile(self, job_id: JobId, limit: int = 0) -> JobMeasurements:
        """Return what was measured of one job, in at most `limit` windows (0: 1000, the controller's maximum)."""
        return self._ask(calls.profile(job_id, limit))

    def request_profile(self, job_id: JobId, steps: int | None = None) -> RequestedProfile:
        """Let the agents of a running job profile its next steps; `profile` has the result when the ranks have made them."""
        return self._ask(calls.request_profile(job_id, steps))

    def export_profiles(self, since_s: float = 0.0, racks: Mapping[str, str] | None = None) -> SlowdownRows:
        """Return everything measured since then (seconds since the Unix epoch), as rows for fitting. `racks`: node → rack."""
        return self._ask(calls.export_profiles(since_s, racks or {}))

    def events(
        self,
        *,
        since_s: float | None = None,
        until_s: float | None = None,
        job_id: JobId = "",
        past_only: bool = False,
        idle_s: float | None = None,
    ) -> EventStream:
        """Listen to events from now on, or first give the past ones since `since_s`; of one job, or of everything.

        Times are seconds since the Unix epoch. The iteration stops before `until_s`, after the past events if `past_only`, or after
        `idle_s` seconds without an event; else never.
        """
        check_limits(idle_s)
        self._check_open()
        call = calls.events(since_s, until_s, job_id, past_only=past_only)
        stream = EventStream(
            self._address.find(admin=False), call, self._max_bytes, idle_s, self._streams, self._metadata
        )
        stream.open(limit_of(call, self._timeout_s))
        return stream

    def wait(
        self,
        job_id: JobId,
        until: Until = None,
        *,
        timeout_s: float | None = None,
        every_s: float = 1.0,
        away_s: float = 60.0,
    ) -> Explanation:
        """Wait until a job is in one of those states (None: in another than now), or has ended, and explain it then.

        Asks every `every_s` seconds, for at most `timeout_s` (None: for ever), then raises WaitTimeoutError. A controller that does
        not answer, as while it is restarted, is an error after `away_s`.
        """
        return self._run(steps.wait(job_id, until, timeout_s, every_s, away_s, time.monotonic))

    def wait_for_preemption(
        self, number: int, *, timeout_s: float | None = None, every_s: float = 0.5, away_s: float = 60.0
    ) -> PreemptionRecord:
        """Wait until a preemption has ended; its `stage` and `problem` say how. Time limits as for `wait`."""
        return self._run(steps.wait_for_preemption(number, timeout_s, every_s, away_s, time.monotonic))

    def snapshot(self) -> Snapshot:
        """Return status, queue and preemptions together, as far as this user may see them."""
        return self._run(steps.snapshot())

    def _run(self, work: Steps[T]) -> T:
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
                time.sleep(step.seconds)
                continue
            try:
                answer = self._ask(step)
            except HeadwayError as problem:
                error = problem

    def _ask(self, call: Call[A]) -> A:
        self._check_open()
        limit_s = limit_of(call, self._timeout_s)
        end_s = time.monotonic() + limit_s
        request = call.encode()
        if not self._places.acquire(timeout=limit_s):
            raise too_late(call.method, limit_s)
        try:
            path = self._address.find(admin=call.admin)
            messages = ask(path, call, request, self._max_bytes, end_s - time.monotonic(), self._metadata)
        except grpc.RpcError as error:
            raise problem_of(error, call, path, limit_s, self._max_bytes) from error
        finally:
            self._places.release()
        return call.decode(messages)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client was closed")
