"""Policies see the same numbers about models and links that the slowdown models of the simulation read."""

from __future__ import annotations

import numpy as np
import pytest

from policies.model import ClusterState
from simulator.cluster.cluster import Cluster, cluster_of, parse_cluster
from simulator.cluster.topology import bcube
from simulator.engine.simulation import Simulation
from simulator.engine.view.profile_columns import link_columns
from simulator.papers.contention_rl.features import JobFeatures
from simulator.slowdown.compose import Composite
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from tests.unit.simulator.engine.build import FREE, trace_of

TWO_RACKS = {
    "nodes": [{"count": 2, "gpus": 8, "rack": "a"}, {"count": 2, "gpus": 8, "rack": "b"}],
    "network": {"kind": "racks", "nic_gbs": 10.0, "uplink_gbs": 4.0, "pcie_gbs": 20.0},
}
PROFILES = paper_profiles("contention-rl")
MODELS = ["FSDP", "MoE", "unknown model", ""]


def seen(
    cluster: Cluster, *slowdown: str, profiles: ModelProfiles | None = PROFILES, wrap: bool = False
) -> ClusterState:
    trace = trace_of(*[(0, 4, 100)] * len(MODELS), model=MODELS)
    models = build(slowdown, topology=cluster.topology, profiles=PROFILES)
    made = Simulation(trace, cluster, None, FREE, [Composite(models)] if wrap else models, profiles)
    made.advance()
    return made.state()


def test_speeds_of_links_are_those_of_the_topology() -> None:
    nodes = seen(cluster_of(TWO_RACKS)).nodes
    assert nodes.nic_gbyte_s is not None and nodes.uplink_gbyte_s is not None and nodes.pcie_gbyte_s is not None
    assert nodes.nic_gbyte_s.tolist() == [10.0] * 4
    assert nodes.uplink_gbyte_s.tolist() == [4.0] * 4
    assert nodes.pcie_gbyte_s.tolist() == [20.0] * 4
    assert nodes.rack.tolist() == [0, 0, 1, 1]


def test_a_network_without_racks_switches_has_no_uplinks() -> None:
    columns = link_columns(bcube([4] * 4, [1] * 4, n=2))
    assert columns["nic_gbyte_s"].tolist() == [1.25] * 4
    assert np.isnan(columns["uplink_gbyte_s"]).all()


def test_models_have_the_numbers_of_their_profiles_and_unknown_ones_the_usual() -> None:
    profiles = seen(parse_cluster("4x8")).profiles
    assert profiles is not None and profiles.overlap is not None and profiles.hiding is not None
    assert profiles.models == ("FSDP", "MoE", "unknown model")
    assert profiles.of_job.tolist() == [0, 1, 2, -1]
    known = [PROFILES.of(model) for model in profiles.models]
    assert profiles.bytes_per_step.tolist() == [each.bytes for each in known]
    assert profiles.compute_s.tolist() == [each.compute_s for each in known]
    assert profiles.hiding.tolist() == [1.0] * 3 and profiles.overlap.tolist() == [0.0] * 3
    assert profiles.batch_per_gpu is not None and np.isnan(profiles.batch_per_gpu).all()
    assert profiles.job_batch_per_gpu is None


def test_losses_beside_neighbours_are_those_that_environments_show() -> None:
    cluster = parse_cluster("4x8")
    profiles, features = seen(cluster).profiles, JobFeatures(PROFILES, cluster.topology)
    assert profiles is not None and profiles.neighbour_loss is not None
    shown = [features.of(model)[2] for model in ("FSDP", "MoE")]
    assert profiles.neighbour_loss[:2].tolist() == pytest.approx(shown)
    assert np.isnan(profiles.neighbour_loss[2])


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(
    ("slowdown", "pairs", "ring"),
    [
        (("none",), False, False),
        (("pair-table",), True, False),
        (("link-sharing",), False, True),
        (("link-sharing", "pair-table"), True, True),
        (("max-min",), False, False),
    ],
)
def test_only_what_slows_jobs_down_can_have_been_measured(
    slowdown: tuple[str, ...], pairs: bool, ring: bool, wrap: bool
) -> None:
    profiles = seen(parse_cluster("4x8"), *slowdown, wrap=wrap and slowdown != ("none",)).profiles
    assert profiles is not None
    assert (profiles.pairs is not None, profiles.ring is not None) == (pairs, ring)
    if profiles.pairs is not None:
        assert profiles.pairs.table() == dict(PROFILES.pairs)
    if profiles.ring is not None:
        assert profiles.ring == PROFILES.ring


def test_speeds_of_nodes_are_shown_where_jobs_run_at_them() -> None:
    cluster = cluster_of({"nodes": [{"count": 1, "gpus": 8}, {"count": 1, "gpus": 8, "speed": 0.5}]})
    hidden = seen(cluster, "locality")
    assert hidden.nodes.gpu_speed is None and hidden.profiles is not None
    assert hidden.profiles.speed_sensitivity is None
    alike = seen(cluster, "locality", "node-speed")
    assert alike.nodes.gpu_speed is not None and alike.nodes.gpu_speed.tolist() == [1.0, 0.5]
    assert alike.profiles is not None and alike.profiles.speed_sensitivity is None
    known = seen(cluster, "node-speed:sensitivity=profile").profiles
    assert known is not None and known.speed_sensitivity is not None
    assert known.speed_sensitivity.tolist() == [PROFILES.of(model).speed_sensitivity for model in known.models]
    assert known.speed_sensitivity[:2].tolist() == [0.5, 0.5]


def test_without_profiles_there_are_none() -> None:
    assert seen(parse_cluster("4x8"), profiles=None).profiles is None
