"""Runs Slurm's programs: argv lists, a deadline, bounded output, and nothing left behind.

A worker thread reads and writes plain pipes, because the deadline must be kept whatever the program does: it may sleep, flood
its output, close it and stay, or leave a child behind that keeps the pipe open.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fcntl import F_SETPIPE_SZ, fcntl
from pathlib import Path
from typing import IO, Final, Protocol, cast

from controller.base.errors import SlurmReplyError, SlurmUnavailableError
from controller.base.text import clip
from controller.slurm.time_limit import TimeLimit

_CHUNK: Final = 1 << 20
_KEPT_ERROR_BYTES: Final = 1 << 20
_REAP_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that has ended by itself."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: str
    left_out: int = 0
    """Number of records that the sieve left out although they were wanted."""


class Sieve(Protocol):
    """Drops parts of one program's output while it is read, so that the rest is small."""

    @property
    def left_out(self) -> int:
        """Number of records that were wanted and are left out, because there are too many."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """Return what is to be kept of everything up to the end of the chunk."""
        ...

    def end(self) -> bytes:
        """Return what is to be kept of the rest, at the end of the output."""
        ...


class CommandRunner(Protocol):
    """Runs one of Slurm's programs."""

    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        """Run it to its end.

        Raises SlurmUnavailableError when it is missing or takes too long, SlurmReplyError when it prints far too much.
        """


class ProcessRunner:
    """Runs real processes, each in a session of its own.

    Invariant: when `run` returns or raises, the program and every child that stayed in its session are dead, and a program that
    waited for a free thread until then is never started. The caller's environment does not reach the program: SLURM_* and squeue's
    format variables of the user that started the controller would change what it prints.
    """

    def __init__(
        self,
        *,
        bin_dir: Path | None,
        environment: Mapping[str, str],
        timeout_s: float,
        max_output_bytes: int = 1 << 28,
        sieve: Callable[[], Sieve] | None = None,
    ) -> None:
        """`max_output_bytes` counts what is kept. `sieve` makes one for each run; without one all output is kept."""
        self._sieve = sieve
        self._bin_dir = bin_dir
        self._environment = dict(environment)
        self._timeout_s = timeout_s
        self._max_output_bytes = max_output_bytes

    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        """See CommandRunner. A cancelled call ends the program at once."""
        argv = (str(self._bin_dir / program) if self._bin_dir else program, *arguments)
        limit = TimeLimit(self._timeout_s)
        call = _Call(argv, self._environment, stdin, limit, self._max_output_bytes)
        call.sieve = self._sieve() if self._sieve is not None else None
        return await limit.result(asyncio.get_running_loop().run_in_executor(None, call.run), call.name)


class _Call:
    """One run of one program, in a thread."""

    def __init__(
        self, argv: tuple[str, ...], environment: dict[str, str], stdin: bytes, limit: TimeLimit, max_bytes: int
    ) -> None:
        self._argv = argv
        self._environment = environment
        self._stdin = memoryview(stdin)
        self._limit = limit
        self._max_bytes = max_bytes
        self._chunks: list[bytes] = []
        """Bound: `max_bytes`."""
        self._errors: list[bytes] = []
        """Bound: `_KEPT_ERROR_BYTES`."""
        self._size = 0
        self._error_size = 0
        self.sieve: Sieve | None = None

    @property
    def name(self) -> str:
        """The command, for messages."""
        return clip(" ".join(self._argv), 200)

    def run(self) -> Completed:
        self._left_s()
        process = self._start()
        try:
            self._talk(process)
            status = self._wait(process)
        finally:
            _end(process)
        left_out = self.sieve.left_out if self.sieve is not None else 0
        return Completed(self._argv, status, b"".join(self._chunks), _text(self._errors), left_out)

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE if self._stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise SlurmUnavailableError(
                f"{self._argv[0]}: cannot be run: {error.strerror}; install Slurm's client programs, or set slurm_bin to "
                "their folder"
            ) from error

    def _talk(self, process: subprocess.Popen[bytes]) -> None:
        """Write the input and read both outputs until they are closed."""
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                _enlarge(stream)
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            if process.stdin is not None:
                os.set_blocking(process.stdin.fileno(), False)
                selector.register(process.stdin, selectors.EVENT_WRITE)
            while selector.get_map():
                for key, _ in selector.select(self._left_s()):
                    if key.fileobj is process.stdin:
                        finished = self._feed(key.fd)
                    else:
                        finished = self._drain(key.fd, is_error=key.fileobj is process.stderr)
                    if finished:
                        selector.unregister(key.fileobj)
                        cast("IO[bytes]", key.fileobj).close()

    def _left_s(self) -> float:
        """Return the seconds that a wait may take now. Raises when the time is over."""
        try:
            return self._limit.left_s()
        except TimeoutError as error:
            raise SlurmUnavailableError(
                f"{self.name}: no answer within {self._limit.timeout_s:g} s; slurmctld may be down or overloaded "
                "(`scontrol ping` shows it; slurm_timeout_s is how long Headway waits)"
            ) from error

    def _feed(self, fd: int) -> bool:
        try:
            written = os.write(fd, self._stdin[:_CHUNK])
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True
        self._stdin = self._stdin[written:]
        return not self._stdin

    def _drain(self, fd: int, *, is_error: bool) -> bool:
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if is_error:
            self._error_size += len(chunk)
            if self._error_size <= _KEPT_ERROR_BYTES:
                self._errors.append(chunk)
        else:
            self._keep(chunk)
        if self._size + self._error_size > self._max_bytes:
            raise SlurmReplyError(
                f"{self.name}: more than {self._max_bytes >> 20} MiB of output, beginning "
                f"{clip((self._chunks or self._errors)[0])}; is this Slurm's own program?"
            )
        return not chunk

    def _keep(self, chunk: bytes) -> None:
        """Keep a piece of the output; an empty one is its end."""
        kept = chunk
        if self.sieve is not None:
            kept = self.sieve.feed(chunk) if chunk else self.sieve.end()
        if kept:
            self._size += len(kept)
            self._chunks.append(kept)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the program's end after both outputs were closed: it ends at once or never."""
        while True:
            try:
                return process.wait(self._left_s())
            except subprocess.TimeoutExpired:
                continue


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the session, close the pipes, and reap the program."""
    if process.poll() is None:
        # Only before it is reaped: afterwards its number may belong to another process.
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(_REAP_S)
    except subprocess.TimeoutExpired:
        # It hangs in the kernel (on a dead file server, for example). Nothing can be done about it, and Headway must go on.
        return


def _enlarge(stream: IO[bytes]) -> None:
    """Enlarge a pipe, which saves wake-ups on long answers; a failure is harmless."""
    try:
        fcntl(stream.fileno(), F_SETPIPE_SZ, _CHUNK)
    except OSError:
        return


def _text(chunks: list[bytes]) -> str:
    return b"".join(chunks).decode("utf-8", "replace").strip()
