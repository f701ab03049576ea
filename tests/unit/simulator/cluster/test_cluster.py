"""Clusters: `NxG`, TOML files, and the messages for wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.state.gpu_layout import GpuLayout
from simulator.cluster.cluster import Cluster, parse_cluster
from simulator.errors import ClusterError

MIXED = """
[[nodes]]
names = "gpu[01-03]"
gpus = 8
rack = "a"

[[nodes]]
count = 2
gpus = 2
sockets = 1
speed = 0.5
rack = "b"

[network]
nic_gbs = 1.25
uplink_gbs = 2.5
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return str(path)


def test_nodes_times_gpus_is_one_rack() -> None:
    cluster = parse_cluster("3x8")
    assert cluster == Cluster.uniform(3, 8)
    assert cluster.gpus == (8, 8, 8)
    assert cluster.names == ("n0", "n1", "n2")
    assert cluster.racks == (0, 0, 0)
    assert cluster.speed == (1.0, 1.0, 1.0)
    assert cluster.topology.group_sizes(0) == (4, 4)
    assert cluster.num_gpus == 24


def test_a_file_may_mix_nodes_and_name_racks(tmp_path: Path) -> None:
    cluster = parse_cluster(written(tmp_path, MIXED))
    assert cluster.names == ("gpu01", "gpu02", "gpu03", "n3", "n4")
    assert cluster.gpus == (8, 8, 8, 2, 2)
    assert cluster.sockets == (2, 2, 2, 1, 1)
    assert cluster.speed == (1.0, 1.0, 1.0, 0.5, 0.5)
    assert cluster.racks == (0, 0, 0, 1, 1)
    assert cluster.topology.kind == "racks"
    path = cluster.topology.path(0, 4)
    assert [cluster.topology.capacity[link] for link in path] == [1.25, 2.5, 2.5, 1.25]


@pytest.mark.parametrize(
    ("kind", "nodes", "racks"), [("fat-tree", 16, 8), ("vl2", 40, 2), ("bcube", 36, 6), ("flat", 5, 1)]
)
def test_kinds_of_networks_without_further_keys(tmp_path: Path, kind: str, nodes: int, racks: int) -> None:
    text = f'[[nodes]]\ncount = {nodes}\ngpus = 4\n[network]\nkind = "{kind}"\n'
    assert parse_cluster(written(tmp_path, text)).topology.num_racks == racks


NODES = "[[nodes]]\ncount = 4\ngpus = 4\n"


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("", "nodes", "no nodes"),
        ("nodes = 3", "nodes", "no nodes"),
        ("[[nodes]]\ngpus = 4", "nodes[0].count", "missing"),
        ("[[nodes]]\ncount = 4", "nodes[0].gpus", "missing"),
        (NODES + "[[nodes]]\ncount = 4\ngpus = -1", "nodes[1].gpus", "-1 is not a whole number"),
        (NODES + "speed = nan", "nodes[0].speed", "not a positive number"),
        (NODES + "speed = " + "9" * 400, "nodes[0].speed", "not a positive number"),
        (NODES + "colour = 1", "nodes[0].colour", "take one of count, gpus"),
        (NODES + "sockets = 5", "nodes[0].sockets", "from 1 to 4"),
        (NODES + 'names = "a[1-3]"', "nodes[0].count", "4 nodes have 3 names"),
        (NODES + 'names = "a[1-"', "nodes[0].names", "not a list of nodes"),
        ('[[nodes]]\ngpus = 1\nnames = "a,a"', "nodes", "called a"),
        (NODES + 'rack = "a"\n' + NODES, "nodes", "two ways"),
        (NODES + '[network]\nkind = "mesh"', "network.kind", "flat, racks, fat-tree, vl2, bcube"),
        (NODES + '[network]\nkind = "flat"\nk = 3', "network.k", "is not a key here"),
        (NODES + '[network]\nkind = "fat-tree"\nk = 2', "network.k", "room for 2 nodes"),
        (NODES + '[network]\nkind = "vl2"\nk = 6', "network.k", "divisible by 4"),
        (NODES + '[network]\nkind = "bcube"\nk = 0\nn = 3', "network.k", "room for 3 nodes"),
        (NODES + '[network]\nkind = "fat-tree"\ntiers_gbs = [1]', "network.tiers_gbs", "3 tiers"),
        (NODES + '[network]\nkind = "fat-tree"\ntiers_gbs = 1', "network.tiers_gbs", "not a list"),
        (NODES + "[network]\nnic_gbs = 0", "network.nic_gbs", "not a positive number"),
        (NODES + "[network]\nrack_size = 0", "network.rack_size", "not a whole number"),
        (NODES + '[network]\nkind = "flat"\nrack_size = 2', "network.kind", "one rack"),
        (NODES + 'rack = "a"\n[network]\nkind = "bcube"', "network.kind", "its own racks"),
        ("network = 3\n" + NODES, "network", "not a table"),
    ],
)
def test_errors_of_wrong_files_have_file_key_and_mend(tmp_path: Path, text: str, key: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ClusterError) as raised:
        parse_cluster(path)
    assert raised.value.key == key
    assert raised.value.path == Path(path)
    assert says in str(raised.value)


