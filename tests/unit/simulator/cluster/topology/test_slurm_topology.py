"""The topology of a live Slurm, from texts."""

from __future__ import annotations

import pytest

from policies.serving.runtime.hostlist import expand
from simulator.cluster.cluster import slurm_cluster
from simulator.errors import ClusterError

NODES = """
# compute
NodeName=DEFAULT Sockets=2
NodeName=gpu[01-04] CPUs=64 Sockets=2 Gres=gpu:a100:8(S:0-1) State=UNKNOWN
NodeName=old1 Gres=gpu:k80:2,gpu:v100:1,nic:2
NodeName=cpu[1-9] CPUs=64
NodeName=lone Gres=gpu:4 Sockets=2
PartitionName=all Nodes=ALL
"""
SWITCHES = """
SwitchName=leaf1 Nodes=gpu[01-02],cpu[1-9] LinkSpeed=40
SwitchName=leaf2 Nodes=gpu[03-04],old1  # the old row
SwitchName=spine \\
  Switches=leaf[1-2]
"""


def test_racks_are_the_switches_with_nodes() -> None:
    cluster = slurm_cluster(SWITCHES, NODES)
    assert cluster.names == ("gpu01", "gpu02", "gpu03", "gpu04", "old1", "lone")
    assert cluster.gpus == (8, 8, 8, 8, 3, 4)
    assert cluster.sockets == (2, 2, 2, 2, 1, 2)
    assert cluster.racks == (0, 0, 1, 1, 1, 2)
    topology = cluster.topology
    assert [topology.link_name(link) for link in topology.path(0, 2)] == [
        *("node 0 NIC", "switch leaf1 uplink", "switch leaf2 uplink", "node 2 NIC")
    ]
    assert [topology.capacity[link] for link in topology.path(0, 2)] == [12.5, 5.0, 6.25, 12.5]


def test_without_a_topology_all_is_one_rack() -> None:
    cluster = slurm_cluster("", NODES)
    assert set(cluster.racks) == {0}
    assert len(cluster.topology.path(0, 1)) == 2


def test_a_line_of_scontrol_is_read_past_the_kernel_and_before_the_reason() -> None:
    line = (
        "NodeName=a Gres=gpu:a100:4(S:0-1) Version=22.05.8 OS=Linux 6.1.0 #1 SMP Debian  RealMemory=9 FreeMem=1 Sockets=2 "
        "Boards=1 State=DOWN Reason=Gres=gpu:1 Sockets=1 [root@now]"
    )
    cluster = slurm_cluster("", line)
    assert (cluster.gpus, cluster.sockets) == ((4,), (2,))


@pytest.mark.parametrize(
    ("switches", "nodes", "says"),
    [
        ("", "NodeName=a CPUs=3", "no node has GPUs"),
        ("", "NodeName=a[ Gres=gpu:2", "line 1"),
        ("", "NodeName=a Gres=gpu:2 Sockets=two", "'two' is not a number"),
        ("SwitchName=s Switches=t", NODES, "t, which is not there"),
        ("SwitchName=s Nodes=lone\nSwitchName=t Nodes=lone", NODES, "lone is below s and t"),
        ("SwitchName=s Switches=t\nSwitchName=t Switches=s", NODES, "above itself"),
        ("SwitchName=s\nSwitchName=t Switches=s\nSwitchName=u Switches=s", NODES, "s is below t and u"),
        ("SwitchName=s\nSwitchName=s", NODES, "appears twice"),
    ],
)
def test_a_topology_that_is_not_a_tree_is_reported(switches: str, nodes: str, says: str) -> None:
    with pytest.raises(ClusterError, match=says.replace("[", r"\[")):
        slurm_cluster(switches, nodes)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ("a",)),
        ("n[1-3,07]", ("n1", "n2", "n3", "n07")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("a,b[1-2]x[3-4],c", ("a", "b1x3", "b1x4", "b2x3", "b2x4", "c")),
    ],
)
def test_node_lists(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["", "a,", ",a", "a[", "a]", "a[]", "a[3-1]", "a[1-999999999]", "a b", "n[1-2", "a[x]"]
)
def test_invalid_node_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of nodes"):
        expand(text)
