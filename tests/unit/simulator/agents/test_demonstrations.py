"""Policies act in environments as they do in the simulator, and a network can imitate their actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from policies.api import Decision, PolicySpec, load_policy
from policies.model import ClusterState, Placement
from policies.wire.messages import parse_state, serialize_state
from simulator.agents.demonstrations import demonstrate
from simulator.agents.episodes import make, play
from simulator.agents.policy_agent import PolicyAgent
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.errors import DecisionError, SettingError
from simulator.results.metrics import average_jct_s
from simulator.results.result import Result
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import ContentionRL
from simulator.traces.generators.dl2 import DL2
from simulator.traces.generators.sched2 import Sched2
from simulator.traces.trace import Trace
from tests.unit.policies.wire.test_messages import assert_same
from tests.unit.simulator.envs.worlds import trace_of

CONTENTION, SCHED2, ELASTIC = "headway/Contention-v0", "headway/Sched2-v0", "headway/ElasticAllocation-v0"


def contention(jobs: int = 24, **options: Any) -> gymnasium.Env[Any, Any]:
    workload = ContentionRL(jobs=jobs, demands=(1, 2, 4, 8), arrivals="poisson")
    return make(CONTENTION, traces=workload, decide="events", slowdown=("pair-table",), candidates=4, **options)


def sched2(jobs: int = 40, **options: Any) -> gymnasium.Env[Any, Any]:
    return make(SCHED2, traces=Sched2(jobs=jobs, mean_gap_s=60), cluster="2x8", candidates=jobs, **options)


def in_the_simulator(env: gymnasium.Env[Any, Any], policy: str, trace: Trace) -> float:
    """The average JCT of the policy itself, where no job may be stopped."""
    world = env.unwrapped
    models = build(world.options.slowdown, topology=world.cluster.topology, profiles=world.options.profiles)
    settings = Settings(preemptible_share=0.0)
    simulation = Simulation(trace, world.cluster, load_policy(policy), settings, models, world.options.profiles)
    simulation.run()
    jct_s = average_jct_s(Result.of(simulation, policy, 0.0))
    assert jct_s is not None
    return jct_s


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "fewest-gpus"])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_actions_of_a_policy_give_its_own_schedule(policy: str, seed: int) -> None:
    env = contention()
    shown = demonstrate(env, load_policy(policy), [seed])
    assert shown.episodes[0].outcome["avg_jct_s"] == pytest.approx(
        in_the_simulator(env, policy, env.unwrapped.trace), rel=1e-9
    )
    assert shown.episodes[0].deviations == 0


@pytest.mark.parametrize("policy", ["sched2-sif", "sched2-spf", "sched2-fifo", "sched2-spf-local"])
def test_the_baselines_of_sched2_give_their_own_schedule(policy: str) -> None:
    env = sched2()
    shown = demonstrate(env, load_policy(policy), [3])
    assert shown.episodes[0].outcome["avg_jct_s"] == pytest.approx(
        in_the_simulator(env, policy, env.unwrapped.trace), rel=1e-9
    )


@pytest.mark.parametrize(
    ("env", "policy"), [(contention(), "fifo"), (sched2(), "sched2-spf"), (make(ELASTIC, traces=DL2(jobs=12)), "drf")]
)
def test_demonstrations_replayed_action_by_action_give_the_same_episode(
    env: gymnasium.Env[Any, Any], policy: str
) -> None:
    shown = demonstrate(env, load_policy(policy), [5])
    assert shown.masks[np.arange(len(shown)), shown.actions].all()
    seen, _ = env.reset(seed=5)
    total, info = 0.0, {}
    for observation, action, mask in zip(shown.observations, shown.actions, shown.masks, strict=True):
        assert (seen == observation).all()
        assert (env.unwrapped.action_masks() == mask).all()
        seen, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
    assert terminated and not truncated
    assert total == shown.episodes[0].total_reward
    assert info["outcome"] == pytest.approx(shown.episodes[0].outcome, nan_ok=True)


class Whole:
    """A policy that gives every job that many GPUs."""

    spec = PolicySpec("whole", "a test", preempts=True, resizes=True)

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus

    def decide(self, state: ClusterState) -> Decision:
        return Decision({row: Placement((row % 2,), (self.gpus,)) for row in range(len(state.jobs))})


def test_an_allocation_becomes_increments_of_one_worker_with_one_server() -> None:
    trace = trace_of((0, 1, 9000), (0, 1, 9000), max_gpus=[4, 4], models=["ResNet-50"] * 2)
    env = make(ELASTIC, traces=[trace], cluster="2x8")
    shown = demonstrate(env, Whole(3), [0])
    assert shown.actions[:7].tolist() == [2, 2, 2, 5, 5, 5, 120]


class Served:
    """A policy that gives every job two workers and three servers, and reports the states that it sees."""

    spec = PolicySpec("served", "a test", preempts=True, resizes=True)

    def __init__(self, note: Callable[[ClusterState], None]) -> None:
        self.note = note

    def decide(self, state: ClusterState) -> Decision:
        self.note(state)
        return Decision({row: Placement((0,), (2,), (0, 1), (1, 2)) for row in range(len(state.jobs))})


@pytest.mark.parametrize(("bundle", "begin"), [(True, [2, 2, 1]), (False, [1, 1, 1, 0, 0])])
def test_a_decision_may_say_how_many_servers_a_job_gets(bundle: bool, begin: list[int]) -> None:
    trace = trace_of((0, 1, 90000), max_gpus=[4], models=["ResNet-50"])
    seen: list[ClusterState] = []
    policy = Served(seen.append)
    shown = demonstrate(make(ELASTIC, traces=[trace], cluster="2x8", bundle=bundle, epochs=40), policy, [0])
    assert shown.actions[: len(begin)].tolist() == begin
    # The next state shows the servers, the epochs that the environment assumes, and the progress of the first slot.
    first, second = seen[0].jobs, seen[1].jobs
    assert second.num_servers is not None and second.epochs is not None
    assert first.progress is not None and second.progress is not None
    assert (second.num_servers.tolist(), second.epochs.tolist()) == ([1], [40.0])
    placement = second.placement(0)
    assert first.placement(0) is None and placement is not None
    assert (placement.num_gpus, placement.num_servers) == (2, 3)
    assert first.progress[0] == 0.0 < second.progress[0] < 1.0
    assert_same(parse_state(serialize_state(seen[1])), seen[1])


def test_too_large_an_allocation_is_refused_or_counted() -> None:
    trace = trace_of((0, 1, 9000), max_gpus=[4], models=["ResNet-50"])
    env = make(ELASTIC, traces=[trace], cluster="1x4")
    with pytest.raises(DecisionError, match="job j0 lacked 2 workers"):
        demonstrate(env, Whole(6), [0])
    assert play(env, PolicyAgent(Whole(6)), 0).deviations > 0


def test_a_decision_that_no_action_expresses_is_refused_or_replaced_by_the_nearest() -> None:
    # 6 GPUs go to nodes 0 and 1 evenly; consolidated best fit wants 4 + 2.
    trace = trace_of((0, 6, 100), (0, 1, 100), models=["MoE", "MoE"])
    env = make(CONTENTION, traces=[trace], cluster="2x4", decide="events")
    with pytest.raises(DecisionError, match=r"fifo cannot be expressed.*4 GPUs of node 0"):
        demonstrate(env, load_policy("fifo"), [0])
    episode = play(env, PolicyAgent(load_policy("fifo")), 0)
    assert episode.deviations == 1
    assert episode.outcome["finished"] == 2


def test_a_policy_that_picks_by_duration_still_finishes_every_job() -> None:
    """The environment names only the first job of each demand, so srtf's choice is replaced."""
    for policy in ("srtf", "las", "tetris", "random"):
        episode = play(contention(), PolicyAgent(load_policy(policy)), 4)
        assert not episode.truncated
        assert episode.outcome["finished"] == episode.outcome["jobs"] == 24


