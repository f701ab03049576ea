"""Pauses between tries never overflow, and never pass their bound."""

import random

import pytest

from policies.serving.runtime.tasks.backoff import Backoff, Retries


def test_a_pause_doubles_up_to_the_longest():
    backoff = Backoff(5.0, 300.0)
    assert [backoff.pause_s(number) for number in range(8)] == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


@pytest.mark.parametrize("doublings", [1023, 1024, 5000, 10**9, 10**400])
def test_any_number_of_failures_gives_a_finite_pause(doublings):
    assert Backoff(5.0, 300.0).pause_s(doublings) == 300.0
    assert Backoff(0.0, 300.0).pause_s(doublings) == 0.0


def test_a_number_below_zero_is_the_first_pause():
    assert Backoff(5.0, 300.0).pause_s(-3) == 5.0


def test_pauses_double_with_jitter_up_to_a_bound() -> None:
    retries = Retries(Backoff(0.5, 30.0), random.Random(7))
    pauses = [retries.next_s() for _ in range(40)]
    for at, pause_s in enumerate(pauses):
        whole_s = min(0.5 * 2**at, 30.0)
        assert whole_s / 2 <= pause_s <= whole_s
    assert len(set(pauses)) == 40
    retries.reset()
    assert retries.next_s() <= 0.5


def test_clients_that_failed_at_the_same_time_do_not_retry_at_the_same_time() -> None:
    firsts = [Retries(Backoff(0.5, 30.0), random.Random(seed)).next_s() for seed in range(100)]
    assert max(firsts) - min(firsts) > 0.2
