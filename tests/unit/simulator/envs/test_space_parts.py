"""The description of the environments' spaces, and scaled observations."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from simulator.envs import CONTENTION, ELASTIC, MARL, RL_TAPS, SCHED2
from simulator.envs.scaled import Scaled
from simulator.envs.space_parts import SpacePart, part_rows, uncovered
from simulator.errors import SettingError
from simulator.papers.spaces import main, with_table

ALL = (CONTENTION, ELASTIC, MARL, RL_TAPS, SCHED2)
OPTIONS = [
    *((name, {}) for name in ALL),
    (CONTENTION, {"cells": "features"}),
    (CONTENTION, {"cluster": "8x8"}),
    (MARL, {"shows": "types"}),
    (SCHED2, {"cluster": "5x4", "candidates": 3}),
    (ELASTIC, {"concurrent": 5}),
]


def act(env: gymnasium.Env, seed: int):
    """Act at random for a while; yield every observation."""
    chance = np.random.default_rng(seed)
    env.action_space.seed(seed)
    seen, _ = env.reset(seed=seed)
    yield seen
    for _ in range(60):
        if hasattr(env.unwrapped, "action_masks"):
            possible = np.flatnonzero(np.asarray(env.unwrapped.action_masks()).reshape(-1))
        else:
            possible = np.zeros(0, dtype=int)
        discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
        action = chance.choice(possible) if discrete and len(possible) else env.action_space.sample()
        seen, _, terminated, truncated, _ = env.step(action)
        yield seen
        if terminated or truncated:
            seen, _ = env.reset()


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_the_parts_are_the_observation_within_their_ranges(name: str, options: dict) -> None:
    env = gymnasium.make(name, **options)
    described = env.unwrapped
    used = {part.name: False for part in described.space_parts()}
    for seen in act(env, 3):
        assert uncovered(described, seen) == 0
        for part in described.space_parts():
            values = part.of(seen)
            assert part.low <= values.min() and values.max() <= part.high, part.name
            used[part.name] |= bool(values.any())
            if part.unit in ("flag", "one-hot"):
                assert np.isin(values, (0, 1)).all()
    assert sum(used.values()) >= len(used) - 2, f"nearly nothing was seen: {used}"


def test_a_part_that_is_missing_or_double_is_seen() -> None:
    class Env:
        parts = (SpacePart("a", (slice(None, 3),), 0, 1, "", ""), SpacePart("b", (slice(2, 4),), 0, 1, "", ""))

        def space_parts(self):
            return self.parts

        def actions_text(self) -> str:
            return ""

    assert uncovered(Env(), np.zeros(5)) == 2
    assert part_rows(Env(), np.zeros(5))[1][:4] == ("b", "[2:4]", "2", "0 to 1")
    assert uncovered(Env(), {"x": np.zeros(1)}) > 0


def test_the_table_in_the_docs_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err
    with pytest.raises(ValueError, match="comments around the table are missing"):
        with_table("# Simulator\n")


@pytest.mark.parametrize("name", [CONTENTION, ELASTIC, RL_TAPS, SCHED2])
def test_scaled_observations_are_small_and_keep_their_order(name: str) -> None:
    plain, scaled = gymnasium.make(name), Scaled(gymnasium.make(name))
    assert scaled.observation_space.high.max() == 1
    for before, after in zip(act(plain, 5), act(scaled, 5), strict=True):
        assert scaled.observation_space.contains(after)
        flat, small = np.asarray(before, dtype=float).reshape(-1), after.reshape(-1)
        assert ((flat == 0) == (small == 0)).all()
        assert ((flat < 0) == (small < 0)).all()


def test_the_scale_of_hours_is_logarithmic() -> None:
    env = Scaled(gymnasium.make(SCHED2))
    seen = np.zeros(env.observation_space.shape, dtype=np.float32)
    seen[:3] = (-1.0, 1.0, 1e9)
    assert env.observation(seen)[:3] == pytest.approx((-1.0, np.log(2) / np.log(1 + 1e9), 1.0))


def test_parts_in_a_dictionary_are_not_scaled() -> None:
    with pytest.raises(SettingError, match="not one array"):
        Scaled(gymnasium.make(MARL))
