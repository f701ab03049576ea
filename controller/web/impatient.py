"""Time limits of connections: clients that send, or read, nothing keep no place from others.

uvicorn has a limit on connections and a time limit between two requests, but none for a request: silent connections could take all
places for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""Longest time from the start of a connection to its first complete request, body included."""
ANSWER_S = 60.0
"""Longest time from a complete request until the client has taken the answer."""
STALL_S = 10.0
"""Longest time in which a client takes nothing of an answer that waits for it."""
UNREAD_S = 2.0
"""Time in which a client has taken nothing, after which another one may get its place."""


class ImpatientProtocol(H11Protocol):
    """One connection of the page.

    Invariant: a connection always has a deadline, at which it is aborted. When all places are taken, a new connection gets the
    place of the one that has waited longest for a complete request, or else of the one that has not read for the longest time;
    requests that are being answered to a client that reads are not interrupted. A request ends with its connection.
    """

    _deadline: asyncio.TimerHandle | None = None
    _waiting = True
    """No complete request is being answered."""
    _since_s = 0.0
    """When it began to wait, on the loop's clock."""
    _stall: asyncio.TimerHandle | None = None
    """End of the time for the client to take something; None: no answer waits for it."""
    _stalled_s = 0.0
    """When answers began to wait for the client, or it last took something, on the loop's clock."""
    _left_bytes = 0
    """Bytes that it had yet to take then."""
    _request: asyncio.Task[Any] | None = None
    """Task that is answering a request."""
    _lost = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take uvicorn's arguments."""
        super().__init__(*arguments, **options)
        self._page, self.app = self.app, self._answer

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, until the connection is lost: what goes on would count among the requests under way."""
        if self._lost:
            return
        self._request = asyncio.current_task()
        try:
            await self._page(scope, receive, send)
        except asyncio.CancelledError:
            if not self._lost:
                raise
        finally:
            self._request = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place for the new connection."""
        super().connection_made(transport)
        self._make_room()
        self._wait(REQUEST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place, and end the request."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._end_stall()
        super().connection_lost(exc)
        self._end_request()

    def data_received(self, data: bytes) -> None:
        """Take data; single bytes do not move the deadline of a request."""
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        """Wait for the next request. The deadline also counts where the client has yet to take the end of the answer."""
        super().on_response_complete()
        self._wait(self.timeout_keep_alive + REQUEST_S)
        self._follow()  # a next request may have come already

    def pause_writing(self) -> None:
        """Begin the time for the client to take something: answers wait for it."""
        super().pause_writing()
        if not self._lost:
            self._stalled_s = self.loop.time()
            self._expect_less_than(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Go on: the client has taken most of what had waited."""
        self._end_stall()
        super().resume_writing()

    def _expect_less_than(self, waiting_bytes: int) -> None:
        self._end_stall()
        self._left_bytes = waiting_bytes
        self._stall = self.loop.call_later(STALL_S, self._check_stall)

    def _check_stall(self) -> None:
        left = self.transport.get_write_buffer_size()  # nothing is added while writing is paused
        if left < self._left_bytes:
            self._stalled_s = self.loop.time()
            self._expect_less_than(left)
        else:
            self._end()

    def _has_stalled(self) -> bool:
        """Return whether the client has taken nothing for a while. Begins a new such time if it has taken something."""
        if self._stall is None:
            return False
        left = self.transport.get_write_buffer_size()
        if left < self._left_bytes:
            self._stalled_s = self.loop.time()
            self._expect_less_than(left)
        return self.loop.time() - self._stalled_s >= UNREAD_S

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _wait(self, seconds: float) -> None:
        self._waiting, self._since_s = True, self.loop.time()
        self._end_in(seconds)

    def _follow(self) -> None:
        """Begin the time of the answer once the request is complete."""
        if self._waiting and self.cycle is not None and not (self.cycle.response_complete or self.cycle.more_body):
            self._waiting = False
            self._end_in(ANSWER_S)

    def _end_in(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        self.connections.discard(self)  # at once: the loop reports the loss of the connection later
        self.transport.abort()
        self._end_request()

    def _end_request(self) -> None:
        self._lost = True
        if self._request is not None:
            self._request.cancel()
            self.tasks.discard(self._request)  # at once: it ends at the next turn of the loop

    def _make_room(self) -> None:
        """End waiting connections, longest first, and then those that do not read, until a request of this one is not refused."""
        if self.limit_concurrency is None:
            return
        too_many = len(self.connections) - (self.limit_concurrency - 1)
        others = [each for each in self.connections if isinstance(each, ImpatientProtocol) and each is not self]
        for each in _ends_first(others)[: max(0, too_many)]:
            each._end()


def _ends_first(connections: Iterable[ImpatientProtocol]) -> list[ImpatientProtocol]:
    """Return the connections that may be ended for another one, in this order."""
    waiting = sorted((each for each in connections if each._waiting), key=lambda each: each._since_s)
    stalled = [each for each in connections if not each._waiting and each._has_stalled()]
    return waiting + sorted(stalled, key=lambda each: each._stalled_s)
