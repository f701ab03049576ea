"""Predictions of policies equal the simulator's slowdown models, on random states with complete profiles."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.api import Decision
from policies.model import ClusterState, Nodes, Pairs, Placement, ProfileTable
from policies.speeds.contention_model import ContentionModel, Law
from policies.speeds.job_profiles import TYPICAL
from policies.state.ring_reduction import RL_TAPS_RING
from policies.wire.messages import parse_state, serialize_state
from simulator.cluster.cluster import Cluster, cluster_of
from simulator.engine.simulation import Simulation
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.simulator.engine.build import FREE, trace_of

PAPERS = paper_profiles()
IN_TABLE = ["FSDP", "MoE", "DLRM", "GraphSage"]
OTHERS = ["vgg16", "resnet18", "unknown model", "MoE"]
LAWS = {"link-sharing": IN_TABLE + OTHERS, "pair-table": IN_TABLE, "link-sharing,pair-table": IN_TABLE + OTHERS}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to three racks, their links wider or narrower than others."""
    gpus, nodes = draw(st.sampled_from([2, 4, 8])), draw(st.integers(2, 4))
    return cluster_of(
        {
            "nodes": [{"count": nodes, "gpus": gpus, "rack": name} for name in "abc"[: draw(st.integers(1, 3))]],
            "network": {
                "kind": "racks",
                "nic_gbs": draw(st.sampled_from([0.5, 5.0, 12.5, 25.0])),
                "uplink_gbs": draw(st.sampled_from([0.25, 5.0, 6.25, 25.0])),
                "pcie_gbs": draw(st.sampled_from([8.0, 16.0])),
            },
        }
    )


@st.composite
def settled(draw: st.DrawFn, cluster: Cluster) -> dict[int, Placement]:
    """Jobs where they run, on whatever nodes."""
    free = list(cluster.gpus)
    placements: dict[int, Placement] = {}
    for _ in range(draw(st.integers(1, 8))):
        nodes = [node for node in draw(st.permutations(range(len(free))))[: draw(st.integers(1, 4))] if free[node]]
        counts = {node: draw(st.integers(1, free[node])) for node in nodes}
        for node, count in counts.items():
            free[node] -= count
        if counts:
            placements[len(placements)] = Placement.of(counts)
    return placements


def started(
    cluster: Cluster, placements: dict[int, Placement], models: list[str], batches: list[int], slowdown: str
) -> Simulation:
    gpus = [placement.num_gpus for placement in placements.values()]
    sizes = [batch * count for batch, count in zip(batches, gpus, strict=True)]
    trace = trace_of(*[(0, count, 1000) for count in gpus], model=models, batch_size=sizes)
    made = build(slowdown.split(","), topology=cluster.topology, profiles=PAPERS)
    simulation = Simulation(trace, cluster, None, FREE, made, PAPERS)
    simulation.advance()
    simulation.state()
    return simulation


def speeds(simulation: Simulation) -> dict[int, float]:
    return {job.index: job.speed for job in simulation.jobs() if job.nodes}


