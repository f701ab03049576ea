"""Events as an asynchronous iterator."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any, Callable

import grpc.aio
from headway_client.answers.jobs import Event
from headway_client.calls import Call
from headway_client.errors import ClosedError, HeadwayError
from headway_client.limits import problem_of, too_late
from headway_client.wire.channel import LISTENING, Metadata, options, target


class AsyncEventStream:
    """Asynchronous iterator over events. It begins to listen when it is entered (`async with`), or at the first event.

    Invariant: it is among `streams` for as long as it has a channel. It raises UnavailableError when the controller ends, and
    stops when it is closed, which another task may do.
    """

    def __init__(
        self,
        find: Callable[[], Path],
        call: Call[Event],
        limit_s: float,
        max_bytes: int,
        idle_s: float | None,
        streams: set[AsyncEventStream],
        metadata: Metadata = (),
    ) -> None:
        self._find = find
        self._call = call
        self._limit_s = limit_s
        self._max_bytes = max_bytes
        self._idle_s = idle_s
        self._streams = streams
        self._metadata = metadata
        self._closed = False
        self._reading = asyncio.Lock()
        self._path = Path()
        self._events: Any = None
        self._pending: asyncio.Future[Any] | None = None
        """The next message, where the time limit has passed, or the task that waited was cancelled, before it came."""
        self._channel: grpc.aio.Channel | None = None

    async def open(self) -> None:
        """Begin to listen, unless it does already. Raises a HeadwayError."""
        if self._closed:
            raise ClosedError("the stream of events was closed")
        if self._events is not None:
            return
        self._path = self._find()
        self._channel = grpc.aio.insecure_channel(target(self._path), options=options(self._max_bytes))
        self._events = _watch(self._channel, self._call, self._metadata)
        self._streams.add(self)
        # A task of its own: gRPC cancels those that wait for a call that is closed, and this task was not cancelled.
        beginning = asyncio.ensure_future(self._begin(self._events))
        try:
            await asyncio.wait({beginning}, timeout=self._limit_s)
            if self._closed:
                raise ClosedError("the stream of events was closed")
            if not beginning.done():
                raise too_late(self._call.method, self._limit_s)
            beginning.result()
        except BaseException:
            self.close()
            beginning.cancel()
            raise
        finally:
            # An error refers to this frame, and the task to its error: the stream would stay until Python looks for cycles.
            del beginning

    async def _begin(self, events: Any) -> None:
        """Wait until the controller says that it listens. Raises a HeadwayError."""
        initial = await events.initial_metadata()
        if any(key == LISTENING for key, _ in initial or ()):
            return
        code = await events.code()  # waits for the end
        if code is grpc.StatusCode.OK:  # past events alone, and none: gRPC may then leave out what comes first
            return
        trailing, details = await events.trailing_metadata(), await events.details()
        del events  # the error refers to this frame
        raise self._problem(grpc.aio.AioRpcError(code, initial, trailing, details))

    async def __aenter__(self) -> AsyncEventStream:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> AsyncEventStream:
        return self

    async def __anext__(self) -> Event:
        """Return the next event. Raises StopAsyncIteration, or a HeadwayError, which closes the stream."""
        try:
            async with self._reading:
                event = await self._next()
        except HeadwayError:
            self.close()
            raise
        if event is None:
            raise StopAsyncIteration
        return event

    async def _next(self) -> Event | None:
        if self._closed:
            return None
        await self.open()
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._events.read())
            self._pending.add_done_callback(
                lambda read: read.cancelled() or read.exception()
            )  # it may never be awaited
        await asyncio.wait({self._pending}, timeout=self._idle_s)
        if self._closed or not self._pending.done():
            return None
        read, self._pending = self._pending, None
        try:
            message = read.result()
        except grpc.RpcError as error:
            # The traceback refers to the connection, as in `AsyncClient`.
            raise self._problem(error) from error.with_traceback(None)
        if message is grpc.aio.EOF:
            self.close()
            return None
        return self._call.answer.decode(message)

    def _problem(self, ended: Any) -> HeadwayError:
        return problem_of(ended, self._call, self._path, self._limit_s, self._max_bytes)

    def close(self) -> None:
        """End the stream: the iteration stops, also one that waits in another task."""
        self._closed = True
        self._streams.discard(self)
        if self._events is not None:
            self._events.cancel()
            self._events = None
        if self._pending is not None:
            self._pending.cancel()
        self._channel = None  # gRPC closes a channel that nothing refers to; its own `close` would have to be awaited


def _watch(channel: grpc.aio.Channel, call: Call[Any], metadata: Metadata) -> Any:
    """Begin a call. Nothing but the call that is returned refers to the channel then."""
    watch: Any = channel.unary_stream(call.path)  # without serializers: bytes
    return watch(call.encode(), metadata=metadata)
