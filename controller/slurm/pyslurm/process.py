"""A child process that calls pyslurm, because a call that slurmctld does not answer can only be ended by ending the process.

ProcessPoolExecutor is not used: it cannot kill a worker that hangs, and waits for it when the controller ends.

Requests and answers are pickled frames: a length of 8 bytes, then the pickle. Both ends are ours; nothing else can write to
the pipes. pyslurm prints to standard output now and then, so answers travel on a descriptor of their own.

A controller that still runs after an upgrade starts children of the new version. So an answer has the two parts of earlier
versions, and more only where the parent asks for them on the command line; further parts are ignored.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from controller.base.errors import SlurmReplyError, SlurmUnavailableError
from controller.base.text import clip
from controller.slurm.pyslurm.errors import is_away, number_of
from controller.slurm.time_limit import TimeLimit
from policies.serving.runtime.tasks.single_thread import Worker as SingleThread

_LENGTH: Final = struct.Struct("!Q")
_CHUNK: Final = 1 << 20
_WITH_NUMBERS: Final = "with-numbers"
"""Argument of the child: an answer has Slurm's number of the error as its third part."""


class Worker(Protocol):
    """Calls a method of PySlurmCalls by name."""

    async def call(self, method: str, *arguments: object) -> Any:
        """Return the method's result.

        Raises SlurmUnavailableError when slurmctld does not answer, SlurmReplyError when it refuses.
        """

    def close(self) -> None:
        """End whatever answers the calls."""


class WorkerProcess:
    """A Worker in a child process, which starts at the first call, and again after it had to be ended.

    Invariant: no call takes longer than the time limit, with the wait for its turn; a child that was late, or whose caller has
    gone, is dead before the call raises, and a call that waited for its turn until then is never sent. One thread alone talks to
    the child.
    """

    def __init__(self, environment: Mapping[str, str], timeout_s: float) -> None:
        self._environment = {**environment, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._timeout_s = timeout_s
        self._child: subprocess.Popen[bytes] | None = None
        self._answers = -1
        self._thread = SingleThread("pyslurm")

    async def call(self, method: str, *arguments: object) -> Any:
        """See Worker."""
        limit = TimeLimit(self._timeout_s)
        work = self._thread.submit(partial(self._exchange, (method, arguments), limit))
        outcome, result, *rest = await limit.result(work, f"pyslurm {method}")
        number = rest[0] if rest else None
        if outcome == "done":
            return result
        if is_away(number, result):
            raise SlurmUnavailableError(
                f"pyslurm {method}: {clip(result)}; is slurmctld running? `scontrol ping` shows it"
            )
        raise SlurmReplyError(f"pyslurm {method}: {clip(result)}")

    def close(self) -> None:
        """End the child and the thread, which reaps it, and also one that a call under way has just started."""
        child = self._child  # read once: the thread may end this child meanwhile
        try:
            if child is not None:
                _kill(child)
        finally:
            self._thread.end(self._end_child)

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        _kill(child)
        if child.stdin is not None:
            child.stdin.close()
        os.close(self._answers)
        child.wait()

    def _exchange(self, request: object, limit: TimeLimit) -> tuple[Any, ...]:
        """Return the outcome, its result or message, and Slurm's number of an error, if any."""
        try:
            limit.left_s()
        except TimeoutError as error:  # the child is in order, and is kept for the next call
            raise SlurmUnavailableError("pyslurm: no turn in time, because earlier calls took too long") from error
        if self._child is None or self._child.poll() is not None:
            self._end_child()
            self._start()
        try:
            self._write(pickle.dumps(request), limit)
            (length,) = _LENGTH.unpack(self._read(_LENGTH.size, limit))
            answer: tuple[Any, ...] = pickle.loads(self._read(length, limit))  # noqa: S301 - our own child's
        except (OSError, EOFError) as error:
            self._end_child()
            raise SlurmUnavailableError(
                f"pyslurm: no answer from its process within {self._timeout_s:g} s ({error}); slurmctld may be down or "
                'overloaded (`scontrol ping` shows it); slurm_client = "command-line" works without pyslurm'
            ) from error
        except BaseException:
            self._end_child()  # a part of its answer may be left
            raise
        return answer

    def _start(self) -> None:
        """Start a child. Raises SlurmUnavailableError, and leaves nothing open, when there is no memory or descriptor for it."""
        try:
            answers, theirs = os.pipe()
            try:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", "controller.slurm.pyslurm.process", str(theirs), _WITH_NUMBERS],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs,),
                    env=self._environment,
                    cwd="/",
                    start_new_session=True,
                    bufsize=0,
                )
            except BaseException:
                os.close(answers)
                raise
            finally:
                os.close(theirs)
        except OSError as error:
            raise SlurmUnavailableError(f"pyslurm: its process could not be started: {error}") from error
        self._answers = answers

    def _write(self, frame: bytes, limit: TimeLimit) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        rest = memoryview(_LENGTH.pack(len(frame)) + frame)
        while rest:
            while not select.select([], [self._child.stdin], [], limit.left_s())[1]:
                pass
            rest = rest[os.write(self._child.stdin.fileno(), rest[: select.PIPE_BUF]) :]

    def _read(self, size: int, limit: TimeLimit) -> bytes:
        chunks = []
        while size:
            while not select.select([self._answers], [], [], limit.left_s())[0]:
                pass
            chunk = os.read(self._answers, min(size, _CHUNK))
            if not chunk:
                raise EOFError("it ended")
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the child's session, unless the child has been reaped: then its number may belong to another process."""
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def serve(answers: int, *, with_numbers: bool) -> None:
    """Run in the child: answer requests until the parent closes the pipe. `with_numbers`: see `_WITH_NUMBERS`."""
    import pyslurm

    from controller.slurm.pyslurm.calls import PySlurmCalls

    calls = PySlurmCalls(pyslurm)
    with os.fdopen(answers, "wb") as out:
        while header := sys.stdin.buffer.read(_LENGTH.size):
            method, arguments = pickle.loads(sys.stdin.buffer.read(_LENGTH.unpack(header)[0]))  # noqa: S301 - our own parent's
            number = None
            try:
                answer = ("done", getattr(calls, method)(*arguments))
            except Exception as error:  # noqa: BLE001 - the parent must get an answer in any case
                answer = ("failed", str(error) or type(error).__name__)
                number = number_of(error)
            frame = pickle.dumps((*answer, number) if with_numbers else answer)
            out.write(_LENGTH.pack(len(frame)) + frame)
            out.flush()


if __name__ == "__main__":
    serve(int(sys.argv[1]), with_numbers=_WITH_NUMBERS in sys.argv[2:])