@settings(max_examples=120, deadline=None)
@given(data=st.data(), slowdown=st.sampled_from(sorted(LAWS)))
def test_speeds_are_those_of_the_simulator(data: st.DataObject, slowdown: str) -> None:
    # Given jobs on a cluster, all but one of which run
    where = data.draw(clusters())
    placements = data.draw(settled(where))
    count = len(placements)
    models = data.draw(st.lists(st.sampled_from(LAWS[slowdown]), min_size=count, max_size=count))
    batches = data.draw(st.lists(st.sampled_from([32, 128]), min_size=count, max_size=count))
    last = data.draw(st.sampled_from(sorted(placements)))
    simulation = started(where, placements, models, batches, slowdown)
    simulation.apply(Decision({row: placement for row, placement in placements.items() if row != last}))
    # Then each runs as predicted, also by a policy server that reads it from the wire
    before, state = speeds(simulation), simulation.state()
    model = ContentionModel(state)
    assert {row: model.speed(row) for row in before} == before
    served = ContentionModel(parse_state(serialize_state(state)))
    assert {row: served.speed(row) for row in before} == before
    # And what the last one would do is what it does
    effect = model.effect(last, placements[last])
    simulation.apply(Decision(placements))
    after = speeds(simulation)
    assert effect.own == pytest.approx(after[last], abs=1e-12)
    lost = {row: before[row] - after[row] for row in before}
    assert effect.taken == pytest.approx(sum(lost.values()), abs=1e-9)
    if effect.loser >= 0:
        assert lost[effect.loser] == max(lost.values())
    # And adding it, and removing it again, gives what is there with it and without it
    model.add(last, placements[last])
    assert {row: model.speed(row) for row in after} == after
    twin = model.copy()
    model.remove(last)
    assert {row: model.speed(row) for row in before} == before
    # And a copy goes its own way, as does a model that begins with some of them
    assert {row: twin.speed(row) for row in after} == after
    some = ContentionModel(state, staying=state.running[:1])
    for row in state.running[1:].tolist():
        some.add(row, placements[row])
    assert {row: some.speed(row) for row in before} == before


def two_jobs(profiles: ProfileTable | None, *, nic: float = 10.0, rack: tuple[int, ...] = (0, 0)) -> ClusterState:
    """Return a state in which one job runs on both nodes and the other could."""
    state = cluster([Node()] * len(rack), [Job(gpus=8, occupied={0: 4, 1: 4}), Job(gpus=8)])
    nodes: Nodes = dataclasses.replace(
        state.nodes, rack=np.array(rack), nic_gbyte_s=np.full(len(rack), nic) if nic else None
    )
    return dataclasses.replace(state, nodes=nodes, profiles=profiles)


def profiles_of(compute_s: float, size: float, **columns: object) -> ProfileTable:
    nothing = np.full(1, math.nan)
    return ProfileTable(
        models=("it",),
        of_job=np.array([0, 0]),
        locality=np.full((1, 4), math.nan),
        bytes_per_step=np.array([size]),
        compute_s=np.array([compute_s]),
        cpu_cores=nothing,
        pcie_gbyte_s=nothing,
        **columns,  # type: ignore[arg-type] # by name
    )


BOTH_NODES = Placement((0, 1), (4, 4))


def test_without_a_measured_ring_bytes_and_bandwidth_count() -> None:
    # 10 GB at 10 GB/s between two nodes take 1 s, and so does computing: 2 s alone on two nodes, 3 s beside another;
    # the ideal is one node, where nothing is sent
    model = ContentionModel(two_jobs(profiles_of(1.0, 1e10)))
    assert model.by_links and not model.by_pairs
    assert model.speed(0) == pytest.approx(1 / 2)
    effect = model.effect(1, BOTH_NODES)
    assert [effect.own, effect.taken, effect.loser] == pytest.approx([1 / 3, 1 / 2 - 1 / 3, 0])
    assert effect.net == pytest.approx(1 / 6)
    assert effect.alone == pytest.approx(1 / 2)
    assert model.effect(1, Placement((1,), (8,))).own == 1.0


def test_with_the_law_none_no_job_is_slowed_down() -> None:
    measured = two_jobs(profiles_of(1.0, 1e10, pairs=Pairs.of({("it", "it"): 0.5}), ring=RL_TAPS_RING))
    model = ContentionModel(measured, Law.NOTHING)
    assert not model.by_links and not model.by_pairs
    effect = model.effect(1, BOTH_NODES)
    assert (model.speed(0), effect.own, effect.taken, effect.alone) == (1.0, 1.0, 0.0, 1.0)


def test_sensitivity_is_the_loss_beside_another_job() -> None:
    # On two nodes 1 s of computing and 1 s of sending, or 2 s where the links are shared
    assert ContentionModel(two_jobs(profiles_of(1.0, 1e10))).at_stake(1, 8) == pytest.approx(1 / 2 - 1 / 3)
    assert ContentionModel(two_jobs(profiles_of(1.0, 0.0))).at_stake(1, 8) == 0.0