def test_the_first_job_of_a_demand_stands_for_a_later_one_that_is_not_a_candidate() -> None:
    trace = trace_of((0, 2, 100), (1, 2, 300), (2, 2, 10), models=["MoE"] * 3)
    env = make(CONTENTION, traces=[trace], cluster="1x2", decide="events", slowdown=())
    with pytest.raises(DecisionError, match=r"srtf cannot be expressed.*the policy starts job j2"):
        demonstrate(env, load_policy("srtf"), [0])
    episode = play(env, PolicyAgent(load_policy("srtf")), 0)
    assert episode.deviations == 1
    # j1 runs from 100 to 400 s, j2 from 400 to 410 s.
    assert episode.outcome["avg_jct_s"] == pytest.approx((100 + 399 + 408) / 3)


def test_an_environment_without_jobs_has_no_teacher() -> None:
    with pytest.raises(SettingError, match="policies cannot act in CartPole-v1: it has no mapping"):
        demonstrate(make("CartPole-v1"), load_policy("fifo"), [0])


def test_a_network_that_imitates_a_teacher_acts_like_it_on_new_traces() -> None:
    torch = pytest.importorskip("torch")
    from policies.learned.algorithms.imitation import Imitation
    from policies.learned.algorithms.networks import MlpActorCritic
    from policies.learned.training.agents import NetworkAgent, UniformAgent

    torch.set_num_threads(1)
    env, teacher = contention(), load_policy("fifo-skip")
    shown = demonstrate(env, teacher, range(6))
    torch.manual_seed(0)
    network = MlpActorCritic(int(np.prod(shown.observations.shape[1:])), int(env.action_space.n))

    def flat(seen: Any) -> Any:
        return seen.flatten(1)

    learner = Imitation(network, torch.optim.Adam(network.parameters(), 3e-3))
    rows = {name: torch.from_numpy(array) for name, array in shown.rows().items()}
    rows["seen"] = flat(rows["seen"])
    for _ in range(150):
        result = learner.update(rows)
    assert result["accuracy"] > 0.95

    test_seeds = range(100, 103)
    student = NetworkAgent(lambda seen, _: network(flat(seen))[0], shown.observations.shape[1:])
    new = [play(env, student, seed).outcome["avg_jct_s"] for seed in test_seeds]
    uniform = [play(env, UniformAgent(), seed).outcome["avg_jct_s"] for seed in test_seeds]
    own = [play(env, PolicyAgent(teacher), seed).outcome["avg_jct_s"] for seed in test_seeds]
    assert abs(np.mean(new) / np.mean(own) - 1) < abs(np.mean(uniform) / np.mean(own) - 1)
