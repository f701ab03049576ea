"""Batches from vectorized environments: each environment acts as it does alone, and ends are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from policies.errors import TrainingError
from policies.learned.algorithms.advantage import values_after
from policies.learned.algorithms.rollout import Collector, Rollout
from policies.learned.training.run.seeding import generator, seeds
from tests.unit.policies.learned.examples.toy import CUT_AFTER, Beam, beams
from tests.unit.policies.learned.examples.transitions import transitions

ENVS, STEPS = 3, 40


class Player:
    """An agent that takes any possible action, and notes a number of each step."""

    def __init__(self) -> None:
        self.turn = 0

    def __call__(self, seen: Any, masks: Any) -> Mapping[str, Any]:
        self.turn += 1
        chances = masks / masks.sum(axis=1, keepdims=True)
        rng = generator(1, self.turn)
        actions = np.array([rng.choice(3, p=row) for row in chances])
        return {"actions": actions, "value": seen.sum(axis=1), "turn": np.full(len(actions), self.turn)}


def alone(actions: Any, seed: int) -> list[dict[str, Any]]:
    """The steps of one environment alone."""
    env = Beam()
    seen = env.reset(seed=seed)[0].copy()
    steps = []
    for action in actions:
        step = {"observations": seen, "masks": env.action_masks()}
        after, reward, terminated, truncated, _ = env.step(action)
        step |= {"rewards": reward, "terminated": terminated, "truncated": truncated, "after": after.copy()}
        step["after_masks"] = env.action_masks()
        seen = (env.reset()[0] if terminated or truncated else after).copy()
        steps.append(step)
    return steps


def collected(batches: int, **options: Any) -> tuple[list[dict[str, Any]], list[Rollout], Collector]:
    """Copies of the batches' contents, the last batch itself, and its collector."""
    collector = Collector(beams(ENVS, **options), STEPS, masked=True)
    collector.restart([5, 6, 7])
    player, kept = Player(), []
    for _ in range(batches):
        rollout = collector.collect(player)
        names = ("observations", "masks", "actions", "rewards", "terminated", "truncated", "final_observations")
        kept.append({name: np.copy(getattr(rollout, name)) for name in names})
        kept[-1] |= {"extras": {name: array.copy() for name, array in rollout.extras.items()}}
        kept[-1] |= {"rows": transitions(rollout), "episodes": rollout.episodes}
    return kept, [rollout], collector


class Slow(Beam):
    """A wrapper that adds the length of each step to the info; steps to the right take longer."""

    def step(self, action: np.int64) -> Any:
        *step, info = super().step(action)
        return *step, {**info, "elapsed": 0.5 * int(action)}


def test_how_long_a_step_took_is_kept_of_last_steps_too() -> None:
    collector = Collector(SyncVectorEnv([Slow] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP), STEPS, masked=True)
    collector.restart([5, 6, 7])
    rollout = collector.collect(Player())
    assert (rollout.terminated | rollout.truncated).any()
    assert rollout.elapsed is not None
    assert np.array_equal(rollout.elapsed, 0.5 * rollout.actions)
    _, [silent], _ = collected(1)
    assert silent.elapsed is None


def test_every_environment_acts_as_it_does_alone() -> None:
    kept, [rollout], collector = collected(3)
    for env in range(ENVS):
        actions = np.concatenate([batch["actions"][:, env] for batch in kept])
        steps = alone(actions, 5 + env)
        for name in ("observations", "masks", "rewards", "terminated", "truncated"):
            got = np.concatenate([batch[name][:, env] for batch in kept])
            assert np.array_equal(got, np.array([step[name] for step in steps])), name
        over = steps[-1]["terminated"] or steps[-1]["truncated"]
        if not over:
            assert np.array_equal(np.asarray(rollout.last_observations)[env], steps[-1]["after"])
    for batch in kept:
        assert np.array_equal(batch["extras"]["value"], batch["observations"].sum(axis=2))
    assert kept[1]["extras"]["turn"][:, 0].tolist() == list(range(STEPS + 1, 2 * STEPS + 1))
    assert rollout.last_masks is not None
    assert np.array_equal(rollout.last_masks, np.array(collector.envs.call("action_masks")))  # type: ignore[attr-defined]


def test_only_truncated_episodes_have_final_observations() -> None:
    kept, _, _ = collected(3)
    cuts = ends = 0
    for batch in kept:
        assert len(batch["final_observations"]) == batch["truncated"].sum()
        cuts, ends = cuts + batch["truncated"].sum(), ends + batch["terminated"].sum()
        episodes = batch["episodes"]
        assert len(episodes) == (batch["truncated"] | batch["terminated"]).sum()
        assert all(episode.info["outcome"] == {"steps": episode.steps} for episode in episodes)
        assert all(episode.steps <= CUT_AFTER for episode in episodes)
    assert cuts > 0 < ends


def test_episodes_add_up_over_batches() -> None:
    kept, _, _ = collected(3)
    for env in range(ENVS):
        rewards = np.concatenate([batch["rewards"][:, env] for batch in kept])
        over = np.concatenate([(batch["terminated"] | batch["truncated"])[:, env] for batch in kept])
        sums = [part.sum() for part in np.split(rewards, np.flatnonzero(over) + 1)[:-1]]
        reported = [episode.reward for batch in kept for episode in batch["episodes"] if episode.env == env]
        assert reported == pytest.approx(sums)


