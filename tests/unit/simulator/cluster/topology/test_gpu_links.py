"""Links that sets of GPUs use: against the paths of the topology, and by hand on the cluster of RL-TAPS."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.cluster.topology import Topology, bcube, fat_tree, flat, rack_tree, rl_taps, vl2
from simulator.cluster.topology.gpu_links import GpuLinks, gpu_links
from simulator.errors import ClusterError

TREES = {
    "rl-taps": rl_taps(),
    "flat": flat([4, 8, 1], [2, 4, 1]),
    "racks": rack_tree([4] * 6, [2] * 6, [0, 0, 1, 1, 2, 2]),
    "fat-tree": fat_tree([2] * 16, [1] * 16),
    "vl2": vl2([4] * 8, [2] * 8, servers=2),
}


def used(links: GpuLinks, *gpus: int) -> set[str]:
    chosen = np.zeros(links.num_gpus, dtype=np.bool_)
    chosen[list(gpus)] = True
    return {name for name, is_used in zip(links.names, links.used(chosen).tolist(), strict=True) if is_used}


@pytest.mark.parametrize("name", TREES)
def test_two_gpus_use_the_links_of_the_path_between_them(name: str) -> None:
    topology: Topology = TREES[name]
    links = gpu_links(topology)
    where = [
        (node, topology.group_of(node, gpu)) for node in range(topology.num_nodes) for gpu in range(topology.gpus[node])
    ]
    assert links.node.tolist() == [node for node, _ in where]
    for one, (node, group) in enumerate(where):
        for other, (its_node, its_group) in enumerate(where):
            if one == other:
                assert links.distance[one, other] == 0
                continue
            path = set(topology.path(node, its_node, group, its_group))
            if node == its_node and group != its_group:
                path = {topology.between_sockets(node)}
            assert used(links, one, other) == {topology.link_name(link) for link in path}
            assert links.distance[one, other] == 2 + len(path)


def test_a_larger_set_uses_the_links_between_all_its_pairs() -> None:
    links = gpu_links(TREES["racks"])
    rng = np.random.default_rng(1)
    for _ in range(50):
        gpus = rng.choice(links.num_gpus, size=rng.integers(1, 7), replace=False).tolist()
        assert used(links, *gpus) == set().union(
            *(used(links, one, other) for one in gpus for other in gpus if one != other)
        )


def test_the_cluster_of_rl_taps_by_hand() -> None:
    links = gpu_links(rl_taps())
    assert (links.num_gpus, links.num_racks, links.private_gbs) == (32, 4, 40.0)
    assert links.socket[:6].tolist() == [0, 0, 1, 1, 2, 2]
    assert used(links, 0) == used(links, 0, 1) == set()
    assert used(links, 0, 2) == {"node 0 sockets"}
    assert used(links, 0, 4) == {"node 0 NIC 0", "node 1 NIC 0"}
    assert used(links, 3, 8) == {"node 0 NIC 1", "node 2 NIC 0", "rack 0 uplink", "rack 1 uplink"}
    assert dict(zip(links.names, links.gbs.tolist(), strict=True))["rack 3 uplink"] == 6.25
    # 2 GPU links; with the sockets' link 3; with two NICs 4; with two uplinks 6.
    assert [int(links.distance[0, other]) for other in (1, 2, 4, 8)] == [2, 3, 4, 6]
    assert links.spread(np.isin(np.arange(32), [0, 1, 2])) == 2 + 3 + 3


def test_a_network_that_is_no_tree_is_refused() -> None:
    with pytest.raises(ClusterError, match="no tree"):
        gpu_links(bcube([1] * 4, [1] * 4, n=2, k=1))
