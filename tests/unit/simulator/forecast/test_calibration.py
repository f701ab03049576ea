"""Correction of ranges by what came of earlier ones."""

import numpy as np
import pytest

from simulator.forecast.calibration import Calibration, Track, censored_quantile

DAY_S = 86400.0


def track(made_s, wait_s, raw=(100.0, 200.0, 400.0), shown=None):
    return Track(made_s, raw, shown or raw, wait_s)


def test_without_experience_ranges_stay() -> None:
    raw = np.array([[10.0, 20.0, 4000.0]])
    assert Calibration([], 0.0).correct(raw) == pytest.approx(raw)
    assert Calibration([], 0.0).held(raw) == [(0, 0)]


def test_ranges_that_are_too_narrow_become_as_wide_as_the_errors() -> None:
    rng = np.random.default_rng(0)
    tracks, inside = [], 0
    for number in range(1200):
        wait_s = float(200.0 * np.exp(rng.normal(0.0, 1.0)))
        raw = (180.0, 200.0, 220.0)
        shown = Calibration(tracks[-600:], number * DAY_S).correct(np.array([raw]))[0]
        inside += number >= 600 and shown[0] <= wait_s <= shown[2]
        tracks.append(Track(number * DAY_S, raw, tuple(shown.tolist()), wait_s))

    assert inside / 600 == pytest.approx(0.8, abs=0.05)


def test_a_class_has_its_own_correction() -> None:
    # in ten minutes all is right; of the hours, all are three times too short
    short = [track(at * DAY_S, 200.0) for at in range(300)]
    long_ = [track(at * DAY_S, 3 * 20_000.0, (19_000.0, 20_000.0, 21_000.0)) for at in range(300)]
    tracks = sorted([*short, *long_], key=lambda one: one.made_s)
    found = Calibration(tracks, 310 * DAY_S).correct(np.array([[100.0, 200.0, 400.0], [9000.0, 10_000.0, 11_000.0]]))

    assert found[0, 1] == pytest.approx(200.0, rel=0.15)
    assert found[1, 1] == pytest.approx(30_000.0, rel=0.15)


def test_jobs_that_still_wait_count_as_longer_than_they_have_waited() -> None:
    started = [track(at * DAY_S, 200.0) for at in range(40)]
    still = [track(at * DAY_S, None) for at in range(40, 100)]
    late = Calibration([*started, *still], 110 * DAY_S).correct(np.array([[100.0, 200.0, 400.0]]))[0]
    without = Calibration(started, 110 * DAY_S).correct(np.array([[100.0, 200.0, 400.0]]))[0]

    assert late[2] > 5 * without[2]


def test_jobs_that_wait_together_count_as_few() -> None:
    # a hundred jobs of one hour were all three times as late as was said, or one of each of a hundred days
    raw = np.array([[100.0, 200.0, 400.0]])
    together = [track(36.0 * at, 1800.0) for at in range(100)]
    apart = [track(at * DAY_S, 1800.0) for at in range(100)]
    once = Calibration(together, DAY_S).correct(raw)[0]
    often = Calibration(apart, 101 * DAY_S).correct(raw)[0]

    assert 200.0 < once[1] < 500.0
    assert often[1] > 1000.0


def test_jobs_that_have_waited_for_a_moment_say_nothing_yet() -> None:
    started, raw = [track(float(at), 200.0) for at in range(60)], np.array([[100.0, 200.0, 400.0]])
    fresh = [track(9990.0, None) for _ in range(60)]
    both = Calibration([*started, *fresh], 10_000.0).correct(raw)[0]

    # the sixty that began ten seconds ago are no short waits
    assert both[1] == pytest.approx(200.0, rel=0.1) and both[0] > 90.0


def test_the_share_that_held_counts_what_is_known() -> None:
    tracks = [track(0.0, 200.0), track(0.0, 50.0), track(0.0, 900.0), track(0.0, None), track(9950.0, None)]
    # the fourth has waited beyond its range, the fifth may still hold
    assert Calibration(tracks, 10_000.0).held(np.array([[100.0, 200.0, 400.0]])) == [(1, 4)]


def test_quantiles_of_values_of_which_some_are_lower_bounds() -> None:
    values, exact = np.arange(1.0, 100.0), np.ones(99, dtype=np.bool_)
    assert censored_quantile(values, exact, 0.9) == pytest.approx(90.0, abs=1)
    assert censored_quantile(values, values > 50, 0.5) > 70.0
    assert censored_quantile(values, ~exact, 0.1) == 99.0
