"""A profile window: some steps of the training thread, recorded. Opened and closed by that thread itself, between steps."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, List, NamedTuple, Optional, Union

from .comm_overlap import StepMark
from .kineto import Kineto, Quiet, in_use

_LONGEST_S = 60.0
"""A window ends with the step that is under way then, be it the last or not."""
_SHORTEST_S = 0.25
"""What the profiler's start and stop cost, some 5 ms, must be little beside it: a window takes more steps where they are short."""
_MOST_FOLD = 8
"""As many times the steps asked for, at most: what is recorded of them must stay small."""


class Recorded(NamedTuple):
    """What a window leaves behind, for another thread to read."""

    marks: List[StepMark]
    events: Any


class Window:
    """Invariant: while `open`, the profiler runs in the thread `thread`, and only that thread may stop it."""

    def __init__(
        self, steps: int, done: Callable[[Optional[Recorded]], None], kineto: Union[Kineto, Quiet], *, with_queue: bool
    ) -> None:
        """In any thread. Lasts `steps` or more, see _SHORTEST_S. `with_queue`: tell the time in the run queue too, which only
        communication needs.
        """
        self._steps = steps
        self._kineto = kineto
        self._with_queue = with_queue
        self._queue: Optional[QueueClock] = None
        self._done = done
        self._marks: List[StepMark] = []
        self._begun_s = 0.0
        self.thread = 0
        self.open = False

    def at_step(self) -> None:
        """A step has ended. Opens at the first call, closes when it has lasted long enough and one step more.

        The first step is not told: it pays for what the profiler does once, and collectives may be under way from before.
        """
        try:
            if not self.open:
                self._open()
                return
            if threading.get_ident() != self.thread:
                return
            self._marks.append(mark(self._queue))
            if self._lasted(len(self._marks) - 1, time.monotonic() - self._begun_s):
                self._close()
        except Exception:
            self.abandon()

    def _lasted(self, steps: int, seconds: float) -> bool:
        if seconds < _SHORTEST_S:
            return steps >= _MOST_FOLD * self._steps
        return steps >= (self._steps if seconds <= _LONGEST_S else 1)

    def end(self) -> None:
        """Ends it here, with what it has. In another thread than its own it does nothing: the profiler is a thread's own."""
        if self.open and threading.get_ident() != self.thread:
            return
        try:
            if len(self._marks) > 1:
                self._close()
                return
        except Exception:
            pass
        self.abandon()

    def abandon(self) -> None:
        """Ends it without a result; in another thread than its own as above."""
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
            self._queue = QueueClock()
        self._kineto.start()
        self.open = True

    def _close(self) -> None:
        self.open = False
        recorded = Recorded(self._marks, self._kineto.stop())
        self._release()
        self._done(recorded)

    def _release(self) -> None:
        if self._queue is not None:
            self._queue.close()


class QueueClock:
    """How long this thread has stood in the run queue so far, by the kernel.

    The file is held open, as opening it costs ten times what reading it does. Its descriptor is another's once the program has
    closed it and opened its own: to read from that place does no harm, to close it would.
    """

    def __init__(self) -> None:
        """In the thread that it is of."""
        self._number = -1
        try:
            number = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            self._file = os.fstat(number)
            self._number = number
        except OSError:
            pass  # a kernel that does not tell

    def ns(self) -> int:
        """0 where it is not known."""
        try:
            return int(os.pread(self._number, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0

    def close(self) -> None:
        """In any thread."""
        number, self._number = self._number, -1
        try:
            if number >= 0 and os.path.samestat(os.fstat(number), self._file):
                os.close(number)
        except OSError:
            pass


def mark(queue: Optional[QueueClock]) -> StepMark:
    """Now, in the calling thread."""
    return StepMark(time.time_ns(), time.thread_time_ns(), 0 if queue is None else queue.ns())
