"""The Unix socket where jobs of this node report: SOCK_SEQPACKET, one frame a packet, every user may connect.

Invariant: nothing here waits for a job. A turn reads one frame of each connection that has some, sends go out at once or
are dropped, and whoever sends what is no frame, or too much, loses that connection and nothing else.

Frames are gathered: after some have been read, the next are looked at a moment later, all together. Waking up for each of
them took most of the agent's CPU time.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from nodeagent.errors import FrameError, IdentityError
from nodeagent.identity.peer import JobProcess, Peer, open_pidfd, peer_of
from nodeagent.jobsocket.listener_path import ListeningSocket
from nodeagent.jobsocket.rate_limit import Admission, Limits
from nodeagent.wire import frames
from nodeagent.wire.frames import Frame, Hello, Unknown
from nodeagent.wire.report import SocketCounters
from policies.serving.runtime.token_bucket import TokenBucket

log = structlog.get_logger(__name__)

_ACCEPTS_A_TURN = 16
_GATHER_S = 0.25
_ROUNDS = 20
"""Frames of one connection in one go: with _GATHER_S between, more than limits allow it for long."""
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_OUT_OF_FILES_PAUSE_S = 1.0
_REFUSALS_PER_S = 500.0
_REFUSALS_BURST = 1000.0
_REFUSALS_PAUSE_S = 0.02
"""Whoever knocks for ever costs so much of the agent's time, and others so much of theirs."""
_HELLO_WITHIN_S = 30.0
_TELL_REFUSALS_EVERY_S = 60.0
_MOST_REASONS = 32
"""That are told apart in the log: numbers that jobs say are in some of them."""
_MOST_WORDS = 200


class Listener(Protocol):
    """Is told what happens on the socket, in the event loop: it must not wait, and must not raise."""

    def opened(self, connection: int, process: JobProcess, now_ns: int) -> None:
        """A process of a job has connected; `connection` is never used again for another."""
        ...

    def received(self, connection: int, frame: Frame, now_ns: int) -> None:
        """It sent a frame. The first of every connection is a Hello."""
        ...

    def closed(self, connection: int, now_ns: int) -> None:
        """It is gone, or was closed."""
        ...


class Listeners:
    """Several, told one after the other."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = list(listeners)

    def add(self, listener: Listener) -> None:
        """One more, told last."""
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


class Identify(Protocol):
    """Tells the job of a process (see identity.Identifier)."""

    def identify(self, peer: Peer, pidfd: int) -> JobProcess:
        """Raises IdentityError."""
        ...


@dataclass(slots=True)
class _Connection:
    number: int
    sock: socket.socket
    process: JobProcess
    bucket: TokenBucket
    opened_ns: int
    greeted: bool = False
    last_seq: int = -1
    next_seq: int = 0


@dataclass(slots=True)
class _Counters:
    accepted: int = 0
    refused: int = 0
    closed_for_cause: int = 0
    frames: int = 0
    unknown_frames: int = 0
    dropped_sends: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Refusals and closings since they were last logged."""


