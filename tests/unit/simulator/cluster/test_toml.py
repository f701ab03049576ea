"""A cluster that is written and read again is the same."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.serving.runtime.hostlist import expand, fold
from simulator.cluster.cluster import Cluster, cluster_of, parse_cluster, slurm_cluster
from simulator.cluster.toml import cluster_table, cluster_toml
from simulator.errors import ClusterError
from tests.unit.simulator.cluster.test_cluster import INSIDE, MIXED
from tests.unit.simulator.cluster.topology.test_slurm_topology import NODES, SWITCHES

RACKS = """
nodes = [{count = 2, gpus = 4, rack = "x"}, {names = "a,b7", gpus = 4, rack = 9}, {count = 1, gpus = 4, rack = "x"}]
network = {kind = "racks", nic_gbs = 3, uplink_gbs = 7.5, nics = 2, pcie_gbs = 20, socket_gbs = 1e-5}
"""
ONE_RACK = 'nodes = [{count = 3, gpus = 2}]\nnetwork = {kind = "racks"}\n'
FLAT = "nodes = [{count = 3, gpus = 2, speed = 0.25}, {count = 1, gpus = 1}]\nnetwork = {nic_gbs = 2}\n"
TREE = """
[[nodes]]
names = "a[1-2]"
gpus = 8
rack = "left"
[[nodes]]
count = 3
gpus = 4
speed = 0.5
rack = "right \\"2\\""
[[nodes]]
names = "lone"
gpus = 4
[network]
kind = "switches"
nic_gbs = 25
uplink_gbs = 3.5
pcie_gbs = 30
[[network.switches]]
name = "top"
[[network.switches]]
name = "left"
below = "top"
uplink_gbs = 50
[[network.switches]]
name = "right \\"2\\""
below = "middle"
[[network.switches]]
name = "middle"
below = "top"
"""


@pytest.mark.parametrize("text", [MIXED, RACKS, ONE_RACK, FLAT, TREE, INSIDE])
def test_what_was_read_is_written_and_read_again(tmp_path: Path, text: str) -> None:
    cluster = cluster_of(tomllib.loads(text))
    path = tmp_path / "again.toml"
    path.write_text(cluster_toml(cluster, ["a note", "one\nof two lines"]))
    assert parse_cluster(str(path)) == cluster
    assert cluster_of(cluster_table(cluster)) == cluster


@pytest.mark.parametrize("cluster", [Cluster.uniform(12, 8), slurm_cluster(SWITCHES, NODES), slurm_cluster("", NODES)])
def test_generated_clusters_are_written_and_read_again(cluster: Cluster) -> None:
    assert cluster_of(tomllib.loads(cluster_toml(cluster))) == cluster


def test_the_file_is_easy_to_read() -> None:
    assert cluster_toml(
        slurm_cluster("SwitchName=s Nodes=n[08-10]", "NodeName=n[08-10] Gres=gpu:8 Sockets=2"), ["Mine."]
    ) == (
        '# Mine.\n\n[[nodes]]\nnames = "n[08-10]"\ngpus = 8\nsockets = 2\nrack = "s"\n\n'
        '[network]\nkind = "switches"\nnic_gbs = 12.5\npcie_gbs = 16.0\nsocket_gbs = 37.5\n\n'
        '[[network.switches]]\nname = "s"\nuplink_gbs = 6.25\n'
    )


def test_a_tree_of_switches_has_paths_through_the_lowest_common_one() -> None:
    cluster = cluster_of(tomllib.loads(TREE))
    topology = cluster.topology
    assert cluster.racks == (0, 0, 1, 1, 1, 2)
    assert [topology.link_name(link) for link in topology.path(1, 2)] == [
        *("node 1 NIC", "switch left uplink"),
        *("switch middle uplink", 'switch right "2" uplink', "node 2 NIC"),
    ]
    assert [topology.capacity[link] for link in topology.path(1, 2)] == [25.0, 50.0, 3.5, 3.5, 25.0]


@pytest.mark.parametrize("kind", ["fat-tree", "vl2", "bcube"])
def test_networks_made_by_a_rule_are_not_written(kind: str) -> None:
    cluster = cluster_of({"nodes": [{"count": 4, "gpus": 4}], "network": {"kind": kind}})
    with pytest.raises(ClusterError, match=f"of kind {kind} is made by a rule.*; keep the file"):
        cluster_toml(cluster)


@pytest.mark.parametrize(
    ("change", "key", "says"),
    [
        ({"switches": []}, "network.switches", "there are none"),
        ({"switches": [{"name": "s"}, {"name": "s"}]}, "network.switches", "two switches have the same name"),
        ({"switches": [{"name": "t"}]}, "nodes", "'s' is not a switch"),
        ({"switches": [{"name": "s", "below": "t"}]}, "network.switches", "'t' is not a switch"),
        ({"switches": [{"name": "s", "below": 3}]}, "network.switches[0].below", "3 is not a name"),
        ({"switches": [{}]}, "network.switches[0].name", "None is not a name"),
        ({"switches": [{"name": "s", "speed": 1}]}, "network.switches[0].speed", "is not a key here"),
        (
            {"switches": [{"name": "s", "uplink_gbs": 0}]},
            "network.switches[0].uplink_gbs",
            "0 is not a positive number",
        ),
        ({"switches": [{"name": "s", "below": "s"}]}, None, "s is above itself"),
        ({"rack_size": 2, "switches": [{"name": "s"}]}, "network.rack_size", "is not a key here"),
    ],
)
def test_switches_that_are_no_tree_are_reported(change: dict, key: str | None, says: str) -> None:
    table = {"nodes": [{"count": 2, "gpus": 2, "rack": "s"}], "network": {"kind": "switches"} | change}
    with pytest.raises(ClusterError, match=says) as caught:
        cluster_of(table)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a"], "a"),
        (["n08", "n09", "n10", "n12"], "n[08-10,12]"),
        (["n9", "n10", "n011", "n3"], "n[9-10,011,3]"),
        (["a1", "b", "c", "a2", "a3", "7", "8"], "a1,b,c,a[2-3],[7-8]"),
    ],
)
def test_names_are_folded(names: list[str], short: str) -> None:
    assert fold(names) == short
    assert list(expand(short)) == names


@given(st.lists(st.from_regex(r"[a-z]{0,2}([0-9]{1,3}[a-z.-]?)?[0-9]{0,2}", fullmatch=True).filter(bool), min_size=1))
def test_folded_names_expand_to_themselves(names: list[str]) -> None:
    assert list(expand(fold(names))) == names
