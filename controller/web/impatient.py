"""Time limits of connections: clients that send, or read, nothing keep no place from others.

uvicorn has a limit on connections and a time limit between two requests, but none for a request: silent connections could take all
places for ever.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""Longest time from the start of a connection to its first complete request, body included."""
ANSWER_S = 60.0
"""Longest time from a complete request until the client has taken the answer."""


class ImpatientProtocol(H11Protocol):
    """One connection of the page.

    Invariant: a connection always has a deadline, at which it is aborted. When all places are taken, a new connection gets the
    place of the one that has waited longest for a complete request; requests that are being answered are not interrupted.
    """

    _deadline: asyncio.TimerHandle | None = None
    _waiting = True
    """No complete request is being answered."""
    _since_s = 0.0
    """When it began to wait, on the loop's clock."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place for the new connection."""
        super().connection_made(transport)
        self._make_room()
        self._wait(REQUEST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take data; single bytes do not move the deadline of a request."""
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        """Wait for the next request. The deadline also counts where the client has yet to take the end of the answer."""
        super().on_response_complete()
        self._wait(self.timeout_keep_alive + REQUEST_S)
        self._follow()  # a next request may have come already

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

    def _make_room(self) -> None:
        """End waiting connections, longest first, until a request of this one is not refused."""
        if self.limit_concurrency is None:
            return
        too_many = len(self.connections) - (self.limit_concurrency - 1)
        others = (each for each in self.connections if isinstance(each, ImpatientProtocol) and each is not self)
        waiting = sorted((each for each in others if each._waiting), key=lambda each: each._since_s)
        for each in waiting[: max(0, too_many)]:
            each._end()
