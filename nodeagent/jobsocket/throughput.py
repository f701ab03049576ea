"""Steps per second of one process over a sliding window. Pure: times are given, in CLOCK_MONOTONIC nanoseconds."""

from __future__ import annotations

from collections import deque

from nodeagent.wire.frames import Steps


class StepThroughput:
    """Points (end of the newest step, steps so far) that a process reported, as far back as the window.

    Invariant: both numbers rise from point to point; there are at most as many points as seconds in the window, plus two.
    """

    def __init__(self, window_s: float, interval_s: float = 1.0) -> None:
        """`interval_s` is the interval of steps frames: a process that is silent for less may still be stepping."""
        self._window_ns = round(window_s * 1e9)
        self._interval_ns = round(interval_s * 1e9)
        self._points: deque[tuple[int, int]] = deque(maxlen=round(window_s) + 2)

    def add(self, frame: Steps) -> bool:
        """Add a frame. Return False if it reports nothing new. The first frame gives two points: its own window has a start."""
        if not self._points and (begin := self._begin(frame)) is not None:
            self._points.append(begin)
        if self._points and (frame.last_ns <= self._points[-1][0] or frame.steps <= self._points[-1][1]):
            return False
        self._points.append((frame.last_ns, frame.steps))
        return True

    def clear(self) -> None:
        """Forget all points."""
        self._points.clear()

    def _begin(self, frame: Steps) -> tuple[int, int] | None:
        """Return the end of the first step; for a process that has run for longer, the start of the window of its frame."""
        if frame.steps > 1 and frame.first_ns > frame.last_ns - self._window_ns:
            return frame.first_ns, 1
        if 0 < frame.window_steps < frame.steps:
            return frame.last_ns - round(frame.window_s * 1e9), frame.steps - frame.window_steps
        return None

    def steps_per_s(self, now_ns: int) -> float | None:
        """Return the steps in the window over the time they took; None = fewer than two points.

        A silence counts once it is longer than the interval of frames and two steps: the rate of a job that has stopped falls
        to 0 within a window.
        """
        points = self._points
        while len(points) > 2 and points[1][0] <= now_ns - self._window_ns:
            points.popleft()  # the last point before the window stays: the rate covers the whole window
        if len(points) < 2:
            return None
        (begin_ns, begin_steps), (end_ns, end_steps) = points[0], points[-1]
        step_ns = (end_ns - begin_ns) / (end_steps - begin_steps)
        end_ns = max(end_ns, round(now_ns - self._interval_ns - 2 * step_ns))
        if now_ns - points[-1][0] > self._window_ns + self._interval_ns + 2 * step_ns:
            return 0.0
        return (end_steps - begin_steps) / (end_ns - begin_ns) * 1e9
