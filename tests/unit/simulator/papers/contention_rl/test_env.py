"""The contention environment: observations, masks and rewards, by hand where that is possible."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import simulator.envs
from policies.learned.contention_rl.features import scalar
from simulator.engine.settings import NodeChange, Settings
from simulator.errors import SettingError, SlowdownError, TraceError
from simulator.papers.contention_rl.env import BRANCHES, ContentionEnv
from simulator.papers.contention_rl.features import JobFeatures
from simulator.slowdown.profiles.model_profiles import ModelProfile
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.contention_rl import ContentionRL
from tests.unit.simulator.envs.worlds import Crowd, first_action, play, random_agent, trace_of

WORLDS: list[dict[str, Any]] = [
    {},
    {"cells": "features", "nodes": "rules"},
    {"split": "packed", "decide": "events", "slowdown": ("locality", "max-min")},
    {"nodes": "rules", "split": "packed", "skip_forced": True, "reward": "jct"},
    {"traces": ContentionRL(arrivals="poisson", load=0.9), "preempt_below": 0.6, "slowdown": ("max-min",)},
    {"settings": Settings(changes=(NodeChange(400, 1, "down"),))},
]


@pytest.mark.parametrize("options", WORLDS)
def test_the_checker_of_gymnasium_finds_nothing(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(simulator.envs.CONTENTION, **options)
        check_env(env.unwrapped)
        env.reset(seed=3)
        for _ in range(50):
            env.step(env.action_space.sample())


def test_an_agent_sees_which_job_is_on_which_gpu_and_how_candidates_can_be_spread() -> None:
    trace = trace_of((0, 2, 600), (0, 4, 600), (0, 2, 600), (0, 3, 600), models=["FSDP", "MoE", "DLRM", "GraphSage"])
    env = ContentionEnv(traces=[trace], cluster="2x4", candidates=3)
    features = JobFeatures(paper_profiles("contention-rl"), env.cluster.topology)
    fsdp, moe, dlrm, gnn = (scalar(features.of(model)) for model in trace.model)
    seen, _ = env.reset()
    # Right half: FSDP is 1 x 2 or 2 x 1, MoE 1 x 4 or 2 x 2, GraphSage 1 x 3; its 2 x 2 (2 + 1) belongs to MoE, which comes first.
    free = [0.0] * 4
    expected = [[*free, 0, fsdp, gnn, moe], [*free, fsdp, moe, 0, 0]]
    assert seen.tolist() == np.array(expected, dtype=np.float32).tolist()
    # The lists of two nodes are (0), (1), (0, 1): the first candidate on node 1, then the second on both.
    seen, reward, *_ = env.step(np.int64(1 + 1))
    # DLRM, the next of two GPUs, stands behind MoE now, and still before GraphSage.
    assert [job.index for job in env.candidates] == [1, 2, 3]
    seen, *_ = env.step(np.int64(1 + 2))
    expected = [[moe, moe, 0, 0, 0, dlrm, gnn, 0], [fsdp, fsdp, moe, moe, dlrm, gnn, 0, 0]]
    assert seen.tolist() == np.array(expected, dtype=np.float32).tolist()
    assert reward == 0.0
    assert [(job.index, job.nodes, job.counts) for job in env.loop.running] == [(0, [1], [2]), (1, [0, 1], [2, 2])]


def test_cells_may_hold_features() -> None:
    trace = trace_of((0, 2, 600), (0, 1, 600), (0, 1, 600), models=["FSDP", "MoE", "FSDP"])
    env = ContentionEnv(traces=[trace], cluster="2x2", cells="features")
    env.reset()
    features = JobFeatures(paper_profiles("contention-rl"), env.cluster.topology)
    # Two GPUs over both nodes, one of two nodes elsewhere; then a job on one node.
    env.step(np.int64(1 + 2))
    seen, *_ = env.step(np.int64(1))
    spread = [1.0, *features.of("FSDP"), 0.5]
    alone = [1.0, *features.of("MoE"), 0.0]
    assert seen.shape == (2, 4, 5)
    assert seen[:, 0].tolist() == np.array([spread, spread], dtype=np.float32).tolist()
    assert seen[0, 1].tolist() == np.array(alone, dtype=np.float32).tolist()
    assert not seen[1, 1].any()
    # The first candidate of three: its place in the queue is in the first number.
    assert seen[0, 2].tolist() == np.array([1.0, *features.of("FSDP"), 0.0], dtype=np.float32).tolist()


def test_a_new_model_has_a_place_among_the_others() -> None:
    profiles = paper_profiles("contention-rl").with_models({"NewNet": ModelProfile(compute_s=0.1, bytes=2e9)})
    env = ContentionEnv(traces=[trace_of((0, 1, 600))], profiles=profiles)
    features = JobFeatures(profiles, env.cluster.topology)
    communication, bandwidth, sensitivity = features.of("NewNet")
    # Two nodes send its 2 GB once each way over 12.5 GB/s: 0.16 s beside 0.1 s of computing.
    assert communication == pytest.approx(0.16 / 0.26)
    assert bandwidth == pytest.approx(0.16 / 0.26)
    assert sensitivity == communication
    assert features.of("") == features.of("no such model")
    assert scalar(features.of("GraphSage")) < scalar(features.of("MobileNetV3")) < scalar(features.of("NewNet"))
    assert all(0.1 <= scalar(features.of(model)) <= 1 for model in ("", "NewNet", "GraphSage"))


def test_the_reward_is_the_papers_for_every_round() -> None:
    # Two jobs of 600 s; both together run at half speed. Rounds of 300 s, 2 x 2 GPUs, weights 0.4 and 0.6.
    trace = trace_of((0, 2, 600), (0, 2, 600))
    env = ContentionEnv(traces=[trace], cluster="2x2", slowdown=[Crowd()], branch="B")
    env.reset()
    # Nothing runs: CS is 1.
    assert env.step(np.int64(0))[1] == pytest.approx(-0.4)
    # The first job starts; one round alone: CS 1, half of the GPUs.
    assert env.step(np.int64(1))[1] == 0.0
    assert env.step(np.int64(0))[1] == pytest.approx(-0.4 * 1 + 0.6 * 0.5)
    # The second starts, and no job waits: both need 600 s more at CS 2 on all GPUs for the first to end, then 300 s alone.
    _, reward, terminated, truncated, info = env.step(np.int64(1 + 1))
    assert reward == pytest.approx(2 * (-0.4 * 2 + 0.6 * 1) + (-0.4 * 1 + 0.6 * 0.5))
    assert terminated
    assert not truncated
    outcome = info["outcome"]
    assert outcome["avg_jct_s"] == pytest.approx((1200 + 1500) / 2)
    assert outcome["avg_service_s"] == pytest.approx(900)
    assert outcome["avg_wait_s"] == pytest.approx((300 + 600) / 2)
    assert outcome["makespan_s"] == pytest.approx(1500)
    assert outcome["contention_sensitivity"] == pytest.approx(1.5)
    assert outcome["steps"] == 4
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))


def test_an_idle_cluster_may_count_as_in_algorithm_1() -> None:
    env = ContentionEnv(traces=[trace_of((0, 1, 60))], idle_sensitivity=0.0)
    env.reset()
    assert env.step(np.int64(0))[1] == 0.0


@pytest.mark.parametrize("branch", BRANCHES)
def test_branches_give_utilization_less_and_less_weight(branch: str) -> None:
    env = ContentionEnv(traces=[trace_of((0, 2, 600), (0, 2, 600))], cluster="1x4", branch=branch)
    env.reset()
    env.step(np.int64(1))
    w1, w2 = BRANCHES[branch]
    assert env.step(np.int64(0))[1] == pytest.approx(-w1 + w2 / 2)
    assert w1 + w2 == 1


@pytest.mark.parametrize("decide", ["rounds", "events"])
def test_jct_rewards_add_up_to_the_average_jct(decide: str) -> None:
    env = ContentionEnv(traces=ContentionRL(jobs=40, arrivals="poisson", load=0.8), reward="jct", decide=decide)
    outcome, total = play(env, random_agent(1), seed=5)
    assert total == pytest.approx(-outcome["avg_jct_s"] / 300)


def test_skipped_rounds_are_rewarded() -> None:
    workload = ContentionRL(jobs=40)
    sums = {}
    for skip in (False, True):
        env = ContentionEnv(traces=workload, slowdown=("max-min",), skip_forced=skip)
        sums[skip] = play(env, first_action, seed=5)
    assert sums[True][1] == pytest.approx(sums[False][1])
    assert sums[True][0]["avg_jct_s"] == sums[False][0]["avg_jct_s"]
    # With a choice at every step: 40 starts, and at most as many waits as there were starts to wait for.
    assert sums[True][0]["steps"] <= 80 < sums[False][0]["steps"]


def test_a_step_returns_how_many_rounds_it_took() -> None:
    trace = trace_of((0, 4, 900), (0, 4, 600))
    for skip, reported in ((False, [0, 1, 1, 1, 2]), (True, [3, 2])):
        env = ContentionEnv(traces=[trace], cluster="1x4", skip_forced=skip)
        env.reset()
        elapsed = []
        while not env._over:
            elapsed.append(env.step(np.int64(first_action(env)))[4]["elapsed"])
        assert elapsed == reported


def test_of_those_that_fit_the_one_of_the_fewest_gpus_may_have_to_start_first() -> None:
    trace = trace_of((0, 4, 900), (0, 2, 900), (0, 1, 900), (0, 2, 900))
    env = ContentionEnv(traces=[trace], cluster="2x4", starts="fewest")
    env.reset()
    lists = 3
    for index, gpus in ((2, 1), (1, 2), (3, 2)):
        possible = np.flatnonzero(env.action_masks())[1:]
        which = {(action - 1) // lists for action in possible}
        assert [(env.candidates[place].index, env.candidates[place].gpus) for place in which] == [(index, gpus)]
        env.step(np.int64(possible[0]))
    # Two and one GPUs are left: four fit nowhere, and there is only to wait.
    assert np.flatnonzero(env.action_masks()).tolist() == [0]
    env.reset()
    assert env.step(np.int64(1))[4]["elapsed"] == 1
    assert not env.loop.running


def test_an_impossible_action_is_the_same_as_waiting() -> None:
    trace = trace_of((0, 4, 900), (0, 4, 900))
    env = ContentionEnv(traces=[trace], cluster="2x4")
    env.reset()
    env.step(np.int64(1))
    assert not env.action_masks()[1]
    assert not env.action_masks()[3]
    _, reward, *_ = env.step(np.int64(1))
    assert env.simulation.now_s == 300
    assert reward == pytest.approx(-0.4 + 0.3)
    # There is no second candidate: its actions are as impossible.
    env.step(np.int64(1 + 3))
    assert env.simulation.now_s == 600
    assert [job.index for job in env.loop.running] == [0]
    with pytest.raises(gymnasium.error.InvalidAction):
        env.step(np.int64(1 + 9))
    outcome, _ = play(env, first_action)
    assert outcome["invalid_actions"] == 0


def test_at_events_an_agent_is_asked_when_something_happens() -> None:
    trace = trace_of((10, 4, 100), (10, 4, 50), (40, 4, 100))
    env = ContentionEnv(traces=[trace], cluster="1x4", decide="events")
    env.reset()
    asked = [env.simulation.now_s]
    env.step(np.int64(1))
    for _ in range(3):
        env.step(np.int64(0))
        asked.append(env.simulation.now_s)
    # Arrival, arrival, finish; then nothing would ever happen, and a round passes.
    assert asked == [10, 40, 110, 410]


def test_decisions_are_at_multiples_of_a_round_while_jobs_wait() -> None:
    trace = trace_of((10, 1, 100), (2000, 1, 100))
    env = ContentionEnv(traces=[trace], cluster="1x4")
    env.reset()
    assert env.simulation.now_s == 300
    env.step(np.int64(1))
    assert env.simulation.now_s == 2100
    _, reward, terminated, *_ = env.step(np.int64(1))
    assert terminated
    # 100 s of one GPU of four, a third of a round.
    assert reward == pytest.approx((-0.4 + 0.6 / 4) / 3)


def test_jobs_that_are_too_slow_are_stopped_and_pay_the_cost() -> None:
    trace = trace_of((0, 2, 600), (0, 2, 600), (0, 2, 600))
    settings = Settings(preempt_cost_s=50)
    env = ContentionEnv(
        traces=[trace], cluster="2x2", slowdown=[Crowd()], preempt_below=0.6, preempt_after_s=300, settings=settings
    )
    env.reset()
    env.step(np.int64(1))
    env.step(np.int64(1 + 1))
    assert len(env.loop.running) == 2
    seen, *_ = env.step(np.int64(0))
    # Both ran at half speed for a round; stopping one gives the other its full speed back.
    assert [(job.index, job.speed) for job in env.loop.running] == [(1, 1.0)]
    assert not seen[0, :2].any()
    assert [job.index for job in env.candidates] == [0]
    assert env.candidates[0].stops == 1
    assert env.candidates[0].overhead == 50e9
    unhindered = ContentionEnv(
        traces=[trace_of((0, 2, 600), (0, 2, 600), (0, 2, 600), preemptible=[False] * 3)],
        cluster="2x2",
        slowdown=[Crowd()],
        preempt_below=0.6,
    )
    assert play(unhindered, first_action)[0]["preemptions"] == 0


def test_gpus_of_nodes_that_are_down_are_not_there() -> None:
    trace = trace_of((0, 2, 3000), (0, 2, 3000), (0, 2, 3000))
    changes = (NodeChange(200, 0, "down"), NodeChange(500, 0, "up"))
    env = ContentionEnv(traces=[trace], cluster="2x2", settings=Settings(changes=changes))
    env.reset()
    env.step(np.int64(1))
    seen, *_ = env.step(np.int64(0))
    assert seen[0, :2].tolist() == [-1, -1]
    assert seen in env.observation_space
    # The first job was killed and waits again; only node 1 takes it.
    assert [job.index for job in env.candidates] == [0]
    assert np.flatnonzero(env.action_masks()).tolist() == [0, 2]
    seen, *_ = env.step(np.int64(0))
    assert seen[0, :2].tolist() == [0, 0]
    assert play(env, first_action)[0]["finished"] == 3


def test_nodes_with_fewer_gpus_show_the_missing_ones(tmp_path: Any) -> None:
    path = tmp_path / "mixed.toml"
    path.write_text("[[nodes]]\ncount = 1\ngpus = 4\n[[nodes]]\ncount = 1\ngpus = 2\n")
    env = ContentionEnv(traces=[trace_of((0, 4, 60), (0, 2, 60))], cluster=str(path))
    seen, _ = env.reset()
    assert seen[1, :4].tolist() == [0, 0, -1, -1]
    # Four GPUs on one node, or two on each.
    assert seen[0, 4 + 3] > 0
    assert seen[1, 4 + 1] > 0
    assert np.flatnonzero(env.action_masks()).tolist() == [0, 1, 3, 4, 5, 6]


def test_an_agent_that_does_nothing_is_cut_off() -> None:
    env = ContentionEnv(traces=[trace_of((0, 1, 60), (0, 1, 60))], max_steps=7)
    outcome, _ = play(env, lambda _: 0)
    assert outcome["steps"] == 7
    assert outcome["finished"] == 0
    assert np.isnan(outcome["avg_jct_s"])
    assert play(ContentionEnv(traces=[trace_of((0, 1, 60))]), lambda _: 0)[0]["steps"] == 100


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"branch": "F"}, "branch is 'F'; give one of A, B, C, D, E"),
        ({"colour": 1}, "there is no option 'colour'; the options are traces, cluster"),
        ({"candidates": 0}, "candidates is 0"),
        ({"starts": "most"}, "give one of any, fewest"),
        ({"decide": "daily"}, "give one of rounds, events"),
        ({"round_s": 0.0}, "round_s is 0.0"),
        ({"preempt_below": 1.5}, "between 0 and 1"),
        ({"traces": []}, "traces is empty"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"cluster": "64x8"}, "give nodes='rules'"),
        ({"render_mode": "human"}, "draws nothing"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        ContentionEnv(**options)


def test_a_trace_that_cannot_be_scheduled_is_refused_at_reset() -> None:
    env = ContentionEnv(traces=[trace_of((0, 18, 60))], cluster="3x8")
    with pytest.raises(SettingError, match=r"18 GPUs cannot be divided evenly .* give split='packed'"):
        env.reset()
    assert play(ContentionEnv(traces=[trace_of((0, 18, 60))], cluster="3x8", split="packed"), first_action)[0][
        "finished"
    ]
    with pytest.raises(TraceError, match="64 GPUs"):
        ContentionEnv(traces=[trace_of((0, 64, 60))]).reset()
    with pytest.raises(TraceError, match="32 GPUs"):
        ContentionEnv(cluster="2x8").reset()
    with pytest.raises(SlowdownError, match="no slowdown model"):
        ContentionEnv(slowdown=["magic"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trace": 2}, "traces 0 to 1"),
        ({"trace_seed": 2}, "trace_seed 2 is for workloads"),
        ({"trace": "a.csv"}, "give a whole number"),
        ({"trail": 2}, "reset has no option 'trail'"),
    ],
)
def test_options_of_reset(options: dict[str, Any], says: str) -> None:
    traces = [trace_of((0, 1, 60)), trace_of((0, 2, 60))]
    env = ContentionEnv(traces=traces)
    env.reset(options={"trace": 1})
    assert env.trace is traces[1]
    mine = trace_of((0, 3, 60))
    env.reset(options={"trace": mine})
    assert env.trace is mine
    with pytest.raises(SettingError, match=says):
        env.reset(options=options)
