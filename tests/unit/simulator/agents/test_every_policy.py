"""Every installed policy is a teacher, and its decisions depend on the state alone unless it can be forked."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import pytest

from policies.api import ENTRY_POINT_GROUP, Forkable, load_policy
from policies.model import ClusterState
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


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_depend_on_the_state_alone_or_the_policy_can_be_forked(name: str) -> None:
    policy = loaded(name)
    for state in states(WEIGHTS_FOR.get(name, "3x4")):
        decision = policy.decide(state)
        assert policy.decide(state) == decision, "asked again, it decides otherwise"
        assert isinstance(policy, Forkable) or loaded(name).decide(state) == decision, "it remembers earlier states"
