"""Steps per second of one process over a sliding window. Pure: times are told, CLOCK_MONOTONIC nanoseconds."""

from __future__ import annotations

from collections import deque

from nodeagent.wire.frames import Steps


class StepThroughput:
    """The points (end of the newest step, steps so far) that a process told, as far back as the window.

    Invariant: points rise in both; there are at most as many as seconds in the window, plus two.
    """

    def __init__(self, window_s: float, interval_s: float = 1.0) -> None:
        """`interval_s` is how often steps frames are asked for: between two, silence means nothing."""
        self._window_ns = round(window_s * 1e9)
        self._interval_ns = round(interval_s * 1e9)
        self._points: deque[tuple[int, int]] = deque(maxlen=round(window_s) + 2)

    def told(self, frame: Steps) -> bool:
        """Whether the frame says anything new. The very first gives two points: where its own window began is one."""
        if not self._points and (begin := self._begin(frame)) is not None:
            self._points.append(begin)
        if self._points and (frame.last_ns <= self._points[-1][0] or frame.steps <= self._points[-1][1]):
            return False
        self._points.append((frame.last_ns, frame.steps))
        return True

    def _begin(self, frame: Steps) -> tuple[int, int] | None:
        """The end of the first step; of a process that has run for longer, what it made since its frame before."""
        if frame.steps > 1 and frame.first_ns > frame.last_ns - self._window_ns:
            return frame.first_ns, 1
        if 0 < frame.window_steps < frame.steps:
            return frame.last_ns - round(frame.window_s * 1e9), frame.steps - frame.window_steps
        return None

    def steps_per_s(self, now_ns: int) -> float | None:
        """Steps in the window over the time they took; None = fewer than two points.

        Silence counts once it is longer than a frame's interval and two steps: a job that stands still falls to 0 within
        a window.
        """
        points = self._points
        while len(points) > 2 and points[1][0] <= now_ns - self._window_ns:
            points.popleft()  # the one kept is the last before the window: the rate is over all of it
        if len(points) < 2:
            return None
        (begin_ns, begin_steps), (end_ns, end_steps) = points[0], points[-1]
        step_ns = (end_ns - begin_ns) / (end_steps - begin_steps)
        end_ns = max(end_ns, round(now_ns - self._interval_ns - 2 * step_ns))
        if now_ns - points[-1][0] > self._window_ns + self._interval_ns + 2 * step_ns:
            return 0.0
        return (end_steps - begin_steps) / (end_ns - begin_ns) * 1e9
