"""Every installed policy is a teacher, and its decisions depend on the state alone unless it can be forked."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest

from policies.api import ENTRY_POINT_GROUP, Decision, Forkable, load_policy
from policies.learned.guard import Guard
from policies.model import ClusterState
from policies.selection import present_placements
from simulator.agents.demonstrations import demonstrate
from simulator.agents.episodes import make
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import ContentionRL
from simulator.traces.generators.dl2 import DL2, generate
from simulator.traces.generators.sched2 import Sched2

POLICIES = sorted(entry.name for entry in entry_points(group=ENTRY_POINT_GROUP))
WEIGHTS_FOR = {"sched2": "15x8", "sched2-rule": "15x8", "rl-base": "4x8", "rl-hybrid": "4x8", "rl-taps": "4x8"}
"""Clusters of the policies whose weights are for one shape alone."""


def loaded(name: str) -> Any:
    if name in {"sched2", "rl-base", "rl-hybrid"}:
        pytest.importorskip("torch", reason="the policy needs torch")
    return load_policy(name)


@pytest.mark.parametrize("name", POLICIES)
def test_it_demonstrates(name: str) -> None:
    options: dict[str, Any] = {"traces": ContentionRL(jobs=8, demands=(2, 4, 8)), "cluster": "4x8", "decide": "events"}
    env = "headway/Contention-v0"
    if name in {"sched2", "sched2-rule"}:
        env, options = "headway/Sched2-v0", {"traces": Sched2(jobs=8, cluster_gpus=120), "cluster": "15x8"}
    teacher = loaded(name)
    shown, again = (demonstrate(make(env, **options), teacher, [1], exact=False) for _ in range(2))
    assert len(shown) >= 8 and not shown.episodes[0].truncated
    # It begins each episode as it was given.
    assert shown.actions.tolist() == again.actions.tolist()


@cache
def states(cluster_text: str) -> list[ClusterState]:
    """States of a run with elastic jobs under drf, in order."""
    cluster, profiles = parse_cluster(cluster_text), paper_profiles()
    models = build(["scaling"], topology=cluster.topology, profiles=profiles)
    trace = generate(DL2(jobs=14, mean_gap_s=600.0, cluster_gpus=cluster.num_gpus, seed=3))
    simulation = Simulation(trace, cluster, load_policy("drf", {"elastic": True}), Settings(), models, profiles)
    found = []
    while simulation.advance():
        found.append(simulation.state())
        simulation.decide()
    return found


def hypothetical(state: ClusterState) -> list[ClusterState]:
    """Return states that differ from this one as those of what-if requests and of later times do."""
    later = [replace(state, time_s=state.time_s + passed_s) for passed_s in (100.0, 1e6)]
    stopped = [replace(state, jobs=state.jobs.stopped(row)) for row in state.running.tolist()[:2]]
    down = replace(state.nodes, available=np.arange(len(state.nodes)) > 0)
    return [*later, *stopped, replace(state, nodes=down)]


def mixed(cluster_text: str) -> list[ClusterState]:
    """Some states of a run, each with its hypothetical ones."""
    return [each for state in states(cluster_text)[::2] for each in (state, *hypothetical(state))]


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_depend_on_the_state_alone_or_the_policy_can_be_forked(name: str) -> None:
    policy = loaded(name)
    for state in states(WEIGHTS_FOR.get(name, "3x4")):
        decision = policy.decide(state)
        assert policy.decide(state) == decision, "asked again, it decides otherwise"
        assert isinstance(policy, Forkable) or loaded(name).decide(state) == decision, "it remembers earlier states"


class Forgetful:
    """A policy that remembers earlier states, forked for each decision."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def decide(self, state: ClusterState) -> Decision:
        decision: Decision = self._policy.fork().decide(state)
        return decision


WITH_GUARD = {"dl2", "dl2-ppo", "headway-rl", "marl", "rl-base", "rl-hybrid", "rl-taps", "sched2", "sched2-rule"}


def test_three_heuristics_and_guarded_policies_declare_that_they_remember_earlier_states() -> None:
    """The promise of `Policy.decide` in docs/architecture.md names them."""
    heuristics = {"dally", "optimus", "sched2-dsif"}
    assert {name for name in POLICIES if isinstance(loaded(name), Forkable)} == heuristics | WITH_GUARD


@pytest.mark.parametrize("name", POLICIES)
def test_states_in_between_change_no_decision(name: str) -> None:
    """Also of hypothetical states, which a controller asks about between its decisions."""
    policy = loaded(name)
    if isinstance(policy, Forkable):
        policy = Forgetful(policy)
    asked = mixed(WEIGHTS_FOR.get(name, "3x4"))
    decisions = [policy.decide(state) for state in asked]
    for state, decision in zip(reversed(asked), reversed(decisions), strict=True):
        assert policy.decide(state) == decision


def test_the_guard_of_waiting_jobs_remembers_nothing() -> None:
    asked = mixed("3x4")
    idle = [Decision(present_placements(state, state.running)) for state in asked]
    pairs = list(zip(asked, idle, strict=True))
    guard = Guard()
    decisions = [guard.checked(state, decision) for state, decision in pairs]
    assert 0 < sum(bool(decision.guard) for decision in decisions) < len(decisions)
    assert [guard.checked(state, decision) for state, decision in reversed(pairs)] == decisions[::-1]
