"""Controls of the paper's agent, and decisions in rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.api import Policy, load_policy
from policies.learned.contention_rl.encoder import Encoding
from policies.learned.contention_rl.policy import RlBase
from policies.learned.training.agents import UniformAgent
from policies.model import Placement
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.papers.contention_rl.controls import MostReward, Spread
from simulator.papers.contention_rl.env import ContentionEnv
from simulator.papers.contention_rl.rounds import InRounds, acting, in_rounds
from simulator.reproducing.experiment import Kind, Setting
from simulator.results.result import Result
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import ContentionRL, generate
from tests.unit.policies.learned.contention_rl.agents import agent_of
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.simulator.envs.worlds import trace_of


def setting() -> Setting:
    return Setting(
        name="small",
        says="24 jobs at once",
        trace=lambda seed: generate(ContentionRL(jobs=24, seed=seed, demands=(2, 4, 8))),
        cluster=parse_cluster("4x8"),
        slowdown=("pair-table",),
        profiles=paper_profiles("contention-rl"),
    )


def test_a_policy_in_rounds_starts_nothing_between_two_rounds() -> None:
    # The first job ends at 400 s; the next one could start then, and starts at the round of 600 s.
    trace = trace_of((0, 4, 400), (0, 4, 400))
    simulation = Simulation(trace, parse_cluster("1x4"), InRounds(load_policy("fifo")))
    simulation.run()
    assert sorted(Result.of(simulation, "fifo", 0.0).jct_ns.tolist()) == [400 * 10**9, 1000 * 10**9]


def test_a_policy_in_rounds_keeps_running_jobs_and_decides_at_a_multiple() -> None:
    jobs = [Job(gpus=2, occupied={1: 2}), Job(gpus=4)]
    policy = InRounds(load_policy("fifo"))
    assert policy.spec.round_s == 300.0
    assert dict(policy.decide(cluster([Node()] * 2, jobs, time_s=899.0)).allocation) == {0: Placement((1,), (2,))}
    assert set(policy.decide(cluster([Node()] * 2, jobs, time_s=900.0)).allocation) == {0, 1}


def test_the_served_agent_has_the_same_rounds_by_its_own_option() -> None:
    env = ContentionEnv(traces=ContentionRL(jobs=40, demands=(2, 4, 8), arrivals="poisson", load=0.9))
    env.reset(seed=1)
    profiles = paper_profiles("contention-rl")
    ends: list[list[int]] = []
    for round_s, wrapped in ((0.0, True), (300.0, False), (0.0, False)):
        policy: Policy = RlBase(agent_of(Encoding(), seed=3), round_s=round_s)
        models = build(["link-sharing"], topology=env.cluster.topology, profiles=profiles)
        simulation = Simulation(
            env.trace, env.cluster, InRounds(policy) if wrapped else policy, Settings(), models, profiles
        )
        simulation.run()
        ends.append(Result.of(simulation, "rl-base", 0.0).jct_ns.tolist())
    in_rounds_of_the_experiment, in_own_rounds, at_events = ends
    assert in_own_rounds == in_rounds_of_the_experiment != at_events


def test_between_rounds_the_served_agent_says_what_jobs_wait_for() -> None:
    jobs = [Job(gpus=2, occupied={1: 2}), Job(gpus=4)]
    policy = RlBase(agent_of(Encoding(), wait=-1e6), round_s=300.0)
    between = policy.decide(cluster([Node()] * 4, jobs, time_s=899.0))
    assert dict(between.allocation) == {0: Placement((1,), (2,))}
    assert between.reasons == {1: "waits: the policy starts jobs at the beginning of rounds of 300 s"}
    assert set(policy.decide(cluster([Node()] * 4, jobs, time_s=900.4)).allocation) == {0, 1}
    assert set(policy.decide(cluster([Node()] * 4, jobs, time_s=900.6)).allocation) == {0}


def test_spread_takes_as_many_nodes_as_it_can_and_never_one() -> None:
    jobs = [
        Job(gpus=8),
        Job(gpus=2),
        Job(gpus=4, occupied={0: 4, 1: 4}),
        Job(gpus=4),
        Job(gpus=8),
        Job(gpus=8),
        Job(gpus=8),
    ]
    found = dict(Spread().decide(cluster([Node()] * 4, jobs)).allocation)
    assert found[0] == Placement((0, 1, 2, 3), (2, 2, 2, 2))
    assert found[1] == Placement((0, 1), (1, 1))
    assert found[3] == Placement((0, 1, 2, 3), (1, 1, 1, 1))
    # Nodes 0 and 1 are full now: what is left has two nodes.
    assert found[4] == Placement((2, 3), (4, 4))
    assert 5 not in found and 6 not in found


def test_most_reward_computes_the_environments_own_reward() -> None:
    env = ContentionEnv(branch="D", traces=ContentionRL(jobs=60, demands=(2, 4, 8)))
    seen, _ = env.reset(seed=4)
    agent, random = MostReward(), UniformAgent()
    agent.begin(env, 0)
    random.begin(env, 0)
    for _ in range(80):
        seen, *_ = env.step(np.int64(random.act(seen, env.action_masks())))
        if env.loop.running and not env.loop.touched:
            assert agent._reward() == pytest.approx(env._rate())


def test_most_reward_takes_the_action_after_which_a_round_earns_most() -> None:
    # FSDP runs on node 0. MoE may start on node 0 beside it, on node 1 alone, or on both.
    trace = trace_of((0, 1, 9000), (0, 1, 9000), models=["FSDP", "MoE"])
    env: Any = ContentionEnv(traces=[trace], cluster="2x2", branch="E", slowdown=("pair-table",))
    seen, _ = env.reset()
    env.step(np.int64(1))
    agent = MostReward()
    agent.begin(env, 0)
    assert agent.act(seen, env.action_masks()) == 2


@pytest.mark.parametrize(
    "contender", [in_rounds("fewest-gpus", Kind.CONTROL), acting("uniform", Kind.CONTROL, UniformAgent, "B")]
)
def test_contenders_in_rounds_finish_every_job_and_lose_the_ends_of_rounds(contender: Any) -> None:
    run = contender.run(setting(), 1000, None)
    again = contender.run(setting(), 1000, None)
    assert run.figures == again.figures
    assert run.figures["avg_service_s"] >= 3600
    if contender.name == "fewest-gpus":
        starts = run.figures["avg_wait_s"] * 24 / 300
        assert starts == pytest.approx(round(starts))
