"""Events as an iterator, for the client that waits."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from headway_client.answers.jobs import Event
from headway_client.calls import Call
from headway_client.errors import HeadwayError
from headway_client.limits import problem_of, too_late
from headway_client.sync.asking import in_thread
from headway_client.wire.channel import LISTENING, Metadata, options, target


class EventStream:
    """Iterator over events. Invariant: it is among `streams` for as long as it has a channel.

    It raises UnavailableError when the controller ends, and stops when it is closed, which another thread may do.
    """

    def __init__(
        self,
        path: Path,
        call: Call[Event],
        max_bytes: int,
        idle_s: float | None,
        streams: set[EventStream],
        metadata: Metadata = (),
    ) -> None:
        self._path = path
        self._call = call
        self._max_bytes = max_bytes
        self._idle_s = idle_s
        self._streams = streams
        self._closed = False
        self._reading = threading.Lock()
        self._channel = grpc.insecure_channel(target(path), options=options(max_bytes))
        self._pending: Future[bytes | None] | None = None
        """The next message, where a time limit has passed before it came."""
        watch: Any = self._channel.unary_stream(call.path)
        self._events = watch(call.encode(), metadata=metadata)
        streams.add(self)

    def open(self, limit_s: float) -> None:
        """Wait until the controller says that it listens. Raises a HeadwayError."""
        try:
            if not in_thread(self._listens).result(limit_s):
                raise self._problem(self._events)
        except LateError:
            self.close()
            raise too_late(self._call.method, limit_s) from None
        except BaseException:
            self.close()
            raise

    def _listens(self) -> bool:
        """Return whether the controller listens, or has listened; if not, the call has failed."""
        if any(key == LISTENING for key, _ in self._events.initial_metadata() or ()):
            return True
        # Where past events alone are wanted, and there are none, gRPC may leave out what comes first.
        return bool(self._events.code() is grpc.StatusCode.OK)  # waits for the end

    def __enter__(self) -> EventStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> EventStream:
        return self

    def __next__(self) -> Event:
        """Return the next event. Raises StopIteration, or a HeadwayError, which closes the stream."""
        try:
            with self._reading:
                event = self._next()
        except HeadwayError:
            self.close()
            raise
        if event is None:
            raise StopIteration
        return event

    def _next(self) -> Event | None:
        try:
            message = None if self._closed else self._read()
        except LateError:
            return None
        except grpc.RpcError as error:
            if self._closed:
                return None
            raise self._problem(error) from error
        if message is None:
            self.close()
            return None
        return self._call.answer.decode(message)

    def _read(self) -> bytes | None:
        """Return the next message, None at the end. Raises LateError; then the message is the next one's still."""
        if self._idle_s is None:
            return next(self._events, None)
        if self._pending is None:
            self._pending = in_thread(lambda: next(self._events, None))
        try:
            message = self._pending.result(self._idle_s)
        finally:
            if self._pending.done():
                self._pending = None
        return message

    def _problem(self, ended: Any) -> HeadwayError:
        return problem_of(ended, self._call, self._path, 0.0, self._max_bytes)

    def close(self) -> None:
        """End the stream: the iteration stops, also one that waits in another thread."""
        self._closed = True
        self._streams.discard(self)
        self._channel.close()
