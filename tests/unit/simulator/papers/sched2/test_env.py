"""SCHED2's environment: states, masks, rewards and placements, by hand and against the engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import simulator.envs
from policies.learned.sched2.state.feature_columns import OF_JOB, FeatureColumns
from policies.learned.sched2.state.features import Features
from policies.learned.sched2.state.first_rule import first_rule
from policies.learned.sched2.state.state_columns import JOB_NUMBERS, StateColumns
from simulator.cluster.cluster import cluster_of
from simulator.engine.settings import Estimates, NodeChange, Settings
from simulator.envs.base import Mask
from simulator.envs.vector import ProcessVectorEnv
from simulator.errors import SettingError, TraceError
from simulator.papers.sched2.baselines import KEYS, Baseline
from simulator.papers.sched2.dry_runs import DryRuns
from simulator.papers.sched2.env import Sched2Env
from simulator.results.result import Result
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.sched2 import Sched2
from simulator.traces.trace import Trace
from tests.unit.policies.learned.sched2.agents import rule_actions
from tests.unit.simulator.envs.worlds import Crowd, trace_of, trail

Agent = Callable[[Sched2Env], int]
BUSY = Sched2(jobs=120, mean_gap_s=400.0, cluster_gpus=32)
RACKS = {
    "nodes": [{"count": 3, "gpus": 8, "rack": "a"}, {"count": 2, "gpus": 4, "rack": "b"}],
    "network": {"kind": "racks", "nic_gbs": 12.5, "uplink_gbs": 25.0},
}
FAILURES = tuple(NodeChange(time, node, change) for time, node, change in [
    (9_000.0, 0, "down"), (9_500.0, 3, "drain"), (15_000.0, 0, "up"), (20_000.0, 3, "up"), (21_000.0, 1, "down"),
    (30_000.0, 1, "up"),
])  # fmt: skip


def random_agent(seed: int, wait_share: float = 0.3) -> Agent:
    """Any possible action; a part of the choices is void."""
    rng = np.random.default_rng(seed)

    def act(env: Sched2Env) -> int:
        possible = np.flatnonzero(env.action_masks())
        return 0 if possible[0] == 0 and rng.random() < wait_share else int(rng.choice(possible))

    return act


def first_that_fits(env: Sched2Env) -> int:
    mask = env.action_masks()
    return int(mask[1:].argmax()) + 1 if mask[1:].any() else 0


def play(env: Sched2Env, agent: Agent, look: Callable[[], None] = lambda: None, **reset: Any) -> tuple[Any, float]:
    """One episode: its outcome, and the sum of rewards."""
    env.reset(**reset)
    total = 0.0
    while True:
        look()
        _, reward, terminated, truncated, info = env.step(np.int64(agent(env)))
        total += reward
        if terminated or truncated:
            return info["outcome"], total


def tiny(*jobs: tuple[float, int, float], models: str = "vgg16", **options: Any) -> Sched2Env:
    trace = trace_of(*jobs, models=[models] * len(jobs))
    return Sched2Env(traces=[trace], **{"cluster": "2x4", "candidates": 2, **options})


# States


def test_the_sizes_of_table_i() -> None:
    env = Sched2Env()
    assert env.observation_space.shape == (15 * 8 + (4 + 2) * 10 + 4,)
    assert env.action_space == gymnasium.spaces.Discrete(11)
    assert env.columns == StateColumns(15, 8, 10)
    states = np.arange(3 * env.columns.size, dtype=np.float32).reshape(3, -1)
    gpus, jobs, rest = env.columns.split(states)
    assert (gpus.shape, jobs.shape, rest.shape) == ((3, 15, 8), (3, 10, JOB_NUMBERS), (3, 4))
    assert np.array_equal(np.concatenate([each.reshape(3, -1) for each in (gpus, jobs, rest)], axis=1), states)


def test_a_state_by_hand() -> None:
    env = tiny((0, 2, 7200), (0, 4, 3600), (0, 1, 3600), (0, 3, 10800), (1800, 8, 3600))
    seen, _ = env.reset()
    gpus, jobs, rest = env.columns.split(seen)
    assert not gpus.any()
    # VGG16 on 1 node, and on 2, 3, 4 of them (there are 2): 5.9 times as long. 2 and 4 GPUs of nodes of 4.
    assert np.allclose(jobs, [[2, 11.8, 11.8, 11.8, 0.5, 0], [1, 5.9, 5.9, 5.9, 1, 0]])
    # One of 1 GPU and one of 3, which take 1 and 3 hours.
    assert np.allclose(rest, [2 / 2, (1 + 3) / 2 / 4, 2, 0])
    seen, reward, *_ = env.step(np.int64(1))
    assert reward == 1.0
    gpus, jobs, rest = env.columns.split(seen)
    assert np.allclose(gpus, [[0, 0, 2, 2], [0, 0, 0, 0]])
    assert np.allclose(jobs[:, 4], [1, 0.25])
    seen, *_ = env.step(np.int64(2))
    # The job of 1 GPU goes where it fits best; the next one was 3rd of those that wait.
    gpus, jobs, rest = env.columns.split(seen)
    assert np.allclose(gpus, [[0, 1, 2, 2], [0, 0, 0, 0]])
    assert np.allclose(jobs[:, 4], [1, 0.75])
    assert not rest.any()
    seen, *_ = env.step(np.int64(0))
    # The arrival of the last one, half an hour later.
    gpus, jobs, rest = env.columns.split(seen)
    assert np.allclose(gpus, [[0, 0.5, 1.5, 1.5], [0, 0, 0, 0]])
    assert np.allclose(jobs[:, 5], [0.5, 0.5])
    assert np.allclose(rest, [1 / 2, 8 / 4, 1, 0])


def test_a_job_that_is_scattered_by_hand() -> None:
    env = tiny((0, 3, 7200), (0, 3, 7200), (0, 2, 3600))
    env.reset()
    env.step(np.int64(1))
    env.step(np.int64(1))
    seen, reward, *_ = env.step(np.int64(1))
    gpus, _, _ = env.columns.split(seen)
    assert env.simulation.now_s == 5.9 * 3600, "the engine went on to the end: no job waits"
    assert reward == pytest.approx(1 / 5.9)
    assert not gpus.any()


@pytest.mark.parametrize("changes", [(), FAILURES])
@pytest.mark.parametrize("slowdown", [("locality",), ("locality", "max-min")])
def test_states_agree_with_the_engine(changes: tuple[NodeChange, ...], slowdown: tuple[str, ...]) -> None:
    settings = Settings(changes=changes, checkpoint_interval_s=1000)
    env = Sched2Env(traces=BUSY, cluster="4x8", settings=settings, slowdown=slowdown, candidates=4)
    seen_rest = []

    def look() -> None:
        seen = env._observe()
        assert seen in env.observation_space
        gpus, jobs, rest = env.columns.split(seen)
        active = env.simulation.jobs()
        waiting = [job for job in active if not job.occupied]
        assert list(env.candidates) == waiting[:4]
        assert np.allclose(gpus, expected_gpus(env), rtol=1e-5)
        for row, job in enumerate(waiting[:4]):
            assert jobs[row, 0] == pytest.approx(job.remaining() / 3.6e12)
            assert jobs[row, 4:].tolist() == pytest.approx([job.gpus / 8, job.wait / 3.6e12])
        assert not jobs[len(waiting) :].any()
        others = waiting[4:]
        table = np.array([(job.gpus / 8, job.remaining() / 3.6e12, job.wait / 3.6e12) for job in others]).reshape(-1, 3)
        means = table.mean(axis=0) if others else np.zeros(3)
        assert np.allclose(rest, [len(others) / 4, *means], rtol=1e-5)
        seen_rest.append(len(others))

    outcome, total = play(env, random_agent(1), look, seed=3)
    assert outcome["finished"] == 120
    assert max(seen_rest) > 10
    assert total / 120 == pytest.approx(outcome["effectiveness"], abs=1e-12)
    if changes:
        assert Result.of(env.simulation, "agent", 0.0).failures.sum() > 3


def expected_gpus(env: Sched2Env) -> list[list[float]]:
    """Compute the hours from the running jobs."""
    loop, table = env.loop, []
    for node in range(4):
        occupied = [
            (job.finish - loop.now) / 3.6e12
            for job in loop.running
            for where, count in zip(job.nodes, job.counts, strict=True)
            if where == node
            for _ in range(count)
        ]
        free = 0.0 if loop.pool.up[node] else -1.0
        table.append(sorted([free] * (8 - len(occupied)) + occupied))
    return table


def test_nodes_with_fewer_gpus_show_the_missing_ones() -> None:
    env = Sched2Env(traces=[trace_of((0, 8, 60))], cluster=cluster_of(RACKS))
    seen, _ = env.reset()
    gpus, _, _ = env.columns.split(seen)
    assert gpus[3].tolist() == [-1] * 4 + [0] * 4
    assert seen in env.observation_space


# Dry runs


def test_dry_runs_from_concentrated_to_scattered() -> None:
    cluster = cluster_of(RACKS)
    asked: list[tuple[int, ...]] = []

    class Asked(Crowd):
        def enter(self, resident: Any) -> None:
            super().enter(resident)
            asked.append(tuple(resident.nodes))
            assert sum(resident.counts) == resident.requested_gpus
            assert max(resident.counts) - min(resident.counts) <= 1

    runs = DryRuns(cluster.topology, [Asked()])
    assert runs.times("vgg16", -1, 8) == (1, 1, 1, 1)
    # One node, two, three of the largest rack; all five, racks in turn.
    assert asked == [(0,), (0, 1), (0, 1, 2), (0, 3, 1, 4, 2)]
    assert runs.times("vgg16", -1, 8) == (1, 1, 1, 1)
    assert len(asked) == 4
    asked.clear()
    runs.times("vgg16", -1, 2)
    # Two GPUs are on two nodes at most; apart, those are in two racks.
    assert asked == [(0,), (0, 1), (0, 1), (0, 3)]
    asked.clear()
    runs.times("vgg16", -1, 16)
    assert asked[:3] == [(0, 1), (0, 1, 2), (0, 1, 2, 3)]
    assert len(asked[3]) == 5


def test_dry_runs_give_the_times_of_real_runs() -> None:
    cluster = cluster_of(RACKS)
    models = build(["locality"], topology=cluster.topology, profiles=paper_profiles("sched2"))
    runs = DryRuns(cluster.topology, models)
    assert runs.times("transformer", 64, 1) == (1, 1, 1, 1)
    assert runs.times("transformer", 64, 4) == pytest.approx((1, 2.7, 2.7, 1 + 1.2 * 1.7))
    # 16 GPUs need two nodes at best; a third one costs nothing in the paper's curve, another rack does.
    apart = (1 + 1.2 * 1.7) / 2.7
    assert runs.times("transformer", 64, 16) == pytest.approx((1, 1, apart, apart))
    # A model that was not measured has a profile as well.
    assert runs.times("unknown-model", 64, 4)[3] > 1


# Actions


def test_masks_are_the_jobs_that_fit() -> None:
    env = Sched2Env(traces=BUSY, cluster="4x8", settings=Settings(record=True, changes=FAILURES))
    kinds = set()

    def look() -> None:
        mask = env.action_masks()
        free = sum(free for free, up in zip(env.loop.pool.free, env.loop.pool.up, strict=True) if up)
        fits = [job.gpus <= free for job in env.candidates]
        assert mask[1:].tolist() == fits + [False] * (10 - len(fits))
        assert mask[0] == (bool(env.loop.running) or not any(fits))
        kinds.add((bool(mask[0]), all(fits), len(fits) == 10))

    play(env, random_agent(4), look, seed=2)
    assert {first for first, _, _ in kinds} == {True, False}
    assert {second for _, second, _ in kinds} == {True, False}


def test_a_masked_action_is_void() -> None:
    env = tiny((0, 8, 3600), (0, 8, 3600), (600, 1, 60), skip_forced=False)
    env.reset()
    _, reward, *_ = env.step(np.int64(0))
    # Void was masked, for nothing runs; time goes on all the same.
    assert (reward, env.simulation.now_s) == (0.0, 600)
    env.step(np.int64(1))
    assert env.action_masks().tolist() == [True, False, False]
    _, reward, *_ = env.step(np.int64(1))
    assert (reward, env.simulation.now_s) == (0.0, 4200)
    with pytest.raises(gymnasium.error.InvalidAction):
        env.step(np.int64(3))
    assert env.step(np.int64(2))[1] == 60 / 3660
    assert env.action_masks().tolist() == [True, False, False]
    env.step(np.int64(2))
    *_, info = env.step(np.int64(1))
    assert info["outcome"]["invalid_actions"] == 3
    assert play(env, first_that_fits)[0]["invalid_actions"] == 0


def test_with_skip_forced_false_the_agent_is_asked_at_every_decision() -> None:
    asked = {}
    for skip in (True, False):
        env = Sched2Env(traces=BUSY, cluster="4x8", skip_forced=skip)
        outcome, total = play(env, first_that_fits, seed=1)
        asked[skip] = outcome["steps"], total, outcome["avg_jct_s"]
    assert asked[True][0] < asked[False][0]
    assert asked[True][1:] == asked[False][1:]


@pytest.mark.parametrize("name", ["sif", "lrf", "spf", "fifo"])
def test_an_agent_that_chooses_like_a_baseline_gives_its_results(name: str) -> None:
    def act(env: Sched2Env) -> int:
        mask = env.action_masks()
        if name == "fifo":
            return int(mask[1])
        fitting = [(KEYS[name](job), place) for place, job in enumerate(env.candidates, start=1) if mask[place]]
        return min(fitting)[1] if fitting else 0

    env = Sched2Env(traces=BUSY, cluster="4x8")
    outcome, _ = play(env, act, seed=6)
    models = build(["locality"], topology=env.cluster.topology, profiles=paper_profiles("sched2"))
    straight = Result.of(Baseline(name, env.trace, env.cluster, models, window=10).run(), name, 0.0)
    by_env = Result.of(env.simulation, "agent", 0.0)
    assert by_env.finish_ns.tolist() == straight.finish_ns.tolist()
    assert by_env.nodes() == straight.nodes()
    assert outcome["avg_wait_s"] > 1000


# Rewards


@pytest.mark.parametrize("seed", range(3))
def test_rewards_add_up_to_effectiveness_as_each_job_starts(seed: int) -> None:
    env = Sched2Env(traces=BUSY, cluster="4x8")
    rewards: list[float] = []
    env.reset(seed=seed)
    agent, over = random_agent(seed), False
    while not over:
        started = {job.index for job in env.loop.running} | set(env.simulation.finished.index)
        action = agent(env)
        chosen = env.candidates[action - 1] if action else None
        _, reward, over, _, info = env.step(np.int64(action))
        if chosen is None:
            assert reward == 0.0
        else:
            assert chosen.index not in started
            assert 0 < reward <= 1
            rewards.append(reward)
    assert len(rewards) == 120
    assert sum(rewards) / 120 == pytest.approx(info["outcome"]["effectiveness"], rel=1e-12)


@pytest.mark.parametrize("slowdown", [[Crowd()], ["locality", "link-sharing"]])
def test_later_changes_are_rewarded_later(slowdown: list[str | SlowdownModel]) -> None:
    workload = Sched2(jobs=40, mean_gap_s=4000.0, cluster_gpus=32)
    env = Sched2Env(traces=workload, cluster="4x8", slowdown=slowdown)
    outcome, total = play(env, random_agent(2), seed=9)
    assert total / 40 == pytest.approx(outcome["effectiveness"], abs=1e-12)


def test_jct_rewards_add_up_to_the_average_jct() -> None:
    env = Sched2Env(traces=BUSY, cluster="4x8", reward="jct")
    outcome, total = play(env, random_agent(1), seed=5)
    assert total == pytest.approx(-outcome["avg_jct_s"] / 300)


def test_an_agent_that_waits_for_ever_is_cut_off() -> None:
    env = tiny((0, 1, 60), (0, 1, 60), max_steps=7)
    outcome, total = play(env, lambda _: 0)
    assert (outcome["steps"], outcome["finished"], total, outcome["invalid_actions"]) == (7, 0, 0.0, 7)
    assert np.isnan(outcome["effectiveness"])


# Fragmentation


def test_fragmentation_is_reported_and_drawn() -> None:
    env = Sched2Env(traces=BUSY, cluster="4x8")
    outcome, _ = play(env, random_agent(1), seed=5)
    assert 0.05 < outcome["fragmentation"] < 0.9
    timeline = env.timeline(50)
    assert timeline.fragmentation.mean() == pytest.approx(outcome["fragmentation"])
    # What waiting jobs want, integrated, is what they waited times their GPUs.
    result = Result.of(env.simulation, "agent", 0.0)
    wanted = float((result.wait_ns / 1e9 * result.num_gpus).sum())
    assert timeline.required_gpus.sum() * outcome["makespan_s"] / 50 == pytest.approx(wanted)
    silent = Sched2Env(traces=BUSY, cluster="4x8", settings=Settings())
    assert np.isnan(play(silent, first_that_fits)[0]["fragmentation"])
    assert env.fewest_nodes(16) == 2


# Gymnasium


def test_it_is_a_gymnasium_environment() -> None:
    env = gymnasium.make(simulator.envs.SCHED2, traces=BUSY, cluster="4x8", disable_env_checker=True)
    check_env(env.unwrapped, skip_render_check=True)


def test_the_same_seed_gives_the_same_episodes() -> None:
    first, again, other = (Sched2Env(traces=BUSY, cluster="4x8") for _ in range(3))
    other.reset(seed=5)
    assert trail(first, random_agent(9)) == trail(again, random_agent(9))
    assert not first.trace.same_jobs(other.trace)


MAKE = partial(Sched2Env, traces=Sched2(jobs=12, mean_gap_s=600.0, cluster_gpus=16), cluster="2x8", candidates=4)


def test_in_processes_they_do_what_single_environments_do() -> None:
    singles = [MAKE() for _ in range(3)]
    envs = ProcessVectorEnv(MAKE, 3, workers=2)
    try:
        seen, _ = envs.reset(seed=20)
        assert np.array_equal(seen, [env.reset(seed=20 + row)[0] for row, env in enumerate(singles)])
        ended, episodes = [False] * 3, 0
        for turn in range(120):
            masks: Mask = envs.action_masks()
            assert np.array_equal(masks, [env.action_masks() for env in singles])
            actions = [int(np.flatnonzero(mask)[turn % mask.sum()]) for mask in masks]
            seen, rewards, terminated, _, infos = envs.step(np.array(actions))
            for row, env in enumerate(singles):
                if ended[row]:
                    assert np.array_equal(seen[row], env.reset()[0])
                    ended[row] = False
                    continue
                state, reward, ended[row], _, info = env.step(np.int64(actions[row]))
                assert np.array_equal(seen[row], state)
                assert (rewards[row], terminated[row]) == (reward, ended[row])
                if ended[row]:
                    episodes += 1
                    assert infos["outcome"]["effectiveness"][row] == info["outcome"]["effectiveness"]
        assert episodes > 3
    finally:
        envs.close()


WORLDS: list[dict[str, Any]] = [
    {"traces": BUSY, "cluster": "4x8"},
    {"traces": BUSY, "cluster": "4x8", "window": "widest"},
    {"traces": BUSY, "cluster": cluster_of(RACKS), "candidates": 3},
    {"traces": BUSY, "cluster": "4x8", "settings": Settings(changes=FAILURES, record=True)},
    {"traces": BUSY, "cluster": "4x8", "slowdown": ("locality", Crowd())},
    {"traces": BUSY, "cluster": "4x8", "max_steps": 40},
]


@pytest.mark.parametrize("world", WORLDS)
def test_an_episode_played_is_one_stepped_through(world: dict[str, Any]) -> None:
    played, stepped = Sched2Env(**world), Sched2Env(**world)
    rules = first_rule() + 0.8 * np.random.default_rng(4).standard_normal((3, OF_JOB))
    outcomes = played.play(rules, [11, 12])
    features = Features(stepped.columns)
    begin, end, _ = FeatureColumns(stepped.columns).parts
    for seed, of_seed in zip((11, 12), outcomes, strict=True):
        for rule, outcome in zip(rules, of_seed, strict=True):
            seen, _ = stepped.reset(seed=seed)
            over = False
            while not over:
                own = features.rows(seen[None])[:, begin:end].reshape(1, -1, OF_JOB)
                [action] = rule_actions(rule[None], own, stepped.action_masks()[None])
                seen, _, terminated, truncated, info = stepped.step(action)
                over = terminated or truncated
            assert {**info["outcome"]} == pytest.approx(outcome, nan_ok=True)
            assert (outcome["finished"] == outcome["jobs"]) == terminated
    assert len({outcome["avg_jct_s"] for of_seed in outcomes for outcome in of_seed}) > 2 or "max_steps" in world


def test_each_environment_plays_the_trace_it_was_given() -> None:
    rules = first_rule() + np.random.default_rng(4).standard_normal((2, OF_JOB))
    alone = MAKE().play(rules, [3, 4, 5])
    envs = ProcessVectorEnv(MAKE, 2, workers=2)
    try:
        first, second = envs.call_each("play", [(rules, [3, 4]), (rules[:1], [5])])
        with pytest.raises(SettingError, match="arguments for 1 of 2 environments; give arguments for each"):
            envs.call_each("play", [(rules, [3])])
    finally:
        envs.close()
    assert [[outcome["avg_jct_s"] for outcome in of_seed] for of_seed in (*first, *second)] == [
        [outcome["avg_jct_s"] for outcome in of_seed] for of_seed in (*alone[:2], alone[2][:1])
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"reward": "money"}, "reward is 'money'; give one of effectiveness, completions, jct"),
        ({"colour": 1}, "there is no option 'colour'; the options are traces, cluster"),
        ({"candidates": 0}, "candidates is 0"),
        ({"render_mode": "human"}, "draws nothing"),
        ({"settings": Settings(estimates=Estimates("noisy", 0.2))}, "estimates are noisy; this environment shows true"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        Sched2Env(**options)


def test_a_job_that_can_never_be_placed_is_refused_at_reset() -> None:
    trace: Trace = trace_of((0, 9, 60))
    with pytest.raises(TraceError, match="9 GPUs"):
        Sched2Env(traces=[trace], cluster="2x4").reset()


def test_completions_are_discounted_by_their_time() -> None:
    env = tiny((0, 3, 7200), (0, 3, 7200), (0, 2, 3600), reward="completions", horizon_h=2.0, round_s=3600.0)
    env.reset()
    first = env.step(np.int64(1))
    second = env.step(np.int64(1))
    third = env.step(np.int64(1))
    assert [step[1] for step in (first, second, third)] == pytest.approx([np.exp(-1), np.exp(-1), np.exp(-5.9 / 2)])
    assert [step[4]["elapsed"] for step in (first, second, third)] == pytest.approx([0, 0, 5.9])


def test_discounted_completions_add_up_to_the_discounted_ends_of_all_jobs() -> None:
    env = Sched2Env(traces=BUSY, cluster="4x8", reward="completions", horizon_h=3.0, round_s=3600.0)
    agent, over, now, total = random_agent(5), False, 0.0, 0.0
    env.reset(seed=2)
    begun = env.loop.now
    while not over:
        _, reward, over, _, info = env.step(np.int64(agent(env)))
        total += np.exp(-now / 3.0) * reward
        now += info["elapsed"]
    ends = (Result.of(env.simulation, "agent", 0.0).finish_ns - begun) / 3.6e12
    assert total == pytest.approx(np.exp(-ends / 3.0).sum())


def test_discounted_completions_add_up_where_jobs_slow_each_other_down() -> None:
    env = Sched2Env(
        traces=BUSY,
        cluster="4x8",
        slowdown=["locality", "link-sharing"],
        reward="completions",
        horizon_h=3.0,
        round_s=3600.0,
    )
    agent, over, now, total = random_agent(5), False, 0.0, 0.0
    env.reset(seed=2)
    begun, expected = env.loop.now, {}
    while not over:
        _, reward, over, _, info = env.step(np.int64(agent(env)))
        total += np.exp(-now / 3.0) * reward
        now += info["elapsed"]
        for job in env.loop.running:
            expected.setdefault(job.index, set()).add(job.speed)
    ends = (Result.of(env.simulation, "agent", 0.0).finish_ns - begun) / 3.6e12
    assert any(len(speeds) > 1 for speeds in expected.values()), "no speed changed, so nothing was tested"
    assert total == pytest.approx(np.exp(-ends / 3.0).sum())


def test_the_widest_window_shows_the_shortest_of_each_size() -> None:
    jobs = (0, 2, 500), (0, 1, 900), (0, 2, 400), (0, 4, 800), (0, 1, 700), (0, 2, 300)
    env = tiny(*jobs, window="widest", candidates=4)
    env.reset()
    assert [job.index for job in env.candidates] == [4, 5, 3, 1]
    env.step(np.int64(2))
    assert [job.index for job in env.candidates] == [4, 2, 3, 1]
    _, _, rest = env.columns.split(env._observe())
    assert rest[:2].tolist() == pytest.approx([1 / 4, 2 / 4])