@pytest.mark.parametrize("text", ["8", "8x", "0x8", "8x0", "x", "", "8x8x8", "-1x2", "1e3x4", "9999999x8", "no.toml"])
def test_an_invalid_cluster_is_refused(text: str) -> None:
    with pytest.raises(ClusterError):
        parse_cluster(text)


def test_a_file_that_is_no_toml_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"cluster\.toml: is not valid TOML"):
        parse_cluster(written(tmp_path, "a = = b"))


INSIDE = """
nodes = [{count = 1, gpus = 8, sockets = 2, switches = 4, nvlink = 4}, {count = 1, gpus = 6}]
network = {nvlink_gbs = 100.0, pcie_gbs = 12.0, bridge_gbs = 10.0, socket_gbs = 8.0}
"""


def test_gpus_inside_a_node_have_switches_nvlink_and_speeds(tmp_path: Path) -> None:
    cluster = parse_cluster(written(tmp_path, INSIDE))
    rich, plain = cluster.topology.gpu_layout(0), cluster.topology.gpu_layout(1)
    assert rich == GpuLayout(
        (0, 0, 0, 0, 1, 1, 1, 1), (0, 0, 1, 1, 2, 2, 3, 3), (1, 1, 1, 1, 2, 2, 2, 2), 100.0, 12.0, 10.0, 8.0
    )
    assert plain == GpuLayout((0, 0, 0, 1, 1, 1), (0, 0, 0, 1, 1, 1), (0,) * 6, None, 12.0, 10.0, 8.0)
    uniform = Cluster.uniform(2, 4).topology
    assert uniform.gpu_layout(1) == GpuLayout((0, 0, 1, 1), (0, 0, 1, 1), (0,) * 4, None, 16.0, 16.0, 16.0)
    assert Cluster.uniform(1, 65).topology.gpu_layout(0) is None


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("gpus = 8, switches = 3", "nodes[0].switches: 3 PCIe switches for 2 sockets; give a multiple of the sockets"),
        ("gpus = 8, switches = 16", "nodes[0].switches: 16 is not a whole number from 1 to 8"),
        ("gpus = 8, nvlink = 1", "nodes[0].nvlink: 1 is not a whole number from 2 to 8"),
        ("gpus = 8}]\nnetwork = {nvlink_gbs = 0", "network.nvlink_gbs: 0 is not a positive number"),
        ("gpus = 8}]\nnetwork = {bridge_gbs = 0", "network.bridge_gbs: 0 is not a positive number"),
    ],
)
def test_wrong_links_inside_a_node_are_refused(tmp_path: Path, block: str, complaint: str) -> None:
    end = "}" if "network" in block else "}]"
    with pytest.raises(ClusterError) as caught:
        parse_cluster(written(tmp_path, f"nodes = [{{count = 1, {block}{end}\n"))
    assert complaint in str(caught.value)
