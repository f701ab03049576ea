"""The interface of a part that reacts to connections and frames of jobs."""

from __future__ import annotations

from typing import Protocol

from nodeagent.identity.peer import JobProcess
from nodeagent.wire.frames import Frame


class Listener(Protocol):
    """Receives the events of the socket in the event loop. Its methods must not wait, and must not raise."""

    def opened(self, connection: int, process: JobProcess, now_ns: int) -> None:
        """A process of a job has connected. The number of the connection is never used for another."""
        ...

    def received(self, connection: int, frame: Frame, now_ns: int) -> None:
        """The process sent a frame. The first of every connection is a Hello."""
        ...

    def closed(self, connection: int, now_ns: int) -> None:
        """One of the two sides has closed the connection."""
        ...


class Listeners:
    """Several listeners as one. Each event goes to all of them, in the order in which they were added."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = list(listeners)
        """Bound: the agent's own parts."""

    def add(self, listener: Listener) -> None:
        """Add a listener after all others."""
        self._listeners.append(listener)

    def opened(self, connection: int, process: JobProcess, now_ns: int) -> None:
        """See Listener."""
        for listener in self._listeners:
            listener.opened(connection, process, now_ns)

    def received(self, connection: int, frame: Frame, now_ns: int) -> None:
        """See Listener."""
        for listener in self._listeners:
            listener.received(connection, frame, now_ns)

    def closed(self, connection: int, now_ns: int) -> None:
        """See Listener."""
        for listener in self._listeners:
            listener.closed(connection, now_ns)
