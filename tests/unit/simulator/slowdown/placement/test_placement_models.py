"""Models of one job alone: their published values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.cluster.topology import Inside, Topology
from simulator.slowdown.placement.gpu_links import GpuLinks
from simulator.slowdown.placement.locality import Locality
from simulator.slowdown.placement.node_speed import NodeSpeed
from simulator.slowdown.placement.scaling import Scaling
from simulator.slowdown.profiles.papers import paper_profiles
from tests.unit.simulator.slowdown.examples import KNOWN, PROFILES, RACKS, at, factors_of


@pytest.mark.parametrize(
    ("where", "factor"),
    [
        ({0: 1}, 1.0),
        ({0: 4}, 1.0),
        ({0: 2, 1: 2}, 0.5),
        ({0: 2, 3: 2}, 0.25),
        ({0: 5}, 1.0),
        ({0: 4, 1: 2}, 0.5 / 0.8),
        ({0: 8, 1: 8}, 1.0),
        ({0: 8, 5: 8}, 0.5),
        ({0: 8, 1: 8, 2: 8, 3: 8}, 1.0),
    ],
)
def test_locality_is_the_curve_over_the_best_that_so_many_gpus_can_have(where: dict[int, int], factor: float) -> None:
    assert factors_of(Locality(RACKS, PROFILES), at(0, "tiered", where)) == [pytest.approx(factor)]


def test_locality_without_a_curve_is_the_time_of_the_ring() -> None:
    # 12.5 GB around two nodes: 12.5 GB through each NIC of 12.5 GB/s, or through uplinks of 6.25.
    in_rack, across, enough = factors_of(
        Locality(RACKS, PROFILES), at(0, "even", {0: 2, 1: 2}), at(1, "even", {0: 2, 3: 2}), at(2, "even", {1: 4})
    )
    assert (in_rack, across, enough) == (pytest.approx(1 / 2), pytest.approx(1 / 3), 1.0)


def test_published_localities_of_sched2() -> None:
    model = Locality(RACKS, paper_profiles())
    names = ("VGG16", "Transformer", "DeepSpeech", "Inception3")
    found = factors_of(model, *(at(job, name, {0: 2, 1: 2}) for job, name in enumerate(names)))
    assert found == [pytest.approx(1 / ratio) for ratio in (5.9, 2.7, 1.6, 1.4)]


def test_a_job_at_another_size() -> None:
    known = {"law": replace(KNOWN["even"], scaling=(0.1, 0.01)), "even": KNOWN["even"]}
    model = Scaling(RACKS, replace(PROFILES, models=known))
    smaller, larger, asked = factors_of(
        model, at(0, "law", {0: 1}, asked=4), at(1, "even", {0: 8, 1: 8}, asked=8), at(2, "even", {2: 8})
    )
    assert smaller == pytest.approx((1 + 0.3 + 0.12) / 4)
    assert larger == pytest.approx(2 / 2)
    assert asked == 1.0


def test_a_gang_is_as_fast_as_its_slowest_node() -> None:
    topology: Topology = replace(RACKS, speed=(2.0, 1.0, 0.5, 2.0, 2.0, 2.0))
    found = factors_of(
        NodeSpeed(topology, PROFILES), at(0, "", {0: 1}), at(1, "", {0: 1, 1: 1}), at(2, "", {1: 1, 2: 1})
    )
    assert found == [1.0, 0.5, 0.25]
    assert factors_of(NodeSpeed(RACKS, PROFILES), at(0, "", {0: 1})) == [1.0]


@pytest.mark.parametrize(("model", "factor"), [("resnet-50", 0.5), ("Transformer", 1 / 1.5), ("DLRM", 1.0)])
def test_models_may_feel_a_share_of_the_speed_of_nodes(model: str, factor: float) -> None:
    topology: Topology = replace(RACKS, speed=(2.0, 1.0, 1.0, 1.0, 1.0, 1.0))
    profiles = paper_profiles()
    slow = at(0, model, {0: 4, 1: 4})
    assert factors_of(NodeSpeed(topology, profiles, "profile"), slow) == [pytest.approx(factor)]
    assert factors_of(NodeSpeed(topology, profiles, "all"), slow) == [0.5]
    assert factors_of(NodeSpeed(topology, profiles, "profile"), at(0, model, {0: 4})) == [1.0]


INSIDE = Topology(
    **{
        name: getattr(RACKS, name)
        for name in ("kind", "gpus", "sockets", "racks", "pods", "network", "names", "routes")
    },
    inside=Inside(pcie_gbs=10.0, socket_gbs=5.0, nvlink_gbs=50.0),
    nvlink=(4,) * 6,
)


@pytest.mark.parametrize(
    ("masks", "now_gbs", "best_gbs"),
    [
        ({0: 0b11}, 50.0, 50.0),
        ({0: 0b1_0001}, 5.0, 50.0),
        ({0: 0b1_1111}, 5.0, 5.0),
        ({0: 0b11, 1: 0b11}, 12.5, 12.5),
        ({0: 0b11, 1: 0b1_0001}, 5.0, 12.5),
        ({0: 0b1, 1: 0b1}, 12.5, 12.5),
    ],
)
def test_the_farthest_link_inside_nodes_against_the_closest_gpus(
    masks: dict[int, int], now_gbs: float, best_gbs: float
) -> None:
    counts = {node: mask.bit_count() for node, mask in masks.items()}
    gpus = sum(counts.values())
    [factor] = factors_of(GpuLinks(INSIDE, PROFILES), replace(at(0, "even", counts), gpu_masks=masks))
    sent = 2 * (gpus - 1) / gpus * 12.5
    assert factor == pytest.approx((1 + sent / best_gbs) / (1 + sent / now_gbs))


def test_a_job_whose_gpus_are_not_known_is_not_slowed_down_by_links_inside_nodes() -> None:
    assert factors_of(GpuLinks(INSIDE, PROFILES), at(0, "even", {0: 8}), at(1, "even", {1: 1})) == [1.0, 1.0]
