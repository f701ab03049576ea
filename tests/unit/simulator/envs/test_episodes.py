"""Whole episodes: no job is lost, equal seeds give equal episodes, and the engine alone gives the same by the same decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from policies.api import Decision, PolicySpec
from policies.learned.contention_rl.features import scalar
from policies.learned.contention_rl.placement_actions import NODE_RULES
from policies.model import ClusterState, Placement
from simulator.engine.settings import NodeChange, Settings
from simulator.engine.simulation import Simulation
from simulator.papers.contention_rl.env import ContentionEnv
from simulator.results import metrics
from simulator.results.result import Result
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import MIXES, ContentionRL
from tests.unit.simulator.envs.worlds import Agent, first_action, play, random_agent, trail

CHOICES = [("lists", "even"), ("lists", "packed"), ("rules", "even"), ("rules", "packed")]
ANY_SIZE = tuple(range(1, 33))


@pytest.mark.parametrize(("nodes", "split"), CHOICES)
@pytest.mark.parametrize("agent", ["random", "first"])
def test_agents_finish_256_jobs_and_lose_none(nodes: str, split: str, agent: str) -> None:
    act = random_agent(3) if agent == "random" else first_action
    workload = ContentionRL(demands=ANY_SIZE, mix="heavy")
    env = ContentionEnv(traces=workload, nodes=nodes, split=split, slowdown=("locality", "max-min"))
    outcome, _ = play(env, act, seed=11)
    assert outcome["jobs"] == outcome["finished"] == 256
    assert outcome["invalid_actions"] == 0
    assert sorted(env.simulation.finished.index) == list(range(256))
    assert not env.loop.running
    assert env.loop.pool.total == 32


@pytest.mark.parametrize("mix", MIXES)
def test_the_same_seed_gives_the_same_episodes(mix: str) -> None:
    options: dict[str, Any] = {"traces": ContentionRL(jobs=30, mix=mix), "slowdown": ("max-min",)}
    first, again, other = (ContentionEnv(**options) for _ in range(3))
    other.reset(seed=5)
    assert trail(first, random_agent(9)) == trail(again, random_agent(9))
    assert not first.trace.same_jobs(other.trace)


def recorded(env: ContentionEnv, agent: Agent, seed: int) -> tuple[list[tuple[float, float]], dict[str, float]]:
    """Rounds and reward of every step of an episode, and its outcome."""
    env.reset(seed=seed)
    steps = []
    while True:
        _, reward, terminated, truncated, info = env.step(np.int64(agent(env)))
        steps.append((info["elapsed"], reward))
        if terminated or truncated:
            return steps, info["outcome"]


@settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 1 << 20),
    workload=st.sampled_from(
        [
            ContentionRL(jobs=30),
            ContentionRL(jobs=20, demands=ANY_SIZE, mix="heavy", arrivals="poisson", load=0.9),
            ContentionRL(jobs=20, demands=(2, 4, 8), arrivals="poisson", load=0.3),
        ]
    ),
    options=st.fixed_dictionaries(
        {
            "slowdown": st.sampled_from([(), ("pair-table",), ("max-min",)]),
            "branch": st.sampled_from("AE"),
            "reward": st.sampled_from(["contention", "jct"]),
            "decide": st.sampled_from(["rounds", "events"]),
            "starts": st.sampled_from(["any", "fewest"]),
            "preempt_below": st.sampled_from([None, 0.6]),
        }
    ),
)
def test_skipped_decisions_change_neither_rewards_nor_time(
    seed: int, workload: ContentionRL, options: dict[str, Any]
) -> None:
    options["settings"] = Settings(changes=(NodeChange(4000, 1, "down"), NodeChange(9500, 1, "up")))
    whole, skipping = (ContentionEnv(traces=workload, skip_forced=skip, **options) for skip in (False, True))
    # Drawn only where there is a choice: the same draws in both.
    steps, outcome = recorded(whole, random_agent(seed), seed)
    fewer, same = recorded(skipping, random_agent(seed), seed)
    assert len(fewer) <= len(steps)
    assert sum(reward for _, reward in fewer) == pytest.approx(sum(reward for _, reward in steps), rel=1e-9, abs=1e-9)
    assert sum(elapsed for elapsed, _ in fewer) == pytest.approx(sum(elapsed for elapsed, _ in steps), rel=1e-9)
    for name in outcome.keys() - {"steps"}:
        assert same[name] == pytest.approx(outcome[name], rel=1e-9, nan_ok=True)
    # A reward comes only while time passes.
    assert all(elapsed > 0 or reward == 0 for elapsed, reward in (*steps, *fewer))


class Scripted:
    """A policy that starts jobs when and where an agent started them; it never stops one."""

    def __init__(self, env: ContentionEnv, agent: Agent, **reset: Any) -> None:
        self.starts: dict[str, tuple[float, Placement]] = {}
        start = env.start

        def recorded(job: Any, nodes: list[int], counts: list[int]) -> None:
            placement = Placement.of(zip(nodes, counts, strict=True))
            self.starts[env.trace.job_ids[job.index]] = env.simulation.now_s, placement
            start(job, nodes, counts)

        env.start = recorded  # type: ignore[method-assign]
        self.outcome, _ = play(env, agent, **reset)
        self.spec = PolicySpec("scripted", "an agent", round_s=env.base_options.round_s)

    def decide(self, state: ClusterState) -> Decision:
        """Running jobs stay; jobs whose time has come start."""
        allocation = {}
        for row, job in enumerate(state.jobs.ids):
            start_s, placement = self.starts[job]
            # Sums of floats may differ in their last digits, and then finishes by some nanoseconds.
            if state.jobs.placement(row) or start_s <= state.time_s + 1e-6:
                allocation[row] = placement
        return Decision(allocation)


@pytest.mark.parametrize("slowdown", [(), ("locality", "max-min")])
@pytest.mark.parametrize("arrivals", ["batch", "poisson"])
@pytest.mark.parametrize("decide", ["rounds", "events"])
def test_the_engine_alone_gives_the_same_results(slowdown: tuple[str, ...], arrivals: str, decide: str) -> None:
    workload = ContentionRL(jobs=60, arrivals=arrivals, demands=ANY_SIZE, load=None if arrivals == "batch" else 0.9)
    env = ContentionEnv(traces=workload, slowdown=slowdown, decide=decide)
    agent = random_agent(2)
    # With jobs waiting and an idle cluster, the next decision is a round later, at an instant without event or multiple.
    policy = Scripted(env, lambda env: agent(env) if env.loop.running else first_action(env), seed=8)
    models = build(slowdown, topology=env.cluster.topology, profiles=paper_profiles("contention-rl"))
    straight = Simulation(env.trace, env.cluster, policy, slowdown=models)
    straight.run()
    result = Result.of(straight, "scripted", 0.0)
    alone, by_env = metrics.summary(result), Result.of(env.simulation, "agent", 0.0)
    # Jobs that start at one instant enter the models in another order.
    assert np.abs(result.finish_ns - by_env.finish_ns).max() <= (1000 if slowdown else 0)
    for name in ("jobs", "finished", "preemptions"):
        assert policy.outcome[name] == alone[name]
    for name in ("avg_jct_s", "p50_jct_s", "p90_jct_s", "p99_jct_s", "avg_service_s", "makespan_s", "avg_wait_s"):
        assert policy.outcome[name] == pytest.approx(alone[name], rel=1e-9)
    assert policy.outcome["utilization"] == pytest.approx(alone["utilization"], rel=1e-9)
    assert policy.outcome["contention_sensitivity"] == pytest.approx(alone["avg_contention_sensitivity"], rel=1e-9)


def expected_mask(env: ContentionEnv) -> list[bool]:
    """Compute the possible actions by trying every share of every list or rule on the engine's free GPUs."""
    pool, options = env.loop.pool, env.options
    free = [pool.free[node] if pool.up[node] else 0 for node in range(pool.num_nodes)]
    mask = [True]
    for place in range(options.candidates):
        gpus = env.candidates[place].gpus if place < len(env.candidates) else 1 << 30
        mask += possible(options.nodes, options.split, gpus, free)
    return mask


