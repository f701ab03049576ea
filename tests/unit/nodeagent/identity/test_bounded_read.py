"""Reads that users make slow: they cost the agent a bounded time, and other users nothing."""

from __future__ import annotations

import pytest

from nodeagent.identity.bounded_read import BoundedReader


class Clock:
    """A clock that a slow read advances."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def takes(self, seconds: float) -> float:
        self.now_s += seconds
        return seconds


def read_often(reader: BoundedReader, clock: Clock, uid: int, takes_s: float, times: int = 64) -> int:
    """Try many reads, and return the number of those that were made."""
    made = 0
    for _ in range(times):
        try:
            reader.call(uid, lambda: clock.takes(takes_s))
        except TimeoutError:
            continue
        made += 1
    return made


def test_a_user_whose_readings_all_answer_just_in_time_holds_the_agent_up_for_a_moment_only() -> None:
    clock = Clock()
    reader = BoundedReader(monotonic=clock)
    begun_s = clock.now_s
    # when every reading of one user takes just less than is allowed
    made = read_often(reader, clock, 1000, 0.099)
    # then a turn of sixty-four takes three of them, and another user is read all the same
    assert made == 3
    assert clock.now_s - begun_s == pytest.approx(0.297)
    assert read_often(reader, clock, 1001, 0.0002) == 64
    # and each later turn of five seconds takes at most one
    for _ in range(10):
        clock.now_s += 5.0
        assert read_often(reader, clock, 1000, 0.099) <= 1


def test_quick_readings_are_never_too_many() -> None:
    clock = Clock()
    reader = BoundedReader(monotonic=clock)
    assert read_often(reader, clock, 1000, 0.009, times=1000) == 1000


def test_a_user_is_forgiven_in_time() -> None:
    clock = Clock()
    reader = BoundedReader(monotonic=clock)
    read_often(reader, clock, 1000, 0.099)
    clock.now_s += 60.0
    assert read_often(reader, clock, 1000, 0.0002) == 64
    assert reader._slow == {}


def test_users_with_one_slow_reading_are_not_remembered_for_ever() -> None:
    clock = Clock()
    reader = BoundedReader(monotonic=clock)
    for uid in range(1000, 2000):
        assert read_often(reader, clock, uid, 0.02, times=1) == 1
    assert len(reader._slow) <= 256


def test_a_user_does_not_pay_for_the_time_in_which_the_agent_was_stopped() -> None:
    clock = Clock()
    reader = BoundedReader(monotonic=clock)
    assert read_often(reader, clock, 1000, 5.0, times=1) == 1
    clock.now_s += 5.0
    assert read_often(reader, clock, 1000, 0.0002) == 64
