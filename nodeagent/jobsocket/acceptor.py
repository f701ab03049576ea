"""Accepts connections on the job socket, and pauses when it cannot keep up."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from pathlib import Path

import structlog

from nodeagent.errors import IdentityError
from nodeagent.jobsocket.counters import Counters
from nodeagent.jobsocket.listener_path import ListeningSocket
from policies.serving.runtime.tasks.token_bucket import TokenBucket

log = structlog.get_logger(__name__)

_ACCEPTS_PER_TURN = 16
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_OUT_OF_FILES_PAUSE_S = 1.0
_REFUSALS_PER_S = 3000.0
_REFUSALS_BURST = 3000.0
_REFUSALS_PAUSE_S = 0.02
"""Bound the time that a user who connects again and again costs the agent: about a twentieth of a core.

The kernel has one queue for all users, of 1,024 connections, and only after accept() is it known which user connects. So these
numbers also bound the delay of other users behind a full queue: a third of a second.
"""


class Acceptor:
    """Hands each new connection to `admit`, in the running event loop.

    Invariant: a turn accepts at most _ACCEPTS_PER_TURN connections; after too many refusals, or when the process has no file left,
    the acceptor pauses, and new connections wait in the kernel's queue.
    """

    def __init__(
        self,
        path: Path,
        admit: Callable[[socket.socket], str | None],
        counters: Counters,
        clock_ns: Callable[[], int],
    ) -> None:
        """`admit` takes over the connection, or returns why it refuses it. It may raise IdentityError and OSError."""
        self.listening = ListeningSocket.open(path)
        self._admit = admit
        self._counters = counters
        self._clock_ns = clock_ns
        self._refusals = TokenBucket(_REFUSALS_PER_S, _REFUSALS_BURST, clock_ns() / 1e9)
        self._paused: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.listening.sock, self._accept)

    def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._paused is not None:
            self._paused.cancel()
        self._loop.remove_reader(self.listening.sock)
        self.listening.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, _address = self.listening.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    log.error("job_socket_out_of_files", problem=error.strerror, open=self._counters.connections)
                    self._pause(_OUT_OF_FILES_PAUSE_S)
                    return
                raise
            sock.setblocking(False)
            try:
                reason = self._admit(sock)
            except IdentityError as error:
                log.debug("job_socket_refused", reason=str(error))
                reason = "not a process of a Slurm job"
            except OSError as error:  # the process has closed the connection already
                reason = type(error).__name__
            if reason is not None:
                self._refuse(sock, reason)
            if self._paused is not None:
                return

    def _refuse(self, sock: socket.socket, reason: str) -> None:
        sock.close()
        self._counters.count_refused(reason)
        if not self._refusals.take(self._clock_ns() / 1e9):
            self._pause(_REFUSALS_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        """Accept nothing for a moment, so that the event loop does not spin."""
        self._loop.remove_reader(self.listening.sock)
        self._paused = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._paused = None
        self._loop.add_reader(self.listening.sock, self._accept)
