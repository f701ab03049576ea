"""The environment by gymnasium's rules, its options, and the vectorized form beside single environments."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import simulator.envs
from simulator.agents.named import env_options
from simulator.errors import ClusterError, SettingError
from simulator.papers.rl_taps.env import RlTapsEnv
from simulator.papers.rl_taps.vector import RlTapsVectorEnv
from simulator.traces.generators import generate
from simulator.traces.generators.rl_taps import RLTaps
from tests.unit.simulator.envs.worlds import trace_of

SHORT = RLTaps(jobs=12)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"preemption": "never", "max_steps": 30},
        {"restart_s": 10.0, "slots": 3, "backlog": 7},
        {"traces": [trace_of((0, 2, 600), (50, 13, 60))], "cluster": "3x8", "widest": 16, "rows": 6},
    ],
)
def test_the_checker_of_gymnasium_finds_nothing(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(simulator.envs.RL_TAPS, **{"traces": SHORT, **options})
        check_env(env.unwrapped)
        env.reset(seed=3)
        for _ in range(50):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()


def test_the_paper_has_32_parts_of_11_and_about_a_million_weights() -> None:
    env = RlTapsEnv()
    assert env.action_space == gymnasium.spaces.MultiDiscrete([11] * 32)
    assert env.observation_space.shape == (10, 158)
    assert env.options.max_steps == 1000
    # "Roughly 1 million": 528 hidden units.
    assert 1580 * 528 + 528 * 352 == 1_020_096


def test_an_episode_ends_when_all_jobs_are_done_or_at_tmax() -> None:
    env = RlTapsEnv(traces=[trace_of((0, 1, 48), (96.6, 1, 48))])
    env.reset(seed=0)
    action = np.zeros(32, dtype=np.int64)
    action[0] = 1
    ends = [env.step(action) for _ in range(3)]
    assert [each[2:4] for each in ends] == [(False, False), (False, False), (True, False)]
    figures = ends[-1][4]["outcome"]
    assert figures["finished"] == 2
    assert figures["mean_slowdown"] == pytest.approx(48.301886792 / (0.9 * 48))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(action)
    env = RlTapsEnv(traces=SHORT, max_steps=2)
    env.reset(seed=0)
    env.step(action * 0)
    _, reward, terminated, truncated, info = env.step(action * 0)
    assert (terminated, truncated) == (False, True)
    assert reward < 0
    assert info["outcome"]["finished"] == 0


def test_reset_takes_traces_and_seeds_of_traces() -> None:
    env = RlTapsEnv(traces=SHORT)
    trace = generate("rl-taps", RLTaps(jobs=12, seed=5))
    env.reset(options={"trace_seed": 5})
    of_seed = env.batch.jobs[0]
    env.reset(options={"trace": trace})
    given = env.batch.jobs[0]
    assert of_seed is not None and given is not None
    assert of_seed.trace.model == given.trace.model
    with pytest.raises(SettingError, match="reset has no option"):
        env.reset(options={"seed": 5})
    with pytest.raises(SettingError, match="whole number"):
        env.reset(options={"trace": "first"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slot": 3}, "no option 'slot'"),
        ({"preemption": "partial"}, "preemption is 'partial'"),
        ({"slots": 0}, "slots is 0"),
        ({"efficiency": 1.5}, "efficiency is 1.5"),
        ({"restart_s": 60.0}, "restart_s is 60.0"),
        ({"idle_weight": -1.0}, "negative"),
        ({"slowdown": ("link-sharing",)}, "leave it out"),
        ({"traces": []}, "traces is empty"),
        ({"render_mode": "human"}, "render_mode"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        RlTapsEnv(**options)


def test_jobs_and_clusters_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingError, match="give widest=13"):
        RlTapsEnv(traces=[trace_of((0, 13, 600))]).reset()
    with pytest.raises(gymnasium.error.InvalidAction):
        env = RlTapsEnv(traces=SHORT)
        env.reset()
        env.step(np.full(32, 11))
    from simulator.cluster.cluster import cluster_of

    bcube = cluster_of({"nodes": [{"count": 4, "gpus": 1}], "network": {"kind": "bcube", "n": 2, "k": 1}})
    with pytest.raises(ClusterError, match="no tree"):
        RlTapsEnv(cluster=bcube)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("preemption", ["full", "never"])
def test_vectorized_environments_do_what_single_ones_do(mode: AutoresetMode, preemption: str) -> None:
    options: dict[str, Any] = {"traces": RLTaps(jobs=6), "max_steps": 25, "preemption": preemption}
    many: Any = gymnasium.make_vec(
        simulator.envs.RL_TAPS, num_envs=4, vectorization_mode="vector_entry_point", autoreset=mode, **options
    )
    assert isinstance(many, RlTapsVectorEnv)
    ones = [RlTapsEnv(**options) for _ in range(4)]
    seen, _ = many.reset(seed=[3, 4, 5, 3])
    assert (seen == [env.reset(seed=seed)[0] for env, seed in zip(ones, (3, 4, 5, 3), strict=True)]).all()
    rng = np.random.default_rng(1)
    over = [False] * 4
    ended = 0
    for _ in range(90):
        actions = rng.integers(0, 11, (4, 32))
        seen, rewards, terminated, truncated, infos = many.step(actions)
        for row, env in enumerate(ones):
            if over[row] and mode == AutoresetMode.NEXT_STEP:
                assert (seen[row] == env.reset()[0]).all()
                assert (rewards[row], terminated[row], truncated[row]) == (0.0, False, False)
                over[row] = False
                continue
            expected, reward, ends, is_cut, info = env.step(actions[row])
            over[row] = ends or is_cut
            ended += over[row]
            assert (rewards[row], terminated[row], truncated[row]) == (reward, ends, is_cut)
            if over[row]:
                figures = (infos["final_info"] if mode == AutoresetMode.SAME_STEP else infos)["outcome"]
                found = {name: figures[name][row] for name in info["outcome"]}
                assert found == pytest.approx(info["outcome"], nan_ok=True)
            if over[row] and mode == AutoresetMode.SAME_STEP:
                assert (infos["final_obs"][row] == expected).all()
                expected, _ = env.reset()
            assert (seen[row] == expected).all()
    assert ended >= 8


def test_equal_seeds_give_episodes_of_one_sequence() -> None:
    many = RlTapsVectorEnv(3, traces=SHORT)
    many.reset(seed=[9, 9, 9])
    models = {jobs.trace.model for jobs in many.batch.jobs if jobs is not None}
    assert len(models) == 1
    many.reset(seed=9)
    assert len({jobs.trace.model for jobs in many.batch.jobs if jobs is not None}) == 3
    with pytest.raises(SettingError, match="2 seeds for 3"):
        many.reset(seed=[1, 2])
    with pytest.raises(SettingError, match="no workers"):
        RlTapsVectorEnv(3, workers=2)


def test_every_option_can_be_given_on_the_command_line() -> None:
    texts = ["preemption=never", "reward=slowdown", "restart_s=10", "max_steps=50", "slots=5"]
    options = env_options(texts, "rl-taps:jobs=7").copy()
    env = RlTapsEnv(**options)
    env.reset(seed=0)
    assert not env.batch.is_full
    assert (env.options.reward, env.options.restart_s, env.options.max_steps, env.options.slots) == (
        "slowdown",
        10,
        50,
        5,
    )
    assert env.batch.jobs[0] is not None and len(env.batch.jobs[0]) == 7
