"""Lines of Headway in the job's own log, its standard error: that it is stopped, goes on, or runs again, at which step and why.

Invariant: a log that takes no lines delays no save and no answer to the agent by more than a second, once. It may be a file on a
disk that hangs, or a pipe that is not read. So lines are written in a thread of their own, which lives while there are any. Where
no thread can start, the calling one writes: a line is worth more than the second.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Deque, Iterable, List, Optional

_log = logging.getLogger("headway_job")
_MAX_CHARS = 400
_MOST_WAIT_S = 1.0
"""Longest wait for a line: usually it is there before the job is stopped."""
_MOST_WAITING = 32
"""Lines that are kept while the log takes none; newer ones are left out."""

Write = Callable[[], object]


class LineWriter:
    """Writes the lines one after the other, each in its turn."""

    def __init__(self, most_wait_s: float = _MOST_WAIT_S) -> None:
        self._most_wait_s = most_wait_s
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._waiting: Deque[Write] = deque()
        """Bound: `_MOST_WAITING`."""
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._late = False
        """A line was waited for in vain, and is not written yet."""
        self._pid = os.getpid()

    def put(self, write: Write) -> None:
        """Write a line, and wait for it, unless the log has taken none for a while."""
        if self._pid != os.getpid():  # a forked child has no thread, and the lock may be held in it
            self._begin_anew()
        left: List[Write] = []
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING:
                return
            self._waiting.append(write)
            if self._thread is None or not self._thread.is_alive():
                left = self._begin_thread()
            thread, late = self._thread, self._late
        for each in left:
            with suppress(Exception):  # as in `_run`
                each()
        if thread is not None and not late:
            thread.join(self._most_wait_s)
            with self._lock:
                self._late = self._thread is thread

    def _begin_thread(self) -> List[Write]:
        """Start the thread, with the lock held. Return the lines that the caller has to write itself, as no thread could start."""
        self._thread = threading.Thread(target=self._run, name="headway-log", daemon=True)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError):  # the program ends, or may start no more threads
            self._thread, self._late = None, False
            left = list(self._waiting)
            self._waiting.clear()
            return left
        return []

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread, self._late = None, False
                    return
                write = self._waiting.popleft()
            # The log is closed or full, or a handler of the program fails: the line is left out.
            with suppress(Exception):
                write()


_writer = LineWriter()


def write_line(text: str) -> None:
    """Write one line. Where standard error is closed or full, it is left out."""
    write_lines([text])


def write_lines(texts: Iterable[str]) -> None:
    """Write lines that belong together."""
    shown = ("".join(sign if sign.isprintable() else "?" for sign in text)[:_MAX_CHARS] for text in texts)
    _writer.put(partial(_write, "".join(f"headway: {line}\n" for line in shown)))


def log(level: int, message: str, *args: Any) -> None:
    """Log a message as `logging` does, by the program's own handlers, which may hang just as its standard error."""
    if _log.isEnabledFor(level):
        frame = sys._getframe(1)
        code = frame.f_code
        record = _log.makeRecord(_log.name, level, code.co_filename, frame.f_lineno, message, args, None, code.co_name)
        # An error among the arguments keeps the frames that it passed, and with them the state of the model.
        record.msg, record.args = record.getMessage(), None
        _writer.put(partial(_log.handle, record))


def _write(line: str) -> None:
    stream, own = sys.stderr, sys.__stderr__
    if own is not None and stream is own:
        # Past its buffer: at the end of the program Python would wait for the lock that a thread which hangs there has.
        os.write(own.fileno(), line.encode(errors="backslashreplace"))
        return
    stream.write(line)
    stream.flush()


def stop_line(step: int, why: str) -> str:
    """Return the line for a job that is saved and about to be stopped. `why` may be empty."""
    because = f": {why}" if why else ""
    return f"step {step} is saved; the scheduler now stops this job, and starts it again later{because}"


def go_on_line(step: int, why: str) -> str:
    """Return the line for a job that was not stopped after all, or handles the stop in its own way."""
    return f"the job trains on after step {step}: {why}"


def stopped_line(step: int, start: int, why: str, time_s: float) -> str:
    """Return the line for a job that was restored from what start `start` of it has saved in order to be stopped.

    The log may have lost what that start has written: Slurm empties it at a requeue. `time_s`: time of the save, Unix. It comes
    from a file, and is left out if it is no time.
    """
    try:
        at = time.strftime(" at %Y-%m-%d %H:%M:%S", time.localtime(time_s))
    except (ValueError, OverflowError, OSError):
        at = ""
    return f"start {start} of the job saved step {step}{at}, so that the scheduler could stop it: {why}"


def again_line(step: int, starts: int, ranks: int, ranks_before: int) -> str:
    """Return the line for a job that has been started `starts` times and was restored at that step.

    `ranks_before`: number of ranks that have saved the step. The controller knows why the job was stopped: a save that was to be
    followed by a stop may have been followed by something else.
    """
    job_id = os.environ.get("SLURM_JOB_ID", "")
    more = f" (`headway why {job_id}` says why it was stopped)" if job_id.isdigit() else ""
    resized = "" if ranks == ranks_before else f", on {ranks} rank{'s' * (ranks > 1)} instead of {ranks_before}"
    return f"this is start {starts} of the job; it trains on after step {step}{resized}{more}"


def restored_line(step: int, folder: str) -> str:
    """Return the line for a run that was restored from the checkpoint in that folder."""
    return f"restored {folder}: {step} steps are done"


OTHER_PROGRAM_LINE = (
    "that checkpoint was saved by a program with other arguments, or one that was started in another folder; "
    "if this is another training, give it a folder or a name of its own: headway_job.checkpoint(name=...)"
)