class JobSocket:
    """The server. One event loop, no threads."""

    def __init__(
        self,
        path: Path,
        identify: Identify,
        listener: Listener,
        limits: Limits | None = None,
        *,
        steps_interval_s: float = 1.0,
        profile_steps: int = 0,
        gather_s: float = _GATHER_S,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.path = path
        self.steps_interval_s = steps_interval_s
        self.profile_steps = profile_steps
        self._identify = identify
        self._listener = listener
        self._admission = Admission(limits or Limits())
        self._clock_ns = clock_ns
        self._gather_s = gather_s
        self._connections: dict[int, _Connection] = {}
        self._by_file: dict[int, _Connection] = {}
        self._poll: select.epoll | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._numbers = itertools.count(1)
        self._counters = _Counters()
        self._buffer = bytearray(frames.MAX_FRAME_BYTES + 1)
        self._door: ListeningSocket | None = None
        self._told_ns = 0
        self._refusals = TokenBucket(_REFUSALS_PER_S, _REFUSALS_BURST, clock_ns() / 1e9)
        self._paused: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Listen, in the running event loop. Raises SocketError."""
        self._door = ListeningSocket.open(self.path)
        self._poll = select.epoll()
        asyncio.get_running_loop().add_reader(self._door.sock, self._accept)
        asyncio.get_running_loop().add_reader(self._poll.fileno(), self._wake)

    def close(self) -> None:
        """Close every connection and take the socket away."""
        if self._door is None or self._poll is None:
            return
        for pause in (self._paused, self._resting):
            if pause is not None:
                pause.cancel()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._door.sock)
        loop.remove_reader(self._poll.fileno())
        for connection in list(self._connections.values()):
            self._close(connection)
        self._poll.close()
        self._door.close()
        self._door = self._poll = None

    def request_profile(self, connection: int, steps: int) -> bool:
        """Ask a process for a profile window; whether the request went out."""
        found = self._connections.get(connection)
        return found is not None and self._send(found, frames.profile_request(found.next_seq, steps))

    def request_save(self, connection: int, save_id: str, still_s: float) -> bool:
        """Ask a process to save and stand still; whether the request went out."""
        found = self._connections.get(connection)
        return found is not None and self._send(found, frames.save_request(found.next_seq, save_id, still_s))

    def request_go_on(self, connection: int, save_id: str) -> bool:
        """Ask a process to train on; whether the request went out."""
        found = self._connections.get(connection)
        return found is not None and self._send(found, frames.go_on_request(found.next_seq, save_id))

    def read_now(self) -> None:
        """Read what has come without waiting for more to gather: somebody waits for it."""
        if self._poll is not None:
            self._read_all()

    def sweep(self) -> None:
        """Called now and then: close who never said hello, and log what was refused."""
        now_ns = self._clock_ns()
        for connection in list(self._connections.values()):
            if not connection.greeted and now_ns - connection.opened_ns > _HELLO_WITHIN_S * 1e9:
                self._close_for_cause(connection, "no hello")
        self._admission.tidy(now_ns / 1e9)
        if self._counters.reasons and now_ns - self._told_ns > _TELL_REFUSALS_EVERY_S * 1e9:
            log.warning("job_socket_refused", reasons=dict(self._counters.reasons))
            self._counters.reasons.clear()
            self._told_ns = now_ns

    def counters(self) -> SocketCounters:
        """What happened so far."""
        counted = self._counters
        return SocketCounters(
            connections=len(self._connections),
            accepted=counted.accepted,
            refused=counted.refused,
            closed_for_cause=counted.closed_for_cause,
            frames=counted.frames,
            unknown_frames=counted.unknown_frames,
            dropped_sends=counted.dropped_sends,
        )

    # ---- accepting

    def _accept(self) -> None:
        assert self._door is not None, "the reader is removed when the door closes"
        for _ in range(_ACCEPTS_A_TURN):
            try:
                sock, _address = self._door.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    log.error("job_socket_out_of_files", problem=error.strerror, open=len(self._connections))
                    self._pause(_OUT_OF_FILES_PAUSE_S)
                    return
                raise
            sock.setblocking(False)
            try:
                self._admit(sock)
            except IdentityError as error:
                log.debug("job_socket_refused", reason=str(error))
                self._refuse(sock, "not a process of a Slurm job")
            except OSError as error:  # it hung up meanwhile
                self._refuse(sock, f"{type(error).__name__}")
            if self._paused is not None:
                return

    def _admit(self, sock: socket.socket) -> None:
        peer, now_ns = peer_of(sock), self._clock_ns()
        if (reason := self._admission.may_try(peer.uid, now_ns / 1e9)) is not None:
            self._refuse(sock, reason)
            return
        pidfd = open_pidfd(sock, peer)
        try:
            process = self._identify.identify(peer, pidfd)
        finally:
            os.close(pidfd)
        connection = _Connection(next(self._numbers), sock, process, self._admission.bucket(now_ns / 1e9), now_ns)
        assert self._poll is not None, "open as long as the door is"
        self._poll.register(sock, select.EPOLLIN)  # first: where the kernel has no room for it, nothing is filed
        self._connections[connection.number] = connection
        self._admission.opened(process.uid, now_ns / 1e9)
        self._counters.accepted += 1
        self._listener.opened(connection.number, process, now_ns)
        self._by_file[sock.fileno()] = connection
        self._send(connection, frames.welcome(connection.next_seq, self.steps_interval_s, self.profile_steps))

    def _refuse(self, sock: socket.socket, reason: str) -> None:
        sock.close()
        self._counters.refused += 1
        self._count(reason)
        if not self._refusals.take(self._clock_ns() / 1e9):
            self._pause(_REFUSALS_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        """Who waits at the door goes on waiting for a moment, and the loop does not spin."""
        assert self._door is not None, "called by _accept"
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._door.sock)
        self._paused = loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        assert self._door is not None, "closing cancels the timer"
        self._paused = None
        asyncio.get_running_loop().add_reader(self._door.sock, self._accept)

    # ---- reading and writing

    def _wake(self) -> None:
        """Something has come after a quiet time."""
        if self._gather_s:
            assert self._poll is not None, "the reader is removed when it closes"
            asyncio.get_running_loop().remove_reader(self._poll.fileno())
        self._gather()

    def _gather(self) -> None:
        """Read what has come; as long as there was something, look again a moment later."""
        busy = self._read_all()
        if self._gather_s and self._poll is not None:
            loop = asyncio.get_running_loop()
            if busy:
                self._resting = loop.call_later(self._gather_s, self._gather)
            else:
                loop.add_reader(self._poll.fileno(), self._wake)

    def _read_all(self) -> bool:
        """A frame of each connection that has one, again and again as far as _ROUNDS; whether there were any."""
        assert self._poll is not None, "neither reader nor timer outlives it"
        for turn in range(_ROUNDS):
            ready = self._poll.poll(0, max(1, len(self._connections)))
            if not ready:
                return turn > 0
            for file, _events in ready:
                if (connection := self._by_file.get(file)) is not None:
                    self._read_guarded(connection)
        return True

    def _read_guarded(self, connection: _Connection) -> None:
        """Whatever goes wrong with one connection costs that one: an error that got out would end the reading of all."""
        try:
            self._read(connection)
        except Exception as error:  # noqa: BLE001 - what jobs send has a part in it
            self._count(f"agent's own error: {type(error).__name__}: {error}"[:_MOST_WORDS])
            if connection.number in self._connections:
                with suppress(Exception):  # the connection is closed before anybody is told of it
                    self._close_for_cause(connection, "the agent could not take what it sent")

    def _read(self, connection: _Connection) -> None:
        try:
            size = connection.sock.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # reset by the other side
            size = 0
        if size == 0:  # an empty packet looks the same, and is no frame either
            self._close(connection)
            return
        try:
            self._take(connection, size)
        except FrameError as error:
            self._close_for_cause(connection, str(error))

    def _take(self, connection: _Connection, size: int) -> None:
        """One packet. Raises FrameError when the connection is to be closed for it."""
        now_ns = self._clock_ns()
        if not connection.bucket.take(now_ns / 1e9):
            raise FrameError("too many frames")
        if not self._admission.may_send(connection.process.uid, size, now_ns / 1e9):
            raise FrameError("too many frames of this user")
        frame = frames.parse(bytes(memoryview(self._buffer)[:size]))
        if frame.seq <= connection.last_seq:
            raise FrameError("seq: did not rise")
        connection.last_seq = frame.seq
        self._counters.frames += 1
        if isinstance(frame, Unknown):
            self._counters.unknown_frames += 1
            return
        if not connection.greeted and not isinstance(frame, Hello):
            raise FrameError("the first frame is no hello")
        connection.greeted = True
        self._listener.received(connection.number, frame, now_ns)

    def _send(self, connection: _Connection, packet: bytes) -> bool:
        """Whether it went out. A job that does not read loses frames, never time of the agent's."""
        try:
            connection.sock.send(packet)
        except OSError:  # full, or gone: then the reader will see the end
            self._counters.dropped_sends += 1
            return False
        connection.next_seq += 1
        return True

    def _close_for_cause(self, connection: _Connection, reason: str) -> None:
        log.debug("job_connection_closed", job=connection.process.job_id, pid=connection.process.pid, reason=reason)
        self._counters.closed_for_cause += 1
        self._count(reason)
        self._close(connection)

    def _close(self, connection: _Connection) -> None:
        now_ns = self._clock_ns()
        del self._by_file[connection.sock.fileno()]
        connection.sock.close()  # which takes it out of the epoll set
        del self._connections[connection.number]
        self._admission.closed(connection.process.uid, now_ns / 1e9)
        self._listener.closed(connection.number, now_ns)

    def _count(self, reason: str) -> None:
        if reason not in self._counters.reasons and len(self._counters.reasons) >= _MOST_REASONS:
            reason = "other reasons"
        self._counters.reasons[reason] = self._counters.reasons.get(reason, 0) + 1