def possible(nodes: str, split: str, gpus: int, free: list[int]) -> list[bool]:
    def evenly(chosen: list[int]) -> bool:
        shares = [gpus // len(chosen) + (place < gpus % len(chosen)) for place in range(len(chosen))]
        has = sorted((free[node] for node in chosen), reverse=True)
        return shares[-1] > 0 and all(share <= there for share, there in zip(shares, has, strict=True))

    count = len(free)
    subsets = [[node for node in range(count) if bits >> node & 1] for bits in range(1, 1 << count)]
    subsets.sort(key=lambda chosen: (len(chosen), chosen))
    powers = [1 << power for power in range(count.bit_length())]
    if nodes == "lists" and split == "even":
        return [evenly(chosen) for chosen in subsets if len(chosen) in powers]
    if nodes == "lists":
        return [
            sum(free[node] for node in chosen) >= gpus
            and all(sum(free[other] for other in chosen if other != node) < gpus for node in chosen)
            for chosen in subsets
        ]
    freest = sorted(range(count), key=lambda node: -free[node])
    if split == "even":
        return [evenly(freest[:each]) for each in powers for _ in NODE_RULES]
    whole, rest = divmod(gpus, 8)
    empty = sum(has == 8 for has in free)
    consolidated = whole <= empty and (rest == 0 or whole < empty or any(rest <= has < 8 for has in free))
    return [consolidated, sum(free) >= gpus, sum(free) >= gpus]


@pytest.mark.parametrize(("nodes", "split"), CHOICES)
@pytest.mark.parametrize(
    "changes",
    [
        (),
        (
            NodeChange(2000, 1, "down"),
            NodeChange(5000, 2, "drain"),
            NodeChange(9000, 1, "up"),
            NodeChange(9000, 2, "up"),
        ),
    ],
)
def test_masks_show_possible_actions_and_the_grid_shows_the_cluster(
    nodes: str, split: str, changes: tuple[NodeChange, ...]
) -> None:
    sizes = (1, 2, 3, 5, 8, 11, 13, 17, 24, 31)
    env = ContentionEnv(
        traces=ContentionRL(jobs=40, demands=sizes), nodes=nodes, split=split, settings=Settings(changes=changes)
    )
    agent, rng = random_agent(6), np.random.default_rng(6)
    seen, _ = env.reset(seed=6)
    over = False
    while not over:
        mask = env.action_masks()
        if not changes or nodes == "lists" or split == "even":  # a job consolidates otherwise while nodes are down
            assert mask.tolist() == expected_mask(env)
        check_cells(env, seen)
        impossible = np.flatnonzero(~mask)
        before = env.loop.now
        running = len(env.loop.running)
        if rng.random() < 0.2 and len(impossible):
            seen, _, terminated, truncated, _ = env.step(rng.choice(impossible))
            assert env.loop.now > before
        else:
            action = agent(env)
            seen, _, terminated, truncated, _ = env.step(np.int64(action))
            assert action == 0 or env.loop.now > before or len(env.loop.running) == running + 1
        over = terminated or truncated
    assert terminated


def check_cells(env: ContentionEnv, seen: np.ndarray[Any, Any]) -> None:
    """The left half has the numbers of each node's jobs from the left on, in order of start and then of submission, once a GPU."""
    assert seen in env.observation_space
    pool = env.loop.pool
    expected: list[list[float]] = [[] for _ in range(pool.num_nodes)]
    for job in sorted(env.loop.running, key=lambda job: (job.start, job.index)):
        for node, gpus in zip(job.nodes, job.counts, strict=True):
            expected[node] += [scalar(env._features.of(env.trace.model[job.index]))] * gpus
    for node in range(pool.num_nodes):
        left = pool.free[node]
        expected[node] += [0.0 if pool.up[node] else -1.0] * left
        assert seen[node, :8].tolist() == pytest.approx(expected[node])
