"""The search for a rule."""

from __future__ import annotations

import numpy as np
import pytest

from policies.learned.sched2.state.feature_columns import (
    OF_JOB,
)
from policies.learned.sched2.state.first_rule import first_rule
from policies.learned.sched2.training.search import search


def test_the_search_moves_to_lower_costs() -> None:
    evolution, goal = search(24, seed=1), np.linspace(-2.0, 2.0, OF_JOB)
    first = float(np.square(evolution.mean - goal).sum())
    assert evolution.mean == pytest.approx(first_rule())
    for _ in range(150):
        rules = evolution.draw()
        evolution.learn(100 + np.square(rules - goal).sum(axis=1, keepdims=True) * np.array([[1.0, 5.0]]))
    assert np.square(evolution.mean - goal).sum() < 0.1 * first


@pytest.mark.parametrize("costs", [np.arange(8.0) - 20, np.arange(8.0) + 20, np.array([*range(6), np.inf, np.inf])])
def test_the_search_moves_to_the_lowest_cost_and_away_from_unfinished_episodes(costs: np.ndarray) -> None:
    evolution = search(8, seed=1)
    rules = evolution.draw()
    evolution.learn(np.stack([costs, costs], axis=1))
    scale = np.abs(rules - first_rule()).mean(axis=0)
    likeness = (rules - first_rule()) / scale @ ((evolution.mean - first_rule()) / scale)
    assert likeness[0] > 0
    assert likeness[0] > likeness[7]


def test_a_search_without_finished_episodes_continues() -> None:
    evolution = search(4, seed=1)
    evolution.draw()
    evolution.learn(np.full((4, 2), np.inf))
    assert np.isfinite(evolution.draw()).all()


def test_an_interrupted_search_draws_the_same_candidates() -> None:
    def costs(rules: np.ndarray) -> np.ndarray:
        return np.abs(rules).sum(axis=1, keepdims=True)

    whole, other = search(6, seed=3), search(6, seed=4)
    for _ in range(4):
        whole.learn(costs(whole.draw()))
    left = search(6, seed=3)
    left.load_state_dict(whole.state_dict())
    assert left.rounds == 4
    assert np.array_equal(left.mean, whole.mean)
    assert np.array_equal(left.draw(), whole.draw())
    assert not np.array_equal(other.draw(), search(6, seed=3).draw())
