"""Who is not offered to policies for a while, and for how long."""

from __future__ import annotations

import pytest

from controller.cycle.withheld import HELD_BACK_S, HeldBack
from controller.profiles.windows import RunKey

ONE, TWO, THREE = runs = [RunKey(number, 0) for number in (1, 2, 3)]
ALL = frozenset(runs)


def test_nobody_is_held_back_at_first():
    held = HeldBack()
    assert not held.fresh
    assert held.without(ALL, 0.0) == ALL


def test_who_is_held_back_is_offered_again_after_a_while():
    held = HeldBack()
    held.hold([ONE], 100.0, everybody=False)
    assert held.fresh
    assert held.without(ALL, 101.0) == {TWO, THREE}
    assert not held.fresh
    held.hold([TWO], 110.0, everybody=False)
    assert held.without(ALL, 111.0) == {THREE}
    assert held.without(ALL, 100.0 + HELD_BACK_S) == {ONE, THREE}
    assert held.without(ALL, 110.0 + HELD_BACK_S) == ALL


def test_with_everybody_nobody_is_offered():
    held = HeldBack()
    held.hold([ONE], 100.0, everybody=True)
    assert held.without(ALL, 101.0) == frozenset()
    assert held.without(ALL, 100.0 + HELD_BACK_S) == ALL


@pytest.mark.parametrize("everybody", [False, True])
@pytest.mark.parametrize("later_s", [10 * HELD_BACK_S, -3600.0])
def test_that_lasts_for_a_look_though_looks_are_rare_and_no_longer_though_the_clock_was_set_back(everybody, later_s):
    held = HeldBack()
    held.hold(ALL, 5000.0, everybody=everybody)
    assert held.without(ALL, 5000.0 + later_s) == frozenset()
    assert held.without(ALL, 5001.0 + later_s) == ALL
