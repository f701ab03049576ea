"""The Unix socket on which jobs of this node report: SOCK_SEQPACKET, one frame per packet, every user may connect.

Invariant: nothing here waits for a job, nor for a file that it sends. A turn reads one frame of each connection that has one; a
send succeeds at once or is dropped; a process that sends an invalid frame, or too much, loses its connection, and no other
process is affected.

Frames are gathered: after some have been read, the next are read together a moment later. Waking up for each frame took most of
the agent's CPU time.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from nodeagent.errors import FrameError
from nodeagent.identity.peer import JobProcess, Peer, open_pidfd, peer_of
from nodeagent.jobsocket.acceptor import Acceptor
from nodeagent.jobsocket.counters import Counters
from nodeagent.jobsocket.listener import Listener
from nodeagent.jobsocket.rate_limit import ConnectionAdmission, Limits
from nodeagent.wire import frames
from nodeagent.wire.frames import Hello, Unknown
from nodeagent.wire.report import SocketCounters
from policies.serving.runtime.tasks.token_bucket import TokenBucket
from policies.serving.runtime.user_sockets import PassedFileError

log = structlog.get_logger(__name__)

_GATHER_S = 0.25
_FRAMES_PER_TURN = 20
"""Frames of one connection that are read without a pause: with _GATHER_S between turns, more than the limits allow for long."""
_HELLO_TIMEOUT_S = 30.0
_MAX_PROBLEM_CHARS = 200


class Identify(Protocol):
    """Finds the job of a process; see identity.peer.Identifier."""

    def identify(self, peer: Peer, pidfd: int) -> JobProcess:
        """Raises IdentityError when the process belongs to no job of this node."""
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
    reset: bool = False
    """The other side has closed it; its last frames are still to be read."""


class JobSocket:
    """The server, in one event loop and without threads."""

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
        self._profile_steps = profile_steps
        self._identify = identify
        self._listener = listener
        self._admission = ConnectionAdmission(limits or Limits())
        self._clock_ns = clock_ns
        self._gather_s = gather_s
        self._connections: dict[int, _Connection] = {}
        """Open connections by number. Bound: those that `Admission` accepts."""
        self._by_file: dict[int, _Connection] = {}
        """Open connections by descriptor. Bound: as before."""
        self._poll: select.epoll | None = None
        self._acceptor: Acceptor | None = None
        self._gathering: asyncio.TimerHandle | None = None
        self._numbers = itertools.count(1)
        self._counters = Counters()
        self._buffer = bytearray(frames.MAX_FRAME_BYTES + 1)

    def open(self) -> None:
        """Listen, in the running event loop. Raises SocketError."""
        self._acceptor = Acceptor(self.path, self._admit, self._counters, self._clock_ns)
        self._poll = select.epoll()
        asyncio.get_running_loop().add_reader(self._poll.fileno(), self._wake)

    def close(self) -> None:
        """Close every connection and remove the socket."""
        if self._acceptor is None or self._poll is None:
            return
        if self._gathering is not None:
            self._gathering.cancel()
        asyncio.get_running_loop().remove_reader(self._poll.fileno())
        for connection in list(self._connections.values()):
            self._close(connection)
        self._poll.close()
        self._acceptor.close()
        self._acceptor = self._poll = None

    def set_profile_steps(self, steps: int) -> None:
        """Set the length of the first profile window of processes that connect from now on; 0 = none."""
        self._profile_steps = steps

    @property
    def listening(self) -> bool:
        """True between `open` and `close`."""
        return self._acceptor is not None

    def request_profile(self, connection: int, steps: int) -> bool:
        """Request a profile window from a process. Return True when the request was sent."""
        found = self._connections.get(connection)
        return found is not None and self._send(found, frames.profile_request(found.next_seq, steps))

    def request_save(self, connection: int, save_id: str, still_s: float, why: str = "") -> bool:
        """Request that a process saves, and then pauses for at most `still_s`. Return True when the request was sent."""
        found = self._connections.get(connection)
        return found is not None and self._send(found, frames.save_request(found.next_seq, save_id, still_s, why))

    def request_go_on(self, connection: int, save_id: str) -> bool:
        """Request that a process which paused for this save trains on. Return True when the request was sent."""
        found = self._connections.get(connection)
        return found is not None and self._send(found, frames.go_on_request(found.next_seq, save_id))

    def give_report(self, connection: int, lines: Iterable[str]) -> None:
        """Give a process what the controller knows about its job, if it is still connected."""
        found = self._connections.get(connection)
        if found is not None:
            self._send(found, frames.report_lines(found.next_seq, lines))

    def read_now(self) -> None:
        """Read what has arrived, without waiting for more to gather."""
        if self._poll is not None:
            self._read_all()

    def sweep(self) -> None:
        """Close connections that never sent a hello, and log refusals. To be called every few seconds."""
        now_ns = self._clock_ns()
        for connection in list(self._connections.values()):
            if not connection.greeted and now_ns - connection.opened_ns > _HELLO_TIMEOUT_S * 1e9:
                self._close_for_cause(connection, "no hello")
        self._admission.forget_idle_users(now_ns / 1e9)
        self._counters.log_reasons(now_ns)

    def counters(self) -> SocketCounters:
        """Return the counts since the agent started."""
        return self._counters.report()

    # ---- connections

    def _admit(self, sock: socket.socket) -> str | None:
        """Take over a new connection, or return why it is refused."""
        peer, now_ns = peer_of(sock), self._clock_ns()
        if (reason := self._admission.refusal(peer.uid, now_ns / 1e9)) is not None:
            return f"{reason} (uid {peer.uid})"
        pidfd = open_pidfd(sock, peer)
        try:
            process = self._identify.identify(peer, pidfd)
        finally:
            os.close(pidfd)
        connection = _Connection(next(self._numbers), sock, process, self._admission.bucket(now_ns / 1e9), now_ns)
        assert self._poll is not None, "it is open as long as the acceptor is"
        # This comes first: if the kernel has no room for it, nothing else has changed.
        self._poll.register(sock, select.EPOLLIN)
        self._connections[connection.number] = connection
        self._admission.opened(process.uid, now_ns / 1e9)
        self._counters.count_accepted()
        self._listener.opened(connection.number, process, now_ns)
        self._by_file[sock.fileno()] = connection
        self._send(connection, frames.welcome(connection.next_seq, self.steps_interval_s, self._profile_steps))
        return None

    def _close_for_cause(self, connection: _Connection, reason: str) -> None:
        log.debug("job_connection_closed", job=connection.process.job_id, pid=connection.process.pid, reason=reason)
        self._counters.count_closed_for_cause(reason)
        self._close(connection)

    def _close(self, connection: _Connection) -> None:
        now_ns = self._clock_ns()
        del self._by_file[connection.sock.fileno()]
        if self._poll is not None:
            self._poll.unregister(connection.sock)  # it may be closed a moment later, in a thread
        connection.sock.close()
        del self._connections[connection.number]
        self._counters.count_closed()
        self._admission.closed(connection.process.uid, now_ns / 1e9)
        self._listener.closed(connection.number, now_ns)

    # ---- reading and writing

    def _wake(self) -> None:
        """The first frame after a quiet time has arrived."""
        if self._gather_s:
            assert self._poll is not None, "the reader is removed when it closes"
            asyncio.get_running_loop().remove_reader(self._poll.fileno())
        self._gather()

    def _gather(self) -> None:
        """Read what has arrived. If there was something, do it again a moment later; else wait for the next frame."""
        busy = self._read_all()
        if self._gather_s and self._poll is not None:
            loop = asyncio.get_running_loop()
            if busy:
                self._gathering = loop.call_later(self._gather_s, self._gather)
            else:
                loop.add_reader(self._poll.fileno(), self._wake)

    def _read_all(self) -> bool:
        """Read a frame of each connection that has one, and repeat, up to _FRAMES_PER_TURN times. Return True if there were any."""
        assert self._poll is not None, "neither reader nor timer outlives it"
        for turn in range(_FRAMES_PER_TURN):
            ready = self._poll.poll(0, max(1, len(self._connections)))
            if not ready:
                return turn > 0
            for file, _events in ready:
                if (connection := self._by_file.get(file)) is not None:
                    self._read_guarded(connection)
        return True

    def _read_guarded(self, connection: _Connection) -> None:
        """Read from one connection. An error closes this connection only: if it escaped, no connection would be read any more."""
        try:
            self._read(connection)
        except Exception as error:  # noqa: BLE001 - data that jobs send may cause it
            self._counters.count_reason(f"agent's own error: {type(error).__name__}: {error}"[:_MAX_PROBLEM_CHARS])
            if connection.number in self._connections:
                with suppress(Exception):  # the connection is closed before a listener can fail
                    self._close_for_cause(connection, "the agent could not take what it sent")

    def _read(self, connection: _Connection) -> None:
        try:
            size = connection.sock.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionResetError:
            # Closed while frames of ours were unread there. The kernel says so once, before the frames that came from there.
            if not connection.reset:
                connection.reset = True
                return
            size = 0
        except PassedFileError:
            self._close_for_cause(connection, "an open file was sent")
            return
        except OSError:
            size = 0
        if size == 0:  # an empty packet looks the same, and is not a frame either
            self._close(connection)
            return
        try:
            self._take(connection, size)
        except FrameError as error:
            self._close_for_cause(connection, str(error))

    def _take(self, connection: _Connection, size: int) -> None:
        """Process one packet. Raises FrameError when the connection must be closed for it."""
        now_ns = self._clock_ns()
        if not connection.bucket.take(now_ns / 1e9):
            raise FrameError("too many frames")
        if not self._admission.may_send(connection.process.uid, size, now_ns / 1e9):
            raise FrameError("too many frames of this user")
        frame = frames.parse(bytes(memoryview(self._buffer)[:size]))
        if frame.seq <= connection.last_seq:
            raise FrameError("seq: did not rise")
        connection.last_seq = frame.seq
        self._counters.count_frame(known=not isinstance(frame, Unknown))
        if isinstance(frame, Unknown):
            return
        if not connection.greeted and not isinstance(frame, Hello):
            raise FrameError("the first frame is not a hello")
        connection.greeted = True
        self._listener.received(connection.number, frame, now_ns)

    def _send(self, connection: _Connection, packet: bytes) -> bool:
        """Return True when the packet was sent. A job that does not read loses frames; the agent never waits for it."""
        try:
            connection.sock.send(packet)
        except OSError:  # the buffer is full, or the process is gone, which the next read will show
            self._counters.count_dropped_send()
            return False
        connection.next_seq += 1
        return True