def test_values_of_final_observations_are_those_of_truncated_episodes() -> None:
    kept, [rollout], _ = collected(1)
    [batch] = kept
    values = batch["observations"].sum(axis=2)
    last = np.asarray(rollout.last_observations).sum(axis=1)
    after = values_after(values, last, batch["truncated"], batch["final_observations"].sum(axis=1))
    for env in range(ENVS):
        for number, step in enumerate(alone(batch["actions"][:, env], 5 + env)):
            if not step["terminated"]:
                assert after[number, env] == pytest.approx(step["after"].sum())


@pytest.mark.parametrize("tells_masks", [False, True])
def test_transitions_end_with_the_observation_before_the_reset(tells_masks: bool) -> None:
    kept, _, _ = collected(1, tells_masks=tells_masks)
    [batch] = kept
    expected = []
    steps = [alone(batch["actions"][:, env], 5 + env) for env in range(ENVS)]
    for number in range(STEPS):
        expected += [(env, steps[env][number]) for env in range(ENVS)]
    if not tells_masks:
        # Which actions were possible after a cut is not known.
        expected = [(env, step) for env, step in expected if not step["truncated"]]
    rows = batch["rows"]
    assert {len(array) for array in rows.values()} == {len(expected)}
    for row, (_, step) in enumerate(expected):
        assert np.array_equal(rows["observations"][row], step["observations"])
        assert np.array_equal(rows["masks"][row], step["masks"])
        assert rows["rewards"][row] == step["rewards"]
        assert rows["terminated"][row] == step["terminated"]
        if not step["terminated"]:
            assert np.array_equal(rows["next_observations"][row], step["after"])
            assert np.array_equal(rows["next_masks"][row], step["after_masks"])


def test_restart_makes_all_that_comes_as_after_any_other_of_these_seeds() -> None:
    collector = Collector(beams(ENVS), STEPS, masked=True)
    collector.restart(seeds(ENVS, 1, "environments", 0))
    first = transitions(collector.collect(Player()))
    collector.restart(seeds(ENVS, 1, "environments", 1))
    other = transitions(collector.collect(Player()))
    collector.restart(seeds(ENVS, 1, "environments", 0))
    again = collector.collect(Player())
    assert all(np.array_equal(first[name], array) for name, array in transitions(again).items())
    assert not np.array_equal(first["rewards"], other["rewards"])
    assert all(episode.steps <= CUT_AFTER for episode in again.episodes)


def test_arrays_are_reused_and_transitions_are_copies() -> None:
    collector = Collector(beams(ENVS), STEPS, masked=True)
    collector.restart([1, 2, 3])
    first = collector.collect(Player())
    rows, before = transitions(first), first.rewards.copy()
    second = collector.collect(Player())
    assert second.rewards is first.rewards
    assert np.array_equal(rows["rewards"][:ENVS], before[0])
    assert not np.array_equal(second.rewards[0], before[0])


class Named(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Two observations by name."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        box = gymnasium.spaces.Box(-10.0, 10.0, (1,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({"where": box, "speed": box})

    def observation(self, observation: Any) -> dict[str, Any]:
        return {"where": observation[:1], "speed": observation[1:]}


def test_observations_by_name_are_what_plain_ones_are() -> None:
    envs = SyncVectorEnv([lambda: Named(Beam(True))] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP)
    collector = Collector(envs, STEPS, masked=True)
    collector.restart([5, 6, 7])
    player = Player()
    rollout = collector.collect(lambda seen, masks: player(np.hstack([seen["where"], seen["speed"]]), masks))
    kept, [plain], _ = collected(1, tells_masks=True)
    assert isinstance(rollout.observations, dict)
    for one, other in (
        (rollout.observations, plain.observations),
        (rollout.final_observations, plain.final_observations),
        (rollout.last_observations, plain.last_observations),
    ):
        assert np.array_equal(np.concatenate([one["where"], one["speed"]], axis=-1), other)  # type: ignore[index]
    rows = transitions(rollout)
    assert np.array_equal(rows["next_observations/where"][:, 0], kept[0]["rows"]["next_observations"][:, 0])
    assert np.array_equal(rows["observations/speed"][:, 0], kept[0]["rows"]["observations"][:, 1])


def test_without_masks_a_batch_has_no_masks() -> None:
    collector = Collector(beams(ENVS), 5, masked=False)
    collector.restart([1, 2, 3])

    def act(seen: Any, masks: Any) -> Mapping[str, Any]:
        assert masks is None
        return {"actions": np.ones(ENVS, dtype=np.int64)}

    rollout = collector.collect(act)
    assert rollout.masks is rollout.last_masks is rollout.final_masks is None
    assert "masks" not in transitions(rollout)


class Stuck(Beam):
    """An environment without possible actions."""

    def action_masks(self) -> Any:
        return np.zeros(3, dtype=np.bool_)


def test_what_cannot_be_collected_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"SyncVectorEnv has autoreset mode .*make it with autoreset_mode"):
        Collector(beams(1, AutoresetMode.NEXT_STEP), 1, masked=True)
    with pytest.raises(TrainingError, match="call restart first"):
        Collector(beams(1), 1, masked=True).collect(Player())
    envs = SyncVectorEnv([Beam, Stuck], autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(TrainingError, match="environment 1 leaves no action at all"):
        Collector(envs, 1, masked=True).restart([1, 2])


def test_seeds_depend_on_every_argument() -> None:
    paths = [(1, "a", 1), (1, "a", 2), (1, "b", 1), (2, "a", 1), (1, "a"), (1, "a1")]
    assert len({tuple(seeds(4, *path)) for path in paths}) == len(paths)
    assert seeds(4, 1, "a", 1) == seeds(4, 1, "a", 1)
    assert len(set(seeds(100, 1, "a"))) == 100
