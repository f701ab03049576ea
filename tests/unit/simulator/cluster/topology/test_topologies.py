"""Generated topologies: the papers' sizes and capacities, and properties of paths and rings in all of them."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cluster.topology import Topology, bcube, fat_tree, flat, rack_tree, rl_taps, vl2


def named(topology: Topology, links: tuple[int, ...]) -> list[str]:
    return [topology.link_name(link) for link in links]


def test_rl_taps_has_the_links_of_its_table_1() -> None:
    topology = rl_taps()
    assert topology.num_nodes == 8
    assert topology.racks == (0, 0, 1, 1, 2, 2, 3, 3)
    path = topology.path(0, 3, source_group=1, target_group=0)
    assert named(topology, path) == ["node 0 NIC 1", "rack 0 uplink", "rack 1 uplink", "node 3 NIC 0"]
    assert [topology.capacity[link] for link in path] == [12.5, 6.25, 6.25, 12.5]
    assert topology.capacity[topology.pcie(3, 1)] == 40.0
    assert topology.capacity[topology.between_sockets(3)] == 38.5
    assert topology.link_name(topology.between_sockets(3)) == "node 3 sockets"
    assert topology.link_name(topology.pcie(7, 1)) == "node 7 PCIe 1"


def test_marls_fat_tree_has_2000_servers_in_20_pods() -> None:
    topology = fat_tree([4] * 2000, [2] * 2000)
    assert max(topology.pods) + 1 == 20
    assert topology.num_racks == 200
    path = topology.path(0, 1999)
    assert [topology.capacity[link] for link in path] == [1.25, 25.0, 500.0, 500.0, 25.0, 1.25]
    assert [topology.capacity[link] for link in topology.path(0, 10)] == [1.25, 25.0, 25.0, 1.25]
    assert [topology.capacity[link] for link in topology.path(0, 9)] == [1.25, 1.25]


def test_marls_vl2_has_2000_servers_below_20_aggregation_switches() -> None:
    topology = vl2([4] * 2000, [2] * 2000)
    assert (topology.num_racks, max(topology.pods) + 1) == (100, 20)
    path = topology.path(0, 1999)
    assert [topology.capacity[link] for link in path] == [0.125, 2.5, 12.5, 12.5, 2.5, 0.125]


def test_marls_bcube_has_1296_servers_with_four_ports() -> None:
    topology = bcube([4] * 1296, [2] * 1296)
    assert topology.num_racks == 216
    assert len(topology.routes.nics(5)) == 4
    assert [topology.capacity[link] for link in topology.routes.nics(5)] == [1.25, 2.5, 5.0, 5.0]
    assert named(topology, topology.path(0, 1)) == ["node 0 port 0", "node 1 port 0"]
    assert named(topology, topology.path(0, 7)) == ["node 0 port 1", "node 6 port 1", "node 6 port 0", "node 7 port 0"]


def test_groups_of_gpus() -> None:
    topology = flat([8, 5, 1], [2, 2, 1])
    assert [topology.group_of(0, gpu) for gpu in range(8)] == [0] * 4 + [1] * 4
    assert topology.group_sizes(1) == (3, 2)
    assert topology.group_sizes(2) == (1,)
    assert sum(topology.group_of(1, gpu) for gpu in range(5)) == 2
    with pytest.raises(IndexError):
        topology.group_of(2, 1)


ALL = {
    "flat": flat([8] * 7, [2] * 7),
    "racks": rack_tree([8] * 9, [2] * 9, [0, 1, 2, 0, 1, 2, 0, 0, 3]),
    "rl-taps": rl_taps(),
    "fat-tree": fat_tree([4] * 23, [2] * 23),
    "vl2": vl2([4] * 50, [2] * 50, servers=3),
    "bcube": bcube([4] * 27, [2] * 27, n=3),
    "bcube, not full": bcube([4] * 20, [2] * 20, n=3),
}


@pytest.mark.parametrize("kind", ALL)
def test_paths_end_at_the_nodes_own_links_and_are_as_long_both_ways(kind: str) -> None:
    topology = ALL[kind]
    assert topology.path(3, 3) == ()
    for a, b in combinations(range(topology.num_nodes), 2):
        there, back = topology.path(a, b), topology.path(b, a)
        assert there[0] in topology.routes.nics(a)
        assert there[-1] in topology.routes.nics(b)
        assert len(there) == len(set(there)) == len(back) or "not full" in kind


@pytest.mark.parametrize("kind", [kind for kind in ALL if "bcube" not in kind])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_ring_in_a_tree_passes_the_links_of_all_its_paths_once(kind: str, seed: int) -> None:
    topology = ALL[kind]
    rng = random.Random(seed)
    nodes = rng.sample(range(topology.num_nodes), rng.randint(1, topology.num_nodes))
    ring = topology.ring(nodes)
    groups = range(len(topology.routes.nics(0)))
    paths = {link for a, b in combinations(nodes, 2) for group in groups for link in topology.path(a, b, group, group)}
    assert set(ring) == paths
    own = {link for node in nodes for link in topology.routes.nics(node)}
    assert all(times == pytest.approx(1 / len(groups) if link in own else 1) for link, times in ring.items())


def test_a_ring_in_a_bcube_takes_every_path_from_one_to_the_next() -> None:
    topology = ALL["bcube"]
    assert topology.ring([4]) == {}
    ring = topology.ring([0, 1, 2])
    assert {topology.link_name(link): times for link, times in ring.items()} == {
        "node 0 port 0": 1.0,
        "node 1 port 0": 1.0,
        "node 2 port 0": 1.0,
    }
    around = topology.ring([0, 4, 8])
    assert set(around) == {link for a, b in ((0, 4), (4, 8), (8, 0)) for link in topology.path(a, b)}
