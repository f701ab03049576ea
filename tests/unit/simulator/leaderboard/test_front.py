"""Pareto fronts of a leaderboard: no policy on one is dominated, and every other one is, by a policy on it."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from simulator.leaderboard.front import AGAINST, average_h, dominating, front, front_table
from simulator.leaderboard.front_picture import front_picture
from simulator.leaderboard.standings import Standing

P99, MAKESPAN, FAIRNESS = AGAINST


def standing(policy: str, average_h: float, p99_h: float, makespan_h: float = 10.0, fairness: float = 1.0) -> Standing:
    times_h = {"avg_jct_s": average_h, "p90_jct_s": average_h, "p99_jct_s": p99_h, "makespan_s": makespan_h}
    return Standing(
        policy=policy,
        times_s={name: 3600 * value for name, value in times_h.items()},
        stops_per_job=0.0,
        fairness=fairness,
        worst_fairness=fairness,
        guarded_share=0.0,
        most_guarded_share=0.0,
        guarded_inside_share=0.0,
        contention={},
    )


SHORT = standing("short", 1.0, 9.0)
BETWEEN = standing("between", 2.0, 4.0)
WORSE = standing("worse", 3.0, 4.0)
EVEN = standing("even", 5.0, 2.0)
ALL = [SHORT, BETWEEN, WORSE, EVEN]


def test_the_front_has_what_no_other_policy_dominates() -> None:
    assert front(ALL, P99) == [SHORT, BETWEEN, EVEN]
    assert dominating(WORSE, ALL, P99) is BETWEEN


def test_the_table_names_the_policy_that_dominates() -> None:
    rows = {row[0]: row for row in front_table(ALL).rows}
    assert rows["worse"] == ("worse", "3", "3.00", "4.00", "10.00", "1.00", "by no. 2", "by no. 1", "by no. 1")
    assert rows["even"][6:] == ("front", "by no. 1", "by no. 1")


def test_equal_policies_are_both_on_the_front() -> None:
    twin = standing("twin", 1.0, 9.0)
    assert front([SHORT, twin], P99) == [SHORT, twin]


hours = st.integers(1, 6).map(float)


@given(st.lists(st.tuples(hours, hours, hours, hours), max_size=12))
def test_each_policy_is_on_the_front_or_dominated_by_one_that_is(
    figures: list[tuple[float, float, float, float]],
) -> None:
    found = [standing(str(place), *each) for place, each in enumerate(figures)]
    for against in AGAINST:
        best = front(found, against)
        assert bool(best) == bool(found)
        for each in found:
            better = dominating(each, found, against)
            assert (better is None) == (each in best)
            assert better is None or better in best
        for one, other in pairwise(best):
            assert average_h(one) <= average_h(other)
            assert against.value(one) >= against.value(other)


def test_the_picture_has_a_point_for_each_policy_and_figure() -> None:
    picture = ElementTree.fromstring(front_picture(ALL, "white"))
    kinds = [each.get("class") for each in picture.iter("{http://www.w3.org/2000/svg}circle")]
    assert (kinds.count("on"), kinds.count("off")) == (3 + 1 + 1, 1 + 3 + 3)
    assert {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")} >= {
        "1 short",
        "4 even",
        "p99 JCT, h",
    }


def test_one_policy_and_none_can_be_drawn() -> None:
    ElementTree.fromstring(front_picture([SHORT]))
    ElementTree.fromstring(front_picture([]))
