"""Profile windows that an evaluation spoils: they are recorded again, but not for ever."""

from __future__ import annotations

from headway_job.hook.profile_windows import ProfileWindows
from headway_job.hook.step_counter import StepCounter
from headway_job.profiling.comm_overlap import StepEnd
from headway_job.profiling.kineto import NoProfiler
from headway_job.profiling.window import RecordedWindow


def _windows() -> ProfileWindows:
    """Return the windows of a program whose steps take half a second, with a request for 20 steps."""
    counter = StepCounter()
    counter.first_ns, counter.last_step = 1, (101, 50_000_000_001)
    windows = ProfileWindows(counter, lambda: "")
    windows.request(20)
    return windows


def _recorded(*seconds: float) -> RecordedWindow:
    ends = [StepEnd(1, 0, 0)]
    for each in seconds:
        ends.append(StepEnd(ends[-1].unix_ns + round(each * 1e9), 0, 0))
    return RecordedWindow(ends, NoProfiler(), None, None)


def test_a_window_that_was_cut_short_by_an_evaluation_is_recorded_again() -> None:
    windows = _windows()
    windows.open(communicates=False)
    windows._ended(_recorded(0.5, 120.0))
    assert (windows.take_recorded(), windows.current, windows.why_not) == (None, None, "")

    windows.open(communicates=False)
    assert windows.current is not None
    good = _recorded(*[0.5] * 20)
    windows._ended(good)
    assert windows.take_recorded() is good
    windows.open(communicates=False)
    assert windows.current is None


def test_an_evaluation_that_leaves_enough_steps_needs_no_other_window() -> None:
    windows = _windows()
    windows.open(communicates=False)
    window = _recorded(*[0.5] * 10, 55.0)
    windows._ended(window)
    assert windows.take_recorded() is window


def test_the_last_of_some_windows_counts_as_it_is() -> None:
    windows = _windows()
    last = _recorded(100.0)
    for _ in range(2):
        windows.open(communicates=False)
        windows._ended(_recorded(100.0))
        assert windows.take_recorded() is None
    windows.open(communicates=False)
    windows._ended(last)
    assert windows.take_recorded() is last


def test_steps_that_are_always_long_count_at_once() -> None:
    windows = _windows()
    windows._counter.last_step = (101, 7_000_000_000_001)
    windows.open(communicates=False)
    window = _recorded(71.0)
    windows._ended(window)
    assert windows.take_recorded() is window
