"""MARL's environment by gymnasium's rules: one scheduler's view, and the views of all in turn."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import simulator.envs
from simulator.errors import SettingError
from simulator.papers.marl.env import MarlEnv
from simulator.papers.marl.rules.named import RULES
from simulator.papers.marl.rules.rule import play
from simulator.papers.marl.world import World
from tests.unit.simulator.papers.marl.worlds import sequence

SMALL: dict[str, Any] = {"k": 4, "intervals": 3, "jobs_per_interval": 40.0}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"agent": 2, "others": "tetris"},
        {"single": True},
        {"schedulers": 2},
        {"forwarding": "always", "max_intervals": 4},
        {"network": "bcube", "n": 2, "k": 3},
        {"network": "vl2", "architecture": "mixed", "jobs_per_interval": 10.0},
    ],
)
def test_the_checker_of_gymnasium_finds_nothing(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env: Any = gymnasium.make(simulator.envs.MARL, **{**SMALL, **options}).unwrapped
        check_env(env)
        env.reset(seed=3)
        rng = np.random.default_rng(0)
        for _ in range(60):
            seen, _, terminated, truncated, _ = env.step(np.int64(rng.choice(np.flatnonzero(env.action_masks()))))
            assert env.observation_space.contains(seen)
            if terminated or truncated:
                env.reset()


def played(env: MarlEnv, rule: str, seed: int) -> tuple[float, list[float], dict[str, float]]:
    """Let a rule act in the environment for an episode; return its rewards and figures."""
    env.reset(seed=seed, options={"trace_seed": seed})
    acts = RULES[rule]()
    acts.begin(env.world, 0)
    total, of_actions, over, steps = 0.0, [], False, 0
    info: dict[str, Any] = {}
    while not over:
        _, reward, terminated, truncated, info = env.step(np.int64(acts.act(env.turn)))
        total += reward
        steps += 1
        of_actions += info.get("action_rewards", [])
        over = terminated or truncated
    assert len(of_actions) == steps
    return total, of_actions, info["outcome"]


def test_views_in_turn_are_the_world_that_the_rule_plays() -> None:
    env = MarlEnv(**SMALL)
    total, _, figures = played(env, "contention-greedy", 5)
    jobs = env.world.jobs
    world = World(env.options, env.world.center)
    play(world, jobs, RULES["contention-greedy"](), 0)
    assert world.finish_s.tolist() == env.world.finish_s.tolist()
    assert total == pytest.approx(len(jobs))
    assert figures["invalid_actions"] == 0


def test_the_rewards_of_one_scheduler_are_those_of_its_jobs() -> None:
    env = MarlEnv(**SMALL, agent=1, others="tetris")
    total, of_actions, _ = played(env, "tetris", 5)
    its = env.world.jobs.scheduler == 1
    assert total == pytest.approx(its.sum())
    assert len(of_actions) == env.world.jobs.tasks[its].sum() + env.world.forwarded


def test_the_state_shows_jobs_tasks_and_loads() -> None:
    trace = sequence((0, 2, 5e6), (2000, 1, 500), servers=[1, 2], models=["vgg-16", "wlm"], schedulers=[1, 1])
    env = MarlEnv(k=4, traces=[trace])
    seen, _ = env.reset(seed=0)
    assert seen["scheduler"].tolist() == [0, 1, 0, 0]
    assert seen["groups"].shape == (4, 8, 2 + 2 * 8)
    assert (seen["groups"][:, :, 0] == 2 / 8).all() and (seen["groups"][:, :, 1] == 16 / 32).all()
    vgg = np.zeros(14, dtype=np.float32)
    vgg[1] = 1.0
    vgg[8:] = [2 / 8, 1 / 8, 6 / 32, 1 / 8, 0, 2 / 32]
    assert seen["task"][1] == pytest.approx(np.array([0.0, *vgg]))
    assert (seen["task"][0] == 0).all()
    assert seen["jobs"][1, 0] == pytest.approx(vgg)
    for action in (0, 0, 2):
        seen, *_ = env.step(np.int64(action))
    # The first job runs; the second is the task.
    assert seen["groups"][1, 0].tolist() == [0.0, pytest.approx(4 / 32), 2 / 8, *([0.0] * 15)]
    assert seen["groups"][1, 2, 3] == 1 / 8
    assert seen["task"][1, 8] == 1.0  # wlm
    inner = env.layout.inner
    used = {tuple(inner.ends[edge].tolist()): load for edge, load in enumerate(seen["links"][1].tolist()) if load > 0}
    # Groups 0 to 7, CPUs 8 to 15, edge switches 16 and 17, the aggregation switch 18. Two pairs over two NICs of 1.25 GB/s.
    pcie = used.pop((0, 8))
    assert pcie == pytest.approx(2 * env.options.profiles.of("vgg-16").pcie)
    assert set(used) == {(8, 16), (9, 16), (10, 16), (11, 16)} or set(used) == {(8, 16), (10, 16)}
    assert list(used.values()) == pytest.approx([(2 / 1.25) / (1 + 2 / 1.25)] * len(used))
    assert (seen["inter"] == 0).all()


def test_graphs_have_the_nodes_of_the_paper() -> None:
    env = MarlEnv(traces=[sequence((0, 1, 10), servers=[1])])
    inner, inter = env.layout.inner, env.layout.inter
    # 200 groups, 200 CPUs, 10 edge switches and the fused aggregation switches.
    assert inner.nodes == 200 + 200 + 10 + 1
    assert inter.nodes == 20 + 1
    assert env.layout.actions == 200 + 20
    assert inner.edges == 200 + 100 + 200 + 10
    bcube = MarlEnv(network="bcube", n=4, k=2, traces=[sequence((0, 1, 10), servers=[1])]).layout
    # 32 servers of two groups; 8 switches of level 0 and 8 of level 1; level 2 is between the schedulers.
    assert (bcube.schedulers, bcube.inner.nodes, bcube.inter.nodes) == (2, 64 + 64 + 16, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agents": 3}, "no option 'agents'"),
        ({"agent": 4}, "schedulers are 0 to 3"),
        ({"others": "magic"}, "others is 'magic'"),
        ({"render_mode": "human"}, "render_mode"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        MarlEnv(**{"k": 4, **options})


def test_reset_and_step_refuse_what_they_do_not_know() -> None:
    env = MarlEnv(**SMALL)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))
    with pytest.raises(SettingError, match="reset has no option"):
        env.reset(options={"seed": 1})
    with pytest.raises(SettingError, match="whole number"):
        env.reset(options={"trace": "first"})
    env.reset(seed=1)
    with pytest.raises(gymnasium.error.InvalidAction):
        env.step(np.int64(99))


def test_environments_in_processes_do_what_single_ones_do() -> None:
    many: Any = gymnasium.make_vec(
        simulator.envs.MARL, num_envs=2, vectorization_mode="vector_entry_point", workers=1, **SMALL
    )
    try:
        seen, _ = many.reset(seed=[3, 4])
        ones = [MarlEnv(**SMALL) for _ in range(2)]
        expected = [env.reset(seed=seed)[0] for env, seed in zip(ones, (3, 4), strict=True)]
        for _ in range(20):
            for name, cells in seen.items():
                assert (cells == np.stack([each[name] for each in expected])).all()
            masks = many.action_masks()
            assert (masks == np.stack([env.action_masks() for env in ones])).all()
            actions = masks.argmax(1)
            seen, rewards, *_ = many.step(actions)
            stepped = [env.step(action) for env, action in zip(ones, actions, strict=True)]
            expected = [each[0] for each in stepped]
            assert rewards.tolist() == [each[1] for each in stepped]
    finally:
        many.close()


def test_advice_is_what_the_rule_would_do() -> None:
    env = MarlEnv(**SMALL, others="contention-greedy")
    env.reset(seed=5)
    rule = RULES["contention-greedy"]()
    rule.begin(env.world, 0)
    over = False
    while not over:
        advice = env.advice()
        assert np.isfinite(advice).any() and not np.isfinite(advice[~env.action_masks()]).any()
        assert int(advice.argmin()) == rule.act(env.turn)
        _, _, terminated, truncated, _ = env.step(np.int64(advice.argmin()))
        over = terminated or truncated
    assert (env.advice() == 0.0).all()


def test_types_show_the_tasks_of_the_job_and_those_of_others_by_model() -> None:
    env = MarlEnv(**SMALL, shows="types")
    rng = np.random.default_rng(0)
    seen, _ = env.reset(seed=1)
    over, found = False, 0
    while not over:
        world, scheduler = env.world, env.turn
        task, groups = world.head(scheduler), world.center.groups_of(scheduler)
        assert task is not None and "jobs" not in seen
        cells, placed = seen["groups"][scheduler] * 8, world.placed.group
        is_worker, inside = world.jobs.is_worker, (placed >= groups.start) & (placed < groups.stop)
        own = np.arange(len(placed))[:, None] == task.job
        sums = [(inside & own & is_worker).sum(), (inside & own & ~is_worker).sum()]
        sums += [(inside & ~own & is_worker).sum(), (inside & ~own & ~is_worker).sum()]
        assert np.allclose([*cells[:, 2:4].sum(0), cells[:, 4:12].sum(), cells[:, 12:].sum()], sums, atol=1e-4)
        found += sums[0] > 0
        seen, _, terminated, truncated, _ = env.step(np.int64(rng.choice(np.flatnonzero(env.action_masks()))))
        over = terminated or truncated
    assert found


def test_a_training_gives_the_same_data_center_or_none() -> None:
    env = MarlEnv(**SMALL)
    MarlEnv(**SMALL, cluster=env.world.center.cluster)
    with pytest.raises(SettingError, match="leave --cluster out"):
        MarlEnv(**{**SMALL, "k": 6}, cluster=env.world.center.cluster)
    with pytest.raises(SettingError, match="leave --slowdown out"):
        MarlEnv(**SMALL, slowdown=("locality",))


def test_the_reward_of_speeds_does_not_depend_on_the_length_of_jobs() -> None:
    env = MarlEnv(**SMALL, reward="speed", others="lookahead-greedy")
    env.reset(seed=5)
    over, rewards = False, []
    while not over:
        decided = env.world.head(env.turn)
        assert decided is not None
        _, _, terminated, truncated, info = env.step(np.int64(env.advice().argmin()))
        rewards += info.get("action_rewards", [])
        over = terminated or truncated
    assert max(rewards) == 1.0
    assert min(rewards) > 0.3
