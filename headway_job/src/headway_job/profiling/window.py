"""A profile window: a recording of some steps of the training thread, which opens and closes it itself, between steps."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Any, Callable, List, NamedTuple, Optional, Union

from .comm_overlap import StepEnd
from .group_notes import GroupNotes
from .kineto import Kineto, NoProfiler, in_use
from .whole_sizes import WholeSizes

_MAX_S = 60.0
"""After that time, a window ends with the current step, even if it has fewer steps than requested."""
_MIN_S = 0.25
"""The start and stop of the profiler, about 5 ms, must be small in comparison, so a window has more steps if they are short."""
_MAX_FACTOR = 8
"""A window has at most so many times the requested steps, so that the recording stays small."""


_LOOK_S = 0.25
_UNKNOWN_STEPS, _UNKNOWN_S = 3, 1.0
"""Steps and seconds that a paused window waits where torch cannot say which collectives are in progress."""
_SOON_S, _SOON_UNKNOWN_S, _POLL_S = 0.5, 0.1, 0.005
"""The same before a fork, and before the program's own profiler starts."""
_HAND_OVER_S, _STOP_S, _HAND_OVER_POLL_S = 2.0, 10.0, 0.002
"""Seconds that another thread waits for the training thread's next step, and until it has stopped the profiler there."""


class RecordedWindow(NamedTuple):
    """The result of a window, which another thread reads."""

    step_ends: List[StepEnd]
    events: Any
    sizes: Optional[WholeSizes]
    """Noted during the recording; None = nothing was recorded."""
    groups: Optional[GroupNotes]
    """The same."""