def test_communication_hidden_behind_computing_costs_nothing() -> None:
    hidden = profiles_of(1.0, 1e10, overlap=np.array([1.0]), hiding=np.array([0.5]))
    assert ContentionModel(two_jobs(hidden)).speed(0) == pytest.approx(1 / 1.5)


def test_slowing_a_larger_job_costs_more_when_jobs_are_weighted_by_gpus() -> None:
    state = two_jobs(profiles_of(1.0, 1e10))
    alike, weighted = ContentionModel(state), ContentionModel(state, job_values=[8.0, 2.0])
    assert weighted.effect(1, BOTH_NODES).taken == pytest.approx(4 * alike.effect(1, BOTH_NODES).taken)


@pytest.mark.parametrize("profiles", [None, profiles_of(math.nan, math.nan)])
def test_jobs_without_measurements_have_typical_values(profiles: ProfileTable | None) -> None:
    usual = dataclasses.replace(two_jobs(profiles_of(TYPICAL.compute_s, TYPICAL.bytes)), time_s=0.0)
    for state in (two_jobs(profiles), dataclasses.replace(two_jobs(profiles), time_s=0.0)):
        model, same = ContentionModel(state), ContentionModel(usual)
        assert model.is_typical(0) and not same.is_typical(0)
        assert model.speed(0) == same.speed(0)
        assert model.effect(1, BOTH_NODES) == same.effect(1, BOTH_NODES)


def test_links_of_unknown_speed_have_the_typical_speed_and_unknown_uplinks_limit_no_job() -> None:
    unknown, known = two_jobs(profiles_of(1.0, 1e10), nic=0), two_jobs(profiles_of(1.0, 1e10), nic=12.5)
    assert ContentionModel(unknown).effect(1, BOTH_NODES) == ContentionModel(known).effect(1, BOTH_NODES)
    apart = two_jobs(profiles_of(1.0, 1e10), rack=(0, 1, 0, 1))
    model = ContentionModel(apart)
    assert (
        model.effect(1, Placement((2, 3), (4, 4))).taken == 0
    )  # only the uplinks are shared, each as fast as two NICs
    narrow = dataclasses.replace(apart, nodes=dataclasses.replace(apart.nodes, uplink_gbyte_s=np.full(4, 10.0)))
    assert ContentionModel(narrow).effect(1, Placement((2, 3), (4, 4))).taken > 0.1


def test_only_pairs_count_once_most_of_them_were_measured() -> None:
    few = Pairs.of({("other", "other"): 0.5})
    enough = Pairs.of({("it", "it"): 0.5})
    laws = {
        (pairs, ring): ContentionModel(
            two_jobs(profiles_of(1.0, 1e10, pairs=table, ring=RL_TAPS_RING if ring else None))
        )
        for pairs, table in (("few", few), ("enough", enough))
        for ring in (False, True)
    }
    found = {key: (model.by_links, model.by_pairs) for key, model in laws.items()}
    assert found == {
        ("few", False): (True, False),
        ("few", True): (True, True),
        ("enough", False): (False, True),
        ("enough", True): (True, True),
    }
    effect = laws["enough", False].effect(1, BOTH_NODES)
    assert (effect.own, effect.taken) == (0.5, 0.5)


def test_the_law_of_the_options_is_used() -> None:
    state = two_jobs(profiles_of(1.0, 1e10, pairs=Pairs.of({("it", "it"): 0.5})))
    assert ContentionModel(state, Law.LINKS).speed(0) == pytest.approx(1 / 2)
    assert ContentionModel(state, Law.PAIRS).speed(0) == 1.0
    assert ContentionModel(state, Law.BOTH).effect(1, BOTH_NODES).own == pytest.approx(1 / 3 * 0.5)


def test_the_typical_values_are_the_medians_of_contention_rl() -> None:
    known = ModelProfiles(paper_profiles("contention-rl").models, {}, PAPERS.interference).unknown
    assert pytest.approx((known.compute_s, known.bytes), rel=0.01) == (TYPICAL.compute_s, TYPICAL.bytes)
