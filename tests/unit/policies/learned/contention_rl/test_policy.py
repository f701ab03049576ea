"""RL-base and RL-Hybrid: valid decisions on any cluster, the same for the same state, from weights that are checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.api import Policy
from policies.errors import EncoderError, WeightsError
from policies.learned.contention_rl.encoder import NAME, Encoding
from policies.learned.contention_rl.policy import SYSTEM, ContentionAgent, RlBase, RlHybrid, encoding_of
from policies.learned.contention_rl.policy import settings as settings_kept
from policies.learned.contention_rl.recipe import Recipe
from policies.learned.weights import weights
from policies.learned.weights.card import draft
from policies.model import ClusterState, Placement
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.papers.contention_rl.env import ContentionEnv
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import ContentionRL
from tests.unit.policies.learned.contention_rl.agents import agent_of, network_of
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.valid import check


def encoding_for(state: ClusterState, **options: Any) -> Encoding:
    return Encoding(num_nodes=len(state.nodes), gpus_per_node=max(1, int(state.nodes.gpus.max())), **options)


@settings(max_examples=25, deadline=None)
@given(
    state=states(),
    kind=st.sampled_from([RlBase, RlHybrid]),
    nodes=st.sampled_from(["lists", "rules"]),
    seed=st.integers(0, 9),
)
def test_decisions_are_valid_and_the_same_again(state: ClusterState, kind: type[RlBase], nodes: str, seed: int) -> None:
    if state.nodes.gpus.max() == 0:
        return
    policy = kind(agent_of(encoding_for(state, nodes=nodes), seed))
    decision = policy.decide(state)
    check(state, decision, policy.spec)
    assert policy.decide(state) == decision


def test_a_job_that_fits_nowhere_is_not_reported_as_deferred() -> None:
    state = cluster([Node()] * 4, [Job(gpus=8, occupied={node: 8}) for node in range(3)] + [Job(gpus=16), Job(gpus=4)])
    decision = RlBase(agent_of(Encoding(), wait=1e6)).decide(state)
    assert decision.reasons[4].startswith("deferred: the learned policy")
    assert 3 not in decision.reasons


def test_hybrid_starts_jobs_on_gpus_that_base_leaves_idle() -> None:
    state = cluster([Node()] * 4, [Job(gpus=4, occupied={0: 4}), Job(gpus=8), Job(gpus=4), Job(gpus=4), Job(gpus=30)])
    agent = agent_of(Encoding(), wait=1e6)
    base, hybrid = RlBase(agent).decide(state), RlHybrid(agent).decide(state)
    assert dict(base.allocation) == {0: Placement((0,), (4,))}
    assert {row: base.reasons[row] for row in (1, 2)} == dict.fromkeys(
        (1, 2), "deferred: the learned policy gives waiting a probability of 100%"
    )
    expected = {0: Placement((0,), (4,)), 2: Placement((0,), (4,)), 3: Placement((1,), (4,)), 1: Placement((2,), (8,))}
    assert dict(hybrid.allocation) == expected
    assert hybrid.reasons[3].startswith("the learned policy did not start it")
    assert isinstance(RlBase(agent), Policy)
    one = RlHybrid(agent, greedy="one")
    assert dict(one.decide(state).allocation) == {row: expected[row] for row in (0, 2)}
    # Where the agent starts a job, the rule starts none.
    eager = agent_of(Encoding(), wait=-1e6)
    assert RlHybrid(eager, greedy="one").decide(state) == RlBase(eager).decide(state)
    with pytest.raises(ValueError, match="greedy"):
        RlHybrid(agent, greedy="some")


def test_an_agent_that_waits_while_nothing_runs_is_overruled() -> None:
    state = cluster([Node()] * 4, [Job(gpus=8), Job(gpus=4)])
    decision = RlBase(agent_of(Encoding(), wait=1e6)).decide(state)
    assert len(decision.allocation) == 1
    assert next(iter(decision.reasons.values())).startswith("chosen by the learned policy (probability 0%): ")


def test_other_clusters_are_refused() -> None:
    with pytest.raises(EncoderError, match="trained for 4 nodes"):
        RlBase(agent_of(Encoding())).decide(cluster([Node()] * 2, []))


@pytest.mark.parametrize("kind", [RlBase, RlHybrid])
def test_a_whole_run_of_the_simulator_finishes_every_job(kind: type[RlBase]) -> None:
    env = ContentionEnv(traces=ContentionRL(jobs=60, demands=tuple(range(1, 33)), arrivals="poisson", load=0.9))
    env.reset(seed=1)
    profiles = paper_profiles("contention-rl")
    models = build(["link-sharing"], topology=env.cluster.topology, profiles=profiles)
    policy = kind(agent_of(Encoding(), seed=3))
    simulation = Simulation(env.trace, env.cluster, policy, Settings(), models, profiles)
    simulation.run()
    assert len(simulation.finished.index) == 60


# Weights


def saved(folder: Path, **changed: Any) -> Encoding:
    encoding = Encoding(candidates=2, cells="features", usual=(0.1, 0.2, 0.3))
    recipe = settings_kept(encoding, Recipe(hidden=16, pair=8)) | changed
    card = draft(
        system=SYSTEM,
        recipe=recipe,
        seed=0,
        encoder=NAME,
        shapes=[encoding.supports],
        data="none",
        data_sha256="0" * 64,
    )
    weights.save(folder, SYSTEM, network_of(encoding).state_dict(), card)
    return encoding


def test_weights_and_their_card_make_the_agent_that_was_saved(tmp_path: Path) -> None:
    encoding = saved(tmp_path)
    kept = json.loads((tmp_path / f"{SYSTEM}.json").read_text())["recipe"]
    assert encoding_of(kept) == encoding
    state = cluster([Node()] * 4, [Job(gpus=gpus) for gpus in (8, 4, 2, 8, 16)])
    loaded, made = ContentionAgent.load(str(tmp_path)), ContentionAgent(encoding, network_of(encoding))
    assert loaded.encoder.encoding == encoding
    assert RlBase(loaded).decide(state) == RlBase(made).decide(state)


@pytest.mark.parametrize(
    "changed",
    [
        {"num_nodes": 8},
        {"hidden": 32},
        {"cells": "scalar"},
        {"nodes": "trees"},
        {"hidden": -1},
        {"usual_bandwidth": "x"},
    ],
)
def test_a_card_of_another_network_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    saved(tmp_path, **changed)
    with pytest.raises(WeightsError, match=SYSTEM):
        ContentionAgent.load(str(tmp_path))


def test_weights_that_are_damaged_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / f"{SYSTEM}.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="SHA-256"):
        ContentionAgent.load(str(tmp_path))
