"""Pauses between tries never overflow, and never pass their bound."""

import pytest

from controller.base.backoff import Backoff


def test_a_pause_doubles_up_to_the_longest():
    backoff = Backoff(5.0, 300.0)
    assert [backoff.pause_s(number) for number in range(8)] == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


@pytest.mark.parametrize("doublings", [1023, 1024, 5000, 10**9, 10**400])
def test_no_number_of_failures_overflows(doublings):
    assert Backoff(5.0, 300.0).pause_s(doublings) == 300.0
    assert Backoff(0.0, 300.0).pause_s(doublings) == 0.0


def test_a_number_below_zero_is_the_first_pause():
    assert Backoff(5.0, 300.0).pause_s(-3) == 5.0
