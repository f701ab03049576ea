"""The hardware of a node."""

import os

import pytest

from nodeagent.telemetry.sysfs import cpu_list
from nodeagent.telemetry.topology import read_topology
from nodeagent.wire.report import GpuDevice, NicDevice, NumaNode
from tests.unit.nodeagent.identity.trees import nic, plant, port

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
PCI = "sys/bus/pci/devices"


def two_sockets():
    files = {f"{CPU}/online": "0-3"}
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = cpu // 2
    for node in range(2):
        files[f"{NODE}/node{node}/cpulist"] = f"{2 * node}-{2 * node + 1}"
        files[f"{NODE}/node{node}/meminfo"] = f"Node {node} MemTotal:       1048576 kB\nNode {node} MemFree: 1 kB"
    files[f"{NODE}/online"] = "0-1"
    for place, (address, vendor, kind, numa) in enumerate(
        [
            ("0000:3b:00.0", "0x10de", "0x030200", 0),
            ("0000:af:00.0", "0x10de", "0x030000", 1),
            ("0000:af:00.1", "0x10de", "0x040300", 1),  # the sound of a display card
            ("0000:02:00.0", "0x1a03", "0x030000", -1),
        ]
    ):
        files |= {f"{PCI}/{address}/vendor": vendor, f"{PCI}/{address}/class": kind, f"{PCI}/{address}/numa_node": numa}
        files[f"proc/driver/nvidia/gpus/{address}/information"] = f"Model: \t H100\nDevice Minor: \t {1 - place}"
    return files | {f"sys/{name}": text for name, text in (nic("eth0") | port(0, 0)).items()}


def test_a_node_of_two_sockets(tmp_path):
    found = read_topology(plant(tmp_path, two_sockets()))
    assert (found.sockets, found.cpus) == (2, 4)
    assert found.numa_nodes == (NumaNode(0, (0, 1), 1 << 30), NumaNode(1, (2, 3), 1 << 30))
    assert found.gpus == (GpuDevice("0000:3b:00.0", 1, 0), GpuDevice("0000:af:00.0", 0, 1))
    assert found.nics == (
        NicDevice("eth0", "ethernet", 100_000_000_000, 1),
        NicDevice("mlx5_0/1", "infiniband", 100_000_000_000, 0),
    )


def test_values_that_are_not_reported_are_missing(tmp_path):
    found = read_topology(tmp_path)
    assert (found.sockets, found.cpus, found.numa_nodes, found.gpus, found.nics) == (None, None, (), (), ())


def test_a_gpu_without_a_driver(tmp_path):
    files = two_sockets()
    del files["proc/driver/nvidia/gpus/0000:3b:00.0/information"]
    files[f"{PCI}/0000:3b:00.0/numa_node"] = -1
    assert read_topology(plant(tmp_path, files)).gpus[0] == GpuDevice("0000:3b:00.0", None, None)


def test_lists_of_cpus():
    assert cpu_list("0-3,8,10-11\n") == (0, 1, 2, 3, 8, 10, 11)
    assert cpu_list("") == ()
    for bad in ("a", "1-b", "0-99999999999", "-5", "7-"):
        with pytest.raises(ValueError, match=r"."):
            cpu_list(bad + "x" if bad == "7-" else bad)


def test_the_real_machine():
    found = read_topology()
    assert found.cpus is not None
    assert found.cpus >= len(os.sched_getaffinity(0))
    assert found.sockets is not None
