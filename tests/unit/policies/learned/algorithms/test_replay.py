"""Replay memory: its rows, their probabilities and weights, and that a restored memory continues as before."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.learned.algorithms.replay import PrioritizedReplay


def rows(first: int, count: int) -> dict[str, Any]:
    numbers = np.arange(first, first + count)
    return {"seen": np.stack([numbers, -numbers], axis=1).astype(np.float32), "action": numbers}


def prioritized(capacity: int = 8, **options: Any) -> PrioritizedReplay:
    return PrioritizedReplay(capacity, **({"seed": 1, "anneal": 10} | options))


@given(capacity=st.integers(1, 9), counts=st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_the_memory_keeps_the_newest_rows_only(capacity: int, counts: list[int]) -> None:
    replay, newest = prioritized(capacity), deque[int](maxlen=capacity)
    first = 0
    for count in counts:
        places = replay.add(rows(first, count))
        newest.extend(range(first, first + count))
        first += count
        assert len(replay) == len(newest)
        assert len(places) == min(count, capacity)
    sample = replay.sample(400)
    assert set(sample.rows["action"].tolist()) == set(newest)
    assert np.array_equal(sample.rows["seen"][:, 1], -sample.rows["action"])
    assert sample.rows["seen"].dtype == np.float32


def test_a_restored_memory_continues_as_the_original() -> None:
    replay = prioritized(8)
    replay.add(rows(0, 5))
    replay.sample(3)
    replay.update(np.array([0, 3]), np.array([9.0, 0.1]))
    other = prioritized(8)
    other.load_state_dict(replay.state_dict())
    for first in (5, 8):
        for each in (replay, other):
            each.add(rows(first, 3))
        samples = [each.sample(40) for each in (replay, other)]
        assert np.array_equal(samples[0].indices, samples[1].indices)
        assert np.array_equal(samples[0].weights, samples[1].weights)
        assert np.array_equal(samples[0].rows["seen"], samples[1].rows["seen"])


def test_the_state_of_an_empty_memory_can_be_restored() -> None:
    other = prioritized(4)
    other.load_state_dict(prioritized(4).state_dict())
    other.add(rows(0, 2))
    assert len(other) == 2


def test_impossible_options_are_refused() -> None:
    replay = prioritized(4)
    with pytest.raises(ValueError, match="has no rows to draw"):
        replay.sample(1)
    replay.add(rows(0, 2))
    with pytest.raises(ValueError, match="rows of"):
        replay.add({"seen": np.zeros((1, 3), dtype=np.float32), "action": np.zeros(1, dtype=np.int64)})
    with pytest.raises(ValueError, match="rows of"):
        replay.add({"seen": np.zeros((1, 2), dtype=np.float32)})
    with pytest.raises(ValueError, match="all of one length"):
        replay.add({"seen": np.zeros((1, 2), dtype=np.float32), "action": np.zeros(2, dtype=np.int64)})
    with pytest.raises(ValueError, match="all of one length"):
        replay.add({})
    with pytest.raises(ValueError, match="the saved replay memory has room for 4 rows, this one for 5"):
        prioritized(5).load_state_dict(replay.state_dict())
    with pytest.raises(ValueError, match="cannot have"):
        prioritized(0)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_priorities_say_how_often_a_row_is_drawn_and_how_much_it_weighs(alpha: float) -> None:
    errors = np.array([0.5, -4.0, 1.0, 0.0, 2.5])
    replay = prioritized(5, alpha=alpha, beta=0.4, floor=0.01)
    replay.add(rows(0, 5))
    replay.update(np.arange(5), errors)
    sample = replay.sample(100_000)
    chances = (np.abs(errors) + 0.01) ** alpha
    chances /= chances.sum()
    counts = np.bincount(sample.indices, minlength=5)
    # Stratified: the count of a row strays from its share by less than one share at each of its ends.
    assert np.abs(counts - 100_000 * chances).max() <= 2
    weights = (5 * chances) ** -0.4
    assert sample.weights == pytest.approx((weights / weights.max())[sample.indices])


def test_with_beta_1_weights_make_the_mean_that_of_all_rows() -> None:
    values = np.array([3.0, -1.0, 10.0, 0.5])
    replay = prioritized(4, alpha=1.0, beta=1.0)
    replay.add(rows(0, 4))
    replay.update(np.arange(4), np.array([8.0, 1.0, 2.0, 5.0]))
    sample = replay.sample(50_000)
    mean = (sample.weights * values[sample.indices]).sum() / sample.weights.sum()
    assert mean == pytest.approx(values.mean(), abs=0.01)


def test_new_rows_come_with_the_largest_priority_so_far() -> None:
    replay = prioritized(4, alpha=1.0, floor=1e-9)
    replay.add(rows(0, 2))
    replay.update(np.array([0, 1]), np.array([0.0, 5.0]))
    replay.update(np.array([1]), np.array([0.0]))
    replay.add(rows(2, 2))
    counts = np.bincount(replay.sample(1000).indices, minlength=4)
    assert counts.tolist() == [0, 0, 500, 500]


def test_an_overwritten_row_leaves_no_priority() -> None:
    replay = prioritized(2, alpha=1.0)
    replay.add(rows(0, 2))
    replay.update(np.array([0, 1]), np.array([1.0, 1e6]))
    replay.add(rows(2, 1))
    replay.update(np.array([0, 1]), np.array([1.0, 1.0]))
    assert np.bincount(replay.sample(1000).indices).tolist() == [500, 500]


def test_beta_goes_to_1_along_a_straight_line() -> None:
    replay = prioritized(4, beta=0.4, anneal=3)
    replay.add(rows(0, 4))
    betas = []
    for _ in range(5):
        betas.append(replay.beta)
        replay.sample(2)
    assert betas == pytest.approx([0.4, 0.6, 0.8, 1.0, 1.0])


def test_an_error_that_is_not_finite_is_refused_and_changes_nothing() -> None:
    replay = prioritized()
    replay.add(rows(0, 4))
    before = replay.state_dict()["leaves"]
    with pytest.raises(ValueError, match="diverged"):
        replay.update(np.array([0, 1]), np.array([1.0, np.nan]))
    assert np.array_equal(replay.state_dict()["leaves"], before)


@pytest.mark.parametrize("options", [{"alpha": 1.1}, {"alpha": -0.1}, {"beta": 1.1}, {"floor": 0.0}, {"anneal": 0}])
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give alpha and beta from 0 to 1"):
        prioritized(**options)
