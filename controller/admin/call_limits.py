"""Limits on the calls that a user has under way, and on answers that their callers have not taken yet.

gRPC keeps a whole answer in memory until its caller has taken it, however long that takes, and a connection may have several calls.
Without limits, one user that reads nothing could use up the memory of the controller.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from controller.admin.front import uid_of
from controller.admin.protocol import Reason
from controller.admin.refusal import refuse

USER_BYTES = 32 << 20
"""Maximum size of one user's answers that are not taken yet: ten queues of 10,000 jobs. A single answer may be larger."""
ALL_BYTES = 128 << 20
"""The same of all users of one socket. gRPC has a second copy of each."""
TAKEN_S = 60.0
"""Longest time in which a caller takes an answer."""


@dataclass(slots=True, eq=False)
class _Call:
    """A call under way."""

    uid: int | None
    unread_bytes: int = 0
    """Size of its answer; 0 while there is none."""
    limit: asyncio.TimerHandle | None = None
    """End of the time for its caller to take the answer."""


class CallLimits(grpc.aio.ServerInterceptor):
    """The calls of all users, except streams, of which WatchEvents has limits of its own.

    Invariant: no user has more than `most_a_user` calls under way; answers that are not taken have at most the bytes above, of one
    user and of all, or are single ones; and an answer that is not taken in time ends with its connection. An answer waits for room
    before it is composed for gRPC.
    """

    def __init__(self, most_a_user: int, cut: Callable[[str], None]) -> None:
        """`cut` ends the connection with that name, gRPC's `peer`, and so all its calls."""
        self._most_a_user = most_a_user
        self._cut = cut
        self._calls = Counter[int | None]()
        """Calls under way by uid. Bound: the calls that the server takes."""
        self._unread = Counter[int | None]()
        """Bytes of answers that are not taken yet, by uid. Bound: as `_calls`."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Calls whose answer waits for room, the oldest first. Bound: as `_calls`."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of all answers that are not taken yet."""
        return self._unread.total()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the method's handler within the limits; None where there is no such method."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming or handler.response_streaming:
            return handler
        served = self._limited(handler.unary_unary, handler.response_serializer)
        # The handler returns bytes, whose number the limits count.
        return grpc.unary_unary_rpc_method_handler(served, request_deserializer=handler.request_deserializer)

    def _limited(
        self, serve: Callable[[Any, Any], Awaitable[Any]], serialize: Callable[[Any], bytes]
    ) -> Callable[[Any, Any], Awaitable[bytes]]:
        async def served(request: Any, context: Any) -> bytes:
            call = await self._begin(context)
            answer = await serve(request, context)
            data = serialize(answer)
            size = len(data)
            if not self._has_room(call.uid, size):
                del data  # what waits is the answer, which many callers may share
                await self._wait_for_room(call.uid, size)
                data = serialize(answer)
            self._keep(call, size, context.peer())
            return data

        return served

    async def _begin(self, context: Any) -> _Call:
        """Count the call, until it has ended and its answer is taken or lost. Refuses it if its user has too many."""
        call = _Call(uid_of(context.peer()))
        if self._calls[call.uid] >= self._most_a_user:
            await refuse(
                context,
                Reason.TOO_MANY_CALLS,
                f"this user has {self._most_a_user} calls under way already, and may have no more; try again when some have ended",
            )
        self._calls[call.uid] += 1
        context.add_done_callback(lambda _: self._end(call))
        return call

    def _end(self, call: _Call) -> None:
        if call.limit is not None:
            call.limit.cancel()
        for counter, number in ((self._calls, 1), (self._unread, call.unread_bytes)):
            counter[call.uid] -= number
            if not counter[call.uid]:
                del counter[call.uid]
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)

    def _has_room(self, uid: int | None, size: int) -> bool:
        unread, total = self._unread[uid], self._unread.total()
        return (not unread or unread + size <= USER_BYTES) and (not total or total + size <= ALL_BYTES)

    async def _wait_for_room(self, uid: int | None, size: int) -> None:
        while not self._has_room(uid, size):
            ended = asyncio.get_running_loop().create_future()
            self._waiting.append(ended)
            await ended

    def _keep(self, call: _Call, size: int, peer: str) -> None:
        """Count the bytes of an answer, and give its caller the time to take it."""
        call.unread_bytes = size
        self._unread[call.uid] += size
        call.limit = asyncio.get_running_loop().call_later(TAKEN_S, self._cut, peer)
