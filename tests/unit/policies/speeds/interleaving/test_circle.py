"""The unified circle against the least common multiple, and demands against the traffic at every moment."""

from __future__ import annotations

from math import lcm

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.speeds.interleaving.circle import MOST_ARCS, MOST_TURNS, Circle, Pattern, unified_circle

WHOLE = st.lists(st.integers(1, 12), min_size=1, max_size=4)
PERIODS = st.lists(st.floats(0.1, 3.0), min_size=1, max_size=4)


@given(WHOLE)
def test_without_tolerance_the_perimeter_is_the_least_common_multiple(periods: list[int]) -> None:
    circle = unified_circle([float(period) for period in periods], 0.0)
    multiple = lcm(*periods)
    if multiple // min(periods) > MOST_TURNS:
        assert circle is None
    else:
        assert circle is not None
        assert circle.perimeter_s == pytest.approx(multiple)
        assert circle.turns == tuple(multiple // period for period in periods)


@given(PERIODS, st.sampled_from([0.0, 0.02, 0.05, 0.2]))
def test_each_job_makes_whole_turns_and_waits_at_most_the_tolerance(periods: list[float], tolerance: float) -> None:
    circle = unified_circle(periods, tolerance)
    if circle is None:
        return
    assert circle.arcs <= MOST_ARCS
    assert all(circle.arcs % turns == 0 and 1 <= turns <= MOST_TURNS for turns in circle.turns)
    for job, period in enumerate(periods):
        assert period * (1 - 1e-8) <= circle.period_s(job) <= period * (1 + tolerance + 1e-8)


def test_a_few_percent_of_waiting_make_a_short_circle_of_periods_without_a_small_multiple() -> None:
    assert unified_circle([1.0, 2.03], 0.0) is None
    circle = unified_circle([1.0, 2.03], 0.05)
    assert circle is not None and circle.perimeter_s == 2.03 and circle.turns == (2, 1)
    assert unified_circle([1.0, 100.0], 0.05) is None


def test_a_circle_of_too_many_arcs_is_not_used() -> None:
    """On the shortest circle these jobs make 5, 7, 8, 9 and 11 turns, whose least common multiple is 27,720."""
    periods = [1 / turns for turns in (5, 7, 8, 9, 11)]
    assert unified_circle(periods[:4], 0.0) == Circle(1.0, (5, 7, 8, 9), 2520)
    assert unified_circle(periods, 0.0) is None
    circle = unified_circle(periods, 0.05)
    assert circle is None or circle.arcs <= MOST_ARCS


@given(st.integers(1, 6), st.floats(0.0, 1.0), st.integers(0, 40), st.floats(0.0, 0.999999))
def test_an_arc_has_at_least_the_traffic_of_each_of_its_moments(
    turns: int, share: float, rotation: int, angle: float
) -> None:
    circle = Circle(6.0, (turns,), 72 - 72 % turns)
    demand = np.roll(circle.demand(0, Pattern(6.0 / turns, share * 6.0 / turns), 5.0), rotation)
    moment_s = (angle * 6.0 - circle.shift_s(rotation)) % circle.period_s(0)
    if moment_s < share * circle.period_s(0) - 1e-9:
        assert demand[int(angle * circle.arcs)] == 5.0
    assert demand.mean() / 5.0 == pytest.approx(share, abs=turns / circle.arcs)