class Window:
    """Invariant: while `open`, the profiler runs in the thread `thread`, and only that thread may stop it.

    A window records, then it is paused, and it closes once the collectives that it has recorded have ended (see gloo_trace).
    If its thread ends, it closes before. If another thread needs the profiler, it is given up: it closes at the next step. If there
    is no next step, it is lost: its profiler is never stopped, as torch crashes if it was started elsewhere meanwhile.
    """

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
        self._pause: Optional[Pause] = None
        self._given_up = self._closing = self._lost = self._over = False
        self._thread_end: Optional[threading.local] = None
        self.thread = 0
        self.open = False

    def at_step(self) -> None:
        """Record that a step has ended. The first call opens the window; it is paused one step after it has lasted long enough.

        The first step is left out: it includes the profiler's initial work, and collectives from before may still be in progress.
        """
        try:
            if not self.open:
                self._open()
                return
            if threading.get_ident() != self.thread or self._kineto.in_backward():
                return
            if self._given_up:
                self.abandon()
                return
            if self._pause is None:
                self._step_ends.append(step_end(self._queue))
                if not self._lasted(len(self._step_ends) - 1, time.monotonic() - self._begun_s):
                    return
            if self._paused().over_at_step(self._kineto.in_progress):
                self._close()
        except Exception:
            self.abandon()

    def _lasted(self, steps: int, seconds: float) -> bool:
        if seconds < _MIN_S:
            return steps >= _MAX_FACTOR * self._steps
        return steps >= (self._steps if seconds <= _MAX_S else 1)

    def end(self) -> None:
        """End the window with what it has, or pause it if collectives are in progress that do not end soon.

        Does nothing in another thread, as the profiler belongs to one thread.
        """
        if self.open and threading.get_ident() != self.thread:
            return
        try:
            if not self.open or self._paused().over_soon(self._kineto.in_progress):
                self._close()
        except Exception:
            self.abandon()

    def abandon(self, *, wait: bool = True) -> None:
        """End the window without a result. In another thread, give it up, and wait for its end if `wait` is True."""
        self._given_up = True  # `_open` sets `open` and then looks at this: one of two threads sees the other
        if self.open and threading.get_ident() != self.thread:
            if wait:
                self._wait_for_end()
            return
        self._step_ends = []
        with suppress(Exception):
            if self.open:
                pause = self._paused()
                if not self._lost:
                    pause.over_soon(self._kineto.in_progress)
        try:
            self._close()
        except Exception:
            self._finish(None)

    def _wait_for_end(self) -> None:
        """Wait until the training thread has ended the window, which is lost if that thread makes no step meanwhile."""
        if self._is_over(_HAND_OVER_S):
            return
        self._lost = True
        if self._closing:  # each thread sets its own of the two before it looks at the other's
            self._is_over(_STOP_S)
            return
        self._kineto.lose()

    def _is_over(self, within_s: float) -> bool:
        until_s = time.monotonic() + within_s
        while not self._over and time.monotonic() < until_s:
            time.sleep(_HAND_OVER_POLL_S)
        return self._over

    def _open(self) -> None:
        if in_use() or self._kineto.in_backward():
            raise RuntimeError(
                "the program's own profiler runs, or a CUDA graph is being captured, or this is a hook of backward"
            )
        self.thread = threading.get_ident()
        self._begun_s = time.monotonic()
        if self._with_queue:
            self._queue = RunQueueClock()
        self.open = True
        try:
            if self._given_up:
                raise RuntimeError("another thread needs the profiler")
            self._kineto.start()
            self._thread_end = threading.local()
            self._thread_end.call = _AtThreadEnd(self._thread_ended)
        except BaseException:
            self.open = False
            raise

    def _thread_ended(self) -> None:
        """Close the window with what it has. If collectives are in progress, the recording must not be freed: it is lost."""
        if not self.open or threading.get_ident() != self.thread:
            return
        self.end()
        if self.open:
            self._lost = True
            self._kineto.lose()
            self._close()

    def _paused(self) -> Pause:
        if self._pause is None:
            self._kineto.pause()
            self._pause = Pause()
        return self._pause

    def _close(self) -> None:
        """Stop the profiler, and hand over the recording if it has a step."""
        events = None
        if self.open:
            self._closing = True
            self.open = False
            if self._lost:
                self._step_ends = []
            else:
                events = self._kineto.stop()
        recorded = RecordedWindow(self._step_ends, events, self._kineto.sizes, self._kineto.groups)
        self._finish(recorded if len(self._step_ends) > 1 else None)

    def _finish(self, recorded: Optional[RecordedWindow]) -> None:
        if self._queue is not None:
            self._queue.close()
        self._thread_end = None
        self._done(recorded)
        self._over = True


class _AtThreadEnd:
    """Calls a function when it is dropped, as the content of a threading.local is by the thread itself, when it ends.

    In a forked child it calls nothing.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._pid = os.getpid()

    def __del__(self) -> None:
        with suppress(Exception):
            if os.getpid() == self._pid:
                self._call()


class Pause:
    """How long a paused window waits until the profiler may stop."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()
        self._steps = 0
        self._next_look_s = 0.0
        """Of the clock: the list of collectives takes some milliseconds, so it is not read after each step."""

    def over_at_step(self, in_progress: Callable[[], Optional[bool]]) -> bool:
        """Return True if the profiler may stop; called after each step.

        Where torch cannot say what is in progress, collectives are taken to end within some steps: training waits for them.
        """
        now_s = time.monotonic()
        self._steps += 1
        if now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + _LOOK_S
        found = in_progress()
        if found is None:
            return self._steps > _UNKNOWN_STEPS and now_s - self._begun_s >= _UNKNOWN_S
        return not found

    def over_soon(self, in_progress: Callable[[], Optional[bool]]) -> bool:
        """Wait, for half a second at most, until the profiler may stop; return True if it may."""
        until_s = time.monotonic() + _SOON_S
        while True:
            found = in_progress()
            if found is None:
                time.sleep(_SOON_UNKNOWN_S)
            if not found:
                return True
            if time.monotonic() >= until_s:
                return False
            time.sleep(_POLL_S)


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
