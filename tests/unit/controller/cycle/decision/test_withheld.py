"""Runs that are not offered to policies for a while, and for how long."""

from __future__ import annotations

import pytest

from controller.cycle.decision.withheld import WITHHELD_S, Withheld
from controller.profiles.windows import RunKey

ONE, TWO, THREE = runs = [RunKey(number, 0) for number in (1, 2, 3)]
ALL = frozenset(runs)


def test_no_job_is_withheld_at_first():
    withheld = Withheld()
    assert not withheld.fresh
    assert withheld.without(ALL, 0.0) == ALL


def test_withheld_jobs_are_offered_again_after_a_while():
    withheld = Withheld()
    withheld.withhold([ONE], 100.0, all_others=False)
    assert withheld.fresh
    assert withheld.without(ALL, 101.0) == {TWO, THREE}
    assert not withheld.fresh
    withheld.withhold([TWO], 110.0, all_others=False)
    assert withheld.without(ALL, 111.0) == {THREE}
    assert withheld.without(ALL, 100.0 + WITHHELD_S) == {ONE, THREE}
    assert withheld.without(ALL, 110.0 + WITHHELD_S) == ALL


def test_with_every_job_withheld_none_is_offered():
    withheld = Withheld()
    withheld.withhold([ONE], 100.0, all_others=True)
    assert withheld.without(ALL, 101.0) == frozenset()
    assert withheld.without(ALL, 100.0 + WITHHELD_S) == ALL


@pytest.mark.parametrize("all_others", [False, True])
@pytest.mark.parametrize("later_s", [10 * WITHHELD_S, -3600.0])
def test_withholding_lasts_for_one_call_at_least_and_ends_when_the_clock_is_set_back(all_others, later_s):
    withheld = Withheld()
    withheld.withhold(ALL, 5000.0, all_others=all_others)
    assert withheld.without(ALL, 5000.0 + later_s) == frozenset()
    assert withheld.without(ALL, 5001.0 + later_s) == ALL
