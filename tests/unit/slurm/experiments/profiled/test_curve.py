"""The throughput by tier that profiling runs show, and the placements they are run at."""

from __future__ import annotations

import pytest

from policies.placement.locality_tiers import ACROSS_RACKS, SAME_RACK, SAME_SOCKET
from slurm.experiments.profiled.__main__ import Profiled, curve_of, placements
from slurm.experiments.profiled.live_cluster import NODES, RACK
from slurm.experiments.turns.racks import topology_conf


def run(tier: int, steps_per_s: float) -> Profiled:
    return Profiled(("n1",), tier, steps_per_s, 2, 30.0)


def test_a_tier_is_the_geometric_mean_of_its_runs_and_never_above_a_closer_one() -> None:
    runs = [run(SAME_SOCKET, 10.0), run(SAME_RACK, 4.0), run(SAME_RACK, 9.0), run(ACROSS_RACKS, 8.0)]
    assert curve_of(runs) == pytest.approx([1.0, 1.0, 0.6, 0.6])


def test_the_program_is_profiled_from_one_node_to_all_racks() -> None:
    assert [(len(nodes), tier) for nodes, tier in placements()] == [
        (1, SAME_SOCKET),
        (2, SAME_RACK),
        (3, SAME_RACK),
        (6, ACROSS_RACKS),
    ]
    assert placements()[3][0] == ("n1", "n6", "n11", "n2", "n7", "n12")


def test_every_node_is_in_one_rack() -> None:
    assert topology_conf(NODES // RACK, RACK).splitlines() == [
        "SwitchName=rack0 Nodes=n[1-5]",
        "SwitchName=rack1 Nodes=n[6-10]",
        "SwitchName=rack2 Nodes=n[11-15]",
        "SwitchName=top Switches=rack[0-2]",
    ]
