"""The profile windows that the agent requests: when one is opened, and why none is."""

from __future__ import annotations

import math
from typing import Any, Callable, Optional

from ..profiling import kineto
from ..profiling.interruptions import few_remain
from ..profiling.window import RecordedWindow, Window
from .profiler_guard import BUSY, PROGRAM, TORCH
from .step_counter import StepCounter

_MAX_PROFILE_STEPS = 200
_WARM_UP_STEPS = 10
"""No window is opened before: the first steps fill caches and choose algorithms."""
_MAX_WINDOW_ATTEMPTS = 8
"""For one window, as forks may end it again and again before it has seen a step."""
_MAX_RETRIES = 2
"""Windows that are dropped because an evaluation left too few steps in them; the next one counts as it is."""


class ProfileWindows:
    """The profile windows that the agent requests. Invariant: at most one is open, and none while the program's profiler runs."""

    def __init__(self, counter: StepCounter, why_no_window: Callable[[], str]) -> None:
        self.current: Optional[Window] = None
        self.why_not = ""
        """Reason why the last request was dropped, to be sent to the agent; empty = it was not, or the agent has the reason."""
        self._counter = counter
        self._why_no_window = why_no_window
        self._requested_steps = 0
        self._attempts = 0
        self._retries = 0
        self._usual_s = math.inf
        """Mean time of a step before the window."""
        self._recorded: Optional[RecordedWindow] = None

    def request(self, steps: Any) -> None:
        """Take a request for a window of so many steps. Values that no agent would send are ignored."""
        if isinstance(steps, int) and not isinstance(steps, bool) and steps > 0 and not self._requested_steps:
            self._requested_steps = min(steps, _MAX_PROFILE_STEPS)
            self._attempts = _MAX_WINDOW_ATTEMPTS
            self._retries = _MAX_RETRIES

    def open(self, *, communicates: bool) -> None:
        """Open the requested window at the next step. While the program profiles itself, it is dropped, not postponed."""
        if not self._requested_steps or self._counter.last_step[0] < _WARM_UP_STEPS:
            return
        if self.current is not None or self._counter.step_callback is not None:
            return
        why_not = self._why_no_window() or ("" if self._attempts > 0 else BUSY)
        if why_not:
            self._drop(why_not)
            return
        self._attempts -= 1
        steps, last_ns = self._counter.last_step
        self._usual_s = (last_ns - self._counter.first_ns) / 1e9 / max(steps - 1, 1)
        try:
            recorder = kineto.recorder(communicates)
        except Exception:
            # The profiler of another torch version, or one whose messages cannot be suppressed: there is no profile then.
            self._drop(TORCH)
            return
        self.current = Window(self._requested_steps, self._ended, recorder, with_queue=communicates)
        self._counter.set_step_callback(self.current.at_step)

    def take_recorded(self) -> Optional[RecordedWindow]:
        """Return the window that was recorded since the last call, if any."""
        recorded, self._recorded = self._recorded, None
        return recorded

    def note_unreadable(self) -> None:
        """Note that the recorded window cannot be read."""
        self.why_not = TORCH

    def note_reason_sent(self) -> None:
        """Note that the agent has the reason."""
        self.why_not = ""

    def skip(self, *, wait: bool) -> None:
        """Drop the window, and the request for it. With `wait`, it has ended, also if it belongs to another thread."""
        if self._requested_steps:
            self._drop(self._why_no_window() or PROGRAM)
        window = self.current
        if window is not None:
            window.abandon(wait=wait)

    def _drop(self, why_not: str) -> None:
        self._requested_steps = 0
        self.why_not = why_not

    def end(self) -> None:
        """End the window with what it has."""
        window = self.current
        if window is not None:
            window.end()

    def _ended(self, recorded: Optional[RecordedWindow]) -> None:
        """Keep the result; called in the training thread."""
        self._counter.set_step_callback(None)
        if recorded is not None and self._retries > 0 and self._is_interrupted(recorded):
            self._retries -= 1
            recorded = None
        if recorded is not None:
            self._requested_steps = 0
            self._recorded = recorded
        self.current = None

    def _is_interrupted(self, recorded: RecordedWindow) -> bool:
        """Return True if an evaluation or the like has left too few steps, so that another window is better."""
        ends = recorded.step_ends
        seconds = [(later.unix_ns - earlier.unix_ns) / 1e9 for earlier, later in zip(ends, ends[1:])]
        return few_remain(seconds, self._requested_steps, self._usual_s)
