"""Advantages against their definitions, written out as sums over each episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.learned.algorithms.advantage import discounts, gae, values_after

Batch = dict[str, Any]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    steps, envs = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    ends = rng.choice(4, size=(steps, envs), p=[0.6, 0.2, 0.15, 0.05])
    return {
        "rewards": rng.normal(size=(steps, envs)),
        "values": rng.normal(size=(steps, envs)).astype(np.float32),
        "next_values": rng.normal(size=(steps, envs)).astype(np.float32),
        "terminated": (ends == 1) | (ends == 3),
        "truncated": (ends == 2) | (ends == 3),
        "gamma": draw(st.sampled_from([0.0, 0.9, 1.0])) if draw(st.booleans()) else rng.random((steps, envs)),
        "lam": draw(st.sampled_from([0.0, 0.95, 1.0])),
    }


def gamma_of(batch: Batch) -> Any:
    return np.broadcast_to(batch["gamma"], batch["rewards"].shape)


def slow_return(batch: Batch, start: int, env: int) -> float:
    """Rewards to the end of the episode, each discounted by the steps before it; then what comes after."""
    total, discount = 0.0, 1.0
    for step in range(start, len(batch["rewards"])):
        total += discount * batch["rewards"][step, env]
        discount *= gamma_of(batch)[step, env]
        if batch["terminated"][step, env]:
            return total
        if batch["truncated"][step, env]:
            break
    return total + discount * float(batch["next_values"][step, env])


def slow_advantage(batch: Batch, start: int, env: int) -> float:
    """Equation 16: errors of one step, discounted by gamma and lambda."""
    total, discount = 0.0, 1.0
    for step in range(start, len(batch["rewards"])):
        gamma, terminated = gamma_of(batch)[step, env], batch["terminated"][step, env]
        following = 0.0 if terminated else gamma * float(batch["next_values"][step, env])
        total += discount * (batch["rewards"][step, env] + following - float(batch["values"][step, env]))
        if terminated or batch["truncated"][step, env]:
            break
        discount *= gamma * batch["lam"]
    return total


def each(batch: Batch, slow: Any) -> Any:
    steps, envs = batch["rewards"].shape
    return np.array([[slow(batch, step, env) for env in range(envs)] for step in range(steps)])


@given(batches())
def test_advantages_are_those_of_the_definition(batch: Batch) -> None:
    advantages, targets = gae(**batch)
    assert advantages == pytest.approx(each(batch, slow_advantage), abs=1e-12)
    assert targets == pytest.approx(advantages + batch["values"], abs=1e-12)


@given(batches())
def test_with_lambda_1_targets_are_returns_where_values_agree_with_each_other(batch: Batch) -> None:
    batch["lam"] = 1.0
    steps = len(batch["values"])
    for step in range(steps - 1):
        goes_on = ~(batch["terminated"][step] | batch["truncated"][step])
        batch["next_values"][step, goes_on] = batch["values"][step + 1, goes_on]
    _, targets = gae(**batch)
    assert targets == pytest.approx(each(batch, slow_return), abs=1e-6)


@given(batches(), st.floats(-1e6, 1e6))
def test_steps_after_the_end_of_an_episode_do_not_matter(batch: Batch, other: float) -> None:
    before, _ = gae(**batch)
    # What follows on a termination, be it NaN, and all rewards after the first end of environment 0.
    batch["next_values"] = np.where(batch["terminated"], np.nan, batch["next_values"])
    over = (batch["terminated"] | batch["truncated"])[:, 0]
    if over.any():
        batch["rewards"][int(over.argmax()) + 1 :, 0] = other
        after, _ = gae(**batch)
        upto = int(over.argmax()) + 1
        assert np.array_equal(after[:upto, 0], before[:upto, 0])


def test_values_after_steps_are_those_before_the_next_but_for_cuts() -> None:
    values = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    truncated = np.array([[False, True], [False, False], [True, False]])
    after = values_after(values, np.array([4.0, 40.0]), truncated, np.array([-1.0, -2.0]))
    assert after.tolist() == [[2.0, -1.0], [3.0, 30.0], [-2.0, 40.0]]
    assert values_after(values, np.array([4.0, 40.0]), np.zeros_like(truncated), np.array([]))[-1].tolist() == [4, 40]


@pytest.mark.parametrize("gamma", [0.5, 0.99])
def test_a_reward_at_once_counts_as_one_that_takes_hardly_any_time(gamma: float) -> None:
    (at_once, soon, unit), weights = discounts(np.array([0.0, 1e-6, 1.0]), gamma)
    assert (at_once, unit) == (1.0, gamma) and soon == pytest.approx(1.0)
    assert weights[0] == pytest.approx(weights[1], rel=1e-5) and weights[0] > weights[2] > 0


def test_with_no_discount_at_all_rewards_are_plain() -> None:
    assert discounts(np.array([0.0, 2.0]), 0.0)[1].tolist() == [1.0, 0.5]
