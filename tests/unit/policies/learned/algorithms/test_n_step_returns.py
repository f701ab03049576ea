"""Transitions over several steps: their returns by hand, ends of episodes, and what is left at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.learned.algorithms.n_step_returns import NStepReturns, Transitions

ENVS = 2
NEVER = np.zeros(ENVS, dtype=np.bool_)


def before(step: int, kept: tuple[bool, bool] = (True, True)) -> dict[str, Any]:
    """Return what both environments show before a step: its number."""
    return {
        "seen": np.full((ENVS, 3), step, dtype=np.float32),
        "masks": np.ones((ENVS, 2), dtype=np.bool_),
        "actions": np.full(ENVS, step),
        "kept": np.array(kept),
    }


def after(step: int, is_over: Any = NEVER) -> dict[str, Any]:
    """Return what both environments show after a step: the next number."""
    return {
        "seen": np.full((ENVS, 3), step + 1, dtype=np.float32),
        "masks": np.ones((ENVS, 2), dtype=np.bool_),
        "is_over": np.asarray(is_over),
    }


def test_returns_over_several_steps_by_hand() -> None:
    returns = NStepReturns(3, shown=False)
    rewards = np.array([[1.0, 0.0], [2.0, 4.0], [3.0, 8.0], [5.0, 16.0]])
    gammas = np.array([[0.5, 1.0], [1.0, 0.0], [0.5, 0.5], [1.0, 1.0]])
    rows = [
        returns.step(before(step, (True, step < 1)), rewards[step], gammas[step], after(step, gammas[step] == 0))
        for step in range(4)
    ]
    assert rows[:2] == [None, None]
    third, fourth = rows[2:]
    assert third is not None and fourth is not None
    # 1 + 0.5 (2 + 1 * 3), then 0.25 of what follows; the second episode ends in its second step.
    assert third["returns"].tolist() == [3.5, 4.0]
    assert third["gammas"].tolist() == [0.25, 0.0]
    assert third["seen"][:, 0].tolist() == [0, 0]
    assert third["next_seen"][:, 0].tolist() == [3, 2]
    # The environment that is not kept is left out.
    assert fourth["returns"].tolist() == [2 + 3 + 0.5 * 5]
    assert fourth["gammas"].tolist() == [0.5]


def test_a_truncated_episode_ends_with_the_value_of_its_last_observation() -> None:
    returns = NStepReturns(4, shown=False)
    ones = np.ones(ENVS)
    rows: Transitions | None = None
    for step in range(4):
        cut = np.array([step == 1, False])
        rows = returns.step(before(step), ones, 0.5 * ones, after(step, cut))
    assert rows is not None
    # Two steps and the last observation, 2; the other goes on to the fourth step.
    assert rows["returns"].tolist() == [1.5, 1.875]
    assert rows["gammas"].tolist() == [0.25, 0.0625]
    assert rows["next_seen"][:, 0].tolist() == [2, 4]


def test_open_steps_at_the_end_are_returned_truncated() -> None:
    returns = NStepReturns(3, shown=True)
    ones = np.ones(ENVS)
    for step in range(2):
        assert returns.step(before(step), ones, 0.5 * ones, after(step)) is None
    rest = returns.flush({name: array for name, array in after(1).items() if name != "is_over"})
    assert [rows["returns"].tolist() for rows in rest] == [[1.5, 1.5], [1.0, 1.0]]
    assert [rows["gammas"].tolist() for rows in rest] == [[0.25, 0.25], [0.5, 0.5]]
    assert all((rows["next_seen"] == 2).all() for rows in rest)
    assert all(rows["shown"].all() for rows in rest)
    assert returns.flush(after(1)) == []


def test_every_step_becomes_one_row() -> None:
    rng = np.random.default_rng(0)
    returns = NStepReturns(5, shown=False)
    rows = []
    for step in range(40):
        is_over = rng.random(ENVS) < 0.2
        found = returns.step(before(step), np.ones(ENVS), np.where(is_over, 0.0, 0.9), after(step, is_over))
        rows += [] if found is None else [found]
    rows += returns.flush(after(39))
    assert sorted(np.concatenate([each["actions"] for each in rows]).tolist()) == sorted([*range(40), *range(40)])


def test_steps_without_a_choice_are_not_kept() -> None:
    returns = NStepReturns(1, shown=True)
    given = before(0) | {"masks": np.array([[True, False], [True, True]]), "actions": np.array([0, 1])}
    rows = returns.step(given, np.ones(ENVS), np.ones(ENVS), after(0))
    assert rows is not None
    assert rows["actions"].tolist() == [1]
