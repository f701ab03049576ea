"""The answer to the call WatchEvents: past events, and then coming ones, as the request says."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

from controller.base.clock import Clock
from controller.base.events import EventLog, LoggedEvent, Wanted
from protos.headway.v1 import admin_pb2


def past_events(log: EventLog, request: admin_pb2.WatchEventsRequest) -> list[LoggedEvent]:
    """Return the past events that the request wants, oldest first; none if it wants only coming ones."""
    if not request.HasField("since_s"):
        return []
    return log.past(Wanted(since_s=request.since_s, until_s=_until_s(request), job_id=request.job_id))


async def events_of(
    past: list[LoggedEvent],
    coming: asyncio.Queue[LoggedEvent],
    clock: Clock,
    request: admin_pb2.WatchEventsRequest,
) -> AsyncIterator[admin_pb2.Event]:
    """Yield the past events, and the coming ones that the request wants. Without an end in the request it does not end."""
    for event in past:
        yield _message(event)
    if request.past_only:
        return
    wanted = Wanted(until_s=_until_s(request), job_id=request.job_id)
    while (later := await _next(coming, wanted.until_s - clock.now())) is not None:
        if wanted.has(later):
            yield _message(later)


def _until_s(request: admin_pb2.WatchEventsRequest) -> float:
    return request.until_s if request.HasField("until_s") else math.inf


async def _next(coming: asyncio.Queue[LoggedEvent], within_s: float) -> LoggedEvent | None:
    """Return the next event; None when none has come within that time."""
    try:
        async with asyncio.timeout(max(within_s, 0.0) if within_s < math.inf else None):
            return await coming.get()
    except TimeoutError:
        return None


def _message(event: LoggedEvent) -> admin_pb2.Event:
    return admin_pb2.Event(time_s=event.time_s, kind=event.kind, job_id=event.job_id, text=event.text, user=event.user)
