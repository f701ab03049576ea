"""Runs that are not offered to policies for a while, and for how long."""

from __future__ import annotations

import pytest

from controller.cycle.decision.withheld import WITHHELD_S, Withheld
from controller.profiles.windows import RunKey

ONE, TWO, THREE = runs = [RunKey(number, 0) for number in (1, 2, 3)]
ALL = frozenset(runs)


class Time:
    """A clock that stands where it is put, seconds."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def withheld(time):
    return Withheld(time)


def test_no_job_is_withheld_at_first(withheld):
    assert not withheld.fresh
    assert withheld.without(ALL) == ALL


def test_withheld_jobs_are_offered_again_after_a_while(withheld, time):
    withheld.withhold([ONE], all_others=False)
    assert withheld.fresh
    time.now_s = 101.0
    assert withheld.without(ALL) == {TWO, THREE}
    assert not withheld.fresh
    time.now_s = 110.0
    withheld.withhold([TWO], all_others=False)
    time.now_s = 111.0
    assert withheld.without(ALL) == {THREE}
    time.now_s = 100.0 + WITHHELD_S
    assert withheld.without(ALL) == {ONE, THREE}
    time.now_s = 110.0 + WITHHELD_S
    assert withheld.without(ALL) == ALL


def test_with_every_job_withheld_none_is_offered(withheld, time):
    withheld.withhold([ONE], all_others=True)
    time.now_s = 101.0
    assert withheld.without(ALL) == frozenset()
    time.now_s = 100.0 + WITHHELD_S
    assert withheld.without(ALL) == ALL


@pytest.mark.parametrize("all_others", [False, True])
def test_withholding_lasts_for_one_call_at_least(withheld, time, all_others):
    withheld.withhold(ALL, all_others=all_others)
    time.now_s += 10 * WITHHELD_S
    assert withheld.without(ALL) == frozenset()
    assert withheld.without(ALL) == ALL


@pytest.mark.parametrize("all_others", [False, True])
def test_a_run_is_offered_again_where_another_is_withheld_in_every_cycle(withheld, time, all_others):
    withheld.withhold([ONE], all_others=all_others)
    offered = {}
    while time.now_s < 100.0 + 4 * WITHHELD_S:
        offered[time.now_s] = withheld.without(ALL)
        time.now_s += 3.0
        withheld.withhold([TWO], all_others=False)
    assert next(since_s for since_s, runs in offered.items() if ONE in runs) == 100.0 + WITHHELD_S
    assert not any(TWO in runs for runs in list(offered.values())[1:])


def test_what_is_remembered_does_not_grow_where_runs_are_withheld_in_every_cycle(withheld, time):
    for number in range(1000):
        withheld.withhold([RunKey(number, 0)], all_others=False)
        withheld.without(ALL)
        time.now_s += 1.0
    assert len(withheld._since_s) <= WITHHELD_S + 1
