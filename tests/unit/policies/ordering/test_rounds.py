"""Rounds at whose beginnings a policy decides."""

from __future__ import annotations

import pytest

from policies.ordering.rounds import Rounds


def test_each_round_begins_once_at_the_first_instant_that_is_asked_for() -> None:
    rounds = Rounds(300.0)
    asked = (0.0, 0.5, 299.9, 300.0, 300.0, 450.0, 600.7, 601.0, 1500.0)
    assert [time_s for time_s in asked if rounds.begins(time_s)] == [0.0, 300.0, 600.7, 1500.0]


@pytest.mark.parametrize(("first_s", "begins"), [(900.0, True), (901.0, False)])
def test_a_policy_that_begins_within_a_round_waits_for_the_next(first_s: float, begins: bool) -> None:
    rounds = Rounds(300.0)
    assert rounds.begins(first_s) == begins
    assert not rounds.begins(1199.0)
    assert rounds.begins(1200.2)


def test_without_a_length_every_instant_begins_one() -> None:
    rounds = Rounds(0.0)
    assert rounds.begins(1.0) and rounds.begins(1.0) and rounds.begins(1.5)
