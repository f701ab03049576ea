"""Ranges that were given, and what became of them."""

import pytest

from controller.forecast.tracks import MOST_ENDED, MOST_OPEN, OLDEST_S, Tracks, tracks_of
from simulator.forecast.calibration import Track

RAW = (10.0, 20.0, 30.0)
ONE, OTHER = ("1", 5), ("2", 6)


def followed(*keys):
    tracks = Tracks()
    for key in keys:
        tracks.follow((*key, 0), Track(100.0, RAW, RAW, None))
    return tracks


def nobody(_key):
    return False


def test_a_start_ends_a_range() -> None:
    tracks = followed(ONE, OTHER)
    tracks.settle({ONE: 125.0}, {OTHER}.__contains__, 130.0)

    assert [track.wait_s for track in tracks.ended] == [25.0]
    assert list(tracks.open) == [(*OTHER, 0)]


def test_ranges_that_held_and_those_that_did_not_are_counted_for_good() -> None:
    tracks = followed(ONE, OTHER)
    tracks.settle({ONE: 100.0 + RAW[1], OTHER: 101.0 + RAW[-1]}, nobody, 5000.0)
    tracks.ended.clear()

    assert (tracks_of(tracks.text()).held, tracks_of(tracks.text()).missed) == (1, 1)
    # a file of an earlier version has no such numbers
    earlier = tracks_of('{"version": 1, "open": [], "ended": []}')
    assert (earlier.held, earlier.missed) == (0, 0)


def test_a_job_that_is_gone_without_a_start_says_nothing() -> None:
    tracks = followed(ONE)
    tracks.settle({}, nobody, 130.0)
    # a start before the range is that of an earlier run
    again = followed(ONE)
    again.settle({ONE: 50.0}, nobody, 130.0)

    assert (tracks.open, tracks.ended, again.open, again.ended) == ({}, [], {}, [])


def test_a_range_is_not_followed_for_ever() -> None:
    tracks = followed(ONE)
    tracks.settle({}, {ONE}.__contains__, 100.0 + OLDEST_S + 1)

    assert tracks.open == {}


def test_the_first_range_of_a_class_is_the_one_that_is_followed() -> None:
    tracks = followed(ONE)
    tracks.follow((*ONE, 0), Track(200.0, RAW, RAW, None))
    tracks.follow((*ONE, 1), Track(300.0, RAW, RAW, None))

    assert [track.made_s for track in tracks.all()] == [100.0, 300.0]


def test_both_lists_are_bounded() -> None:
    keys = [(str(number), 1) for number in range(MOST_OPEN + 5)]
    tracks = followed(*keys)
    assert len(tracks.open) == MOST_OPEN
    tracks.settle(dict.fromkeys(keys, 150.0), nobody, 200.0)
    assert len(tracks.ended) == MOST_ENDED


def test_the_file_has_all_of_it() -> None:
    tracks = followed(ONE, OTHER)
    tracks.settle({ONE: 125.0}, {OTHER}.__contains__, 130.0)

    assert tracks_of(tracks.text()) == tracks


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 2, "open": [], "ended": []}',
                                  '{"version": 1, "open": [["1", 2]], "ended": []}',
                                  '{"version": 1, "open": [], "ended": [[1, 2, 3, 4, 5, 6, NaN, 1]]}',
                                  '{"version": 1, "open": [["1", 1e999, 0, 1, 2, 3, 4, 5, 6, 7]], "ended": []}',
                                  '{"version": 1, "open": [], "ended": [], "held": 1' + "0" * 400 + "}"])  # fmt: skip
def test_a_file_that_is_something_else_begins_anew(text) -> None:
    assert tracks_of(text) == Tracks()
