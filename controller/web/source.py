"""Answers of the controller to one user, kept for a moment so that many open pages cost it little."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from headway_client import (
    AnswerTimeoutError,
    AsyncClient,
    Event,
    Explanation,
    JobSummary,
    PreemptionList,
    Queue,
    Status,
    Usage,
)

T = TypeVar("T")

_FRESH_S = 2.0
"""Age up to which an answer is used again, in seconds."""
_CALLS = 6
"""Calls at once; the controller gives a user 16 connections."""
_KEPT = 16
"""Answers that are kept; a queue of 10,000 jobs takes about 10 MB."""
_MOST_LOCKS = 1000
_MOST_EVENTS = 500
_TIMEOUT_S = 10.0


class Source:
    """Answers of the controller. Invariant: an answer for one user is never given to another."""

    def __init__(self, socket: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """`socket` is the controller's status.sock."""
        self._socket = socket
        self._clock = clock
        self._places = asyncio.Semaphore(_CALLS)
        self._kept: OrderedDict[tuple[str, str], tuple[float, Any]] = OrderedDict()
        """Answers by user and call; at most `_KEPT`, the oldest are dropped. Bound: `_KEPT`."""
        self._asking: dict[tuple[str, str], asyncio.Lock] = {}
        """Locks of the calls that are being made. Bound: `_MOST_LOCKS`, and the calls under way."""

    async def status(self, user: str) -> Status:
        """Return the state of controller, policy and cluster. Raises headway_client.HeadwayError, as all calls do."""
        return await self._recent(user, "status", lambda client: client.status())

    async def queue(self, user: str) -> Queue:
        """Return the managed jobs that the user may see."""
        return await self._recent(user, "queue", lambda client: client.queue())

    async def preemptions(self, user: str) -> PreemptionList:
        """Return the preemptions of jobs that the user may see, newest first."""
        return await self._recent(user, "preemptions", lambda client: client.preemptions())

    async def usage(self, user: str) -> Usage:
        """Return the GPU time of users, as far as this user may see it."""
        return await self._recent(user, "usage", lambda client: client.usage())

    async def why(self, user: str, job_id: str) -> Explanation:
        """Return why a job waits, or runs where it runs."""
        return await self._ask(user, lambda client: client.why(job_id))

    async def report(self, user: str, job_id: str) -> JobSummary:
        """Return what became of a job."""
        return await self._ask(user, lambda client: client.report(job_id))

    async def events(self, user: str, job_id: str) -> list[Event]:
        """Return the newest past events of a job, oldest first."""

        async def past(client: AsyncClient) -> list[Event]:
            try:
                # Not the stream's `idle_s`, with which a stream that has stalled ends like one that is complete.
                async with asyncio.timeout(_TIMEOUT_S), client.events(past_only=True, job_id=job_id) as stream:
                    return [event async for event in stream][-_MOST_EVENTS:]
            except TimeoutError as error:
                if isinstance(error, AnswerTimeoutError):
                    raise
                raise AnswerTimeoutError(f"the controller has sent no end of them within {_TIMEOUT_S:g} s") from error

        return await self._ask(user, past)

    async def _recent(self, user: str, name: str, call: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """Return the answer that is kept, or a new one. Of several requests at once, one calls."""
        key = user, name
        if len(self._asking) > _MOST_LOCKS:
            self._asking = {each: lock for each, lock in self._asking.items() if lock.locked()}
        async with self._asking.setdefault(key, asyncio.Lock()):
            kept = self._kept.get(key)
            if kept is not None and self._clock() - kept[0] <= _FRESH_S:
                return cast("T", kept[1])
            found = await self._ask(user, call)
            self._kept[key] = self._clock(), found
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return found

    async def _ask(self, user: str, call: Callable[[AsyncClient], Awaitable[T]]) -> T:
        async with self._places, AsyncClient(self._socket, timeout_s=_TIMEOUT_S, user=user) as client:
            return await call(client)
