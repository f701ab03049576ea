"""A profile window: a recording of some steps of the training thread, which opens and closes it itself, between steps."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, List, NamedTuple, Optional, Union

from .comm_overlap import StepEnd
from .kineto import Kineto, NoProfiler, in_use

_MAX_S = 60.0
"""After that time, a window ends with the current step, even if it has fewer steps than requested."""
_MIN_S = 0.25
"""The start and stop of the profiler, about 5 ms, must be small in comparison, so a window has more steps if they are short."""
_MAX_FACTOR = 8
"""A window has at most so many times the requested steps, so that the recording stays small."""


class RecordedWindow(NamedTuple):
    """The result of a window, which another thread reads."""

    step_ends: List[StepEnd]
    events: Any


class Window:
    """Invariant: while `open`, the profiler runs in the thread `thread`, and only that thread may stop it."""

    def __init__(
        self,
        steps: int,
        done: Callable[[Optional[RecordedWindow]], None],
        kineto: Union[Kineto, NoProfiler],
        *,
        with_queue: bool,
    ) -> None:
        """Create a window of `steps` steps or more (see _MIN_S), in any thread.

        `with_queue`: measure the time in the run queue too, which is needed for communication only.
        """
        self._steps = steps
        self._kineto = kineto
        self._with_queue = with_queue
        self._queue: Optional[RunQueueClock] = None
        self._done = done
        self._step_ends: List[StepEnd] = []
        """Bound: `_MAX_FACTOR` times `steps`."""
        self._begun_s = 0.0
        self.thread = 0
        self.open = False

    def at_step(self) -> None:
        """Record that a step has ended. The first call opens the window; it closes one step after it has lasted long enough.

        The first step is left out: it includes the profiler's initial work, and collectives from before may still be in progress.
        """
        try:
            if not self.open:
                self._open()
                return
            if threading.get_ident() != self.thread:
                return
            self._step_ends.append(step_end(self._queue))
            if self._lasted(len(self._step_ends) - 1, time.monotonic() - self._begun_s):
                self._close()
        except Exception:
            self.abandon()

    def _lasted(self, steps: int, seconds: float) -> bool:
        if seconds < _MIN_S:
            return steps >= _MAX_FACTOR * self._steps
        return steps >= (self._steps if seconds <= _MAX_S else 1)

    def end(self) -> None:
        """End the window with what it has. Does nothing in another thread, as the profiler belongs to one thread."""
        if self.open and threading.get_ident() != self.thread:
            return
        try:
            if len(self._step_ends) > 1:
                self._close()
                return
        except Exception:
            pass
        self.abandon()

    def abandon(self) -> None:
        """End the window without a result. Does nothing in another thread."""
        if self.open and threading.get_ident() != self.thread:
            return
        try:
            if self.open:
                self.open = False
                self._kineto.stop()
        except Exception:
            pass
        self._release()
        self._done(None)

    def _open(self) -> None:
        if in_use():
            raise RuntimeError("the program's own profiler runs, or a CUDA graph is being captured")
        self.thread = threading.get_ident()
        self._begun_s = time.monotonic()
        if self._with_queue:
            self._queue = RunQueueClock()
        self._kineto.start()
        self.open = True

    def _close(self) -> None:
        self.open = False
        recorded = RecordedWindow(self._step_ends, self._kineto.stop())
        self._release()
        self._done(recorded)

    def _release(self) -> None:
        if self._queue is not None:
            self._queue.close()


class RunQueueClock:
    """The time that this thread has spent in the run queue, according to the kernel.

    The file stays open, as opening it takes ten times as long as reading it. If the program closes it, its descriptor may become
    that of another file: reading from it does no harm, but closing it would.
    """

    def __init__(self) -> None:
        """Open the file; call it in the thread to be measured."""
        self._number = -1
        try:
            number = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            self._file = os.fstat(number)
            self._number = number
        except OSError:
            pass  # a kernel without this file

    def ns(self) -> int:
        """Return the time in ns; 0 = not known."""
        try:
            return int(os.pread(self._number, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0

    def close(self) -> None:
        """Close the file, in any thread."""
        number, self._number = self._number, -1
        try:
            if number >= 0 and os.path.samestat(os.fstat(number), self._file):
                os.close(number)
        except OSError:
            pass


def step_end(queue: Optional[RunQueueClock]) -> StepEnd:
    """Return the current times of the calling thread."""
    return StepEnd(time.time_ns(), time.thread_time_ns(), 0 if queue is None else queue.ns())
