"""The hardware of a node."""

import asyncio
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from nodeagent.telemetry.driver_files import read_minors
from nodeagent.telemetry.driver_minors import DriverMinors
from nodeagent.telemetry.sysfs import cpu_list
from nodeagent.telemetry.topology import NicDevices, read_nics, read_topology
from nodeagent.wire.report import GpuDevice, NicDevice, NumaNode
from tests.unit.nodeagent.identity.trees import nic, plant, port

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
PCI = "sys/bus/pci/devices"
ROOT = Path(__file__).parents[4]
"""The child imports the modules that are tested, also where another folder is installed."""


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
    root = plant(tmp_path, two_sockets())
    found = read_topology(root, read_nics(root), read_minors(root))
    assert (found.sockets, found.cpus) == (2, 4)
    assert found.numa_nodes == (NumaNode(0, (0, 1), 1 << 30), NumaNode(1, (2, 3), 1 << 30))
    assert found.gpus == (GpuDevice("0000:3b:00.0", 1, 0), GpuDevice("0000:af:00.0", 0, 1))
    assert found.nics == (
        NicDevice("eth0", "ethernet", 100_000_000_000, 1),
        NicDevice("mlx5_0/1", "infiniband", 100_000_000_000, 0),
    )


def test_values_that_are_not_reported_are_missing(tmp_path):
    found = read_topology(tmp_path, read_nics(tmp_path))
    assert (found.sockets, found.cpus, found.numa_nodes, found.gpus, found.nics) == (None, None, (), (), ())


def test_a_gpu_without_a_driver(tmp_path):
    files = two_sockets()
    del files["proc/driver/nvidia/gpus/0000:3b:00.0/information"]
    files[f"{PCI}/0000:3b:00.0/numa_node"] = -1
    root = plant(tmp_path, files)
    assert read_topology(root, minors=read_minors(root)).gpus[0] == GpuDevice("0000:3b:00.0", None, None)


@pytest.fixture
async def minors(tmp_path, monkeypatch):
    """minors(files) → DriverMinors over these files."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    made = []

    def make(files, deadline_s=60.0, **options):
        made.append(DriverMinors(plant(tmp_path, files), deadline_s, **options))
        return made[-1]

    yield make
    for each in made:
        if isinstance(each._child, asyncio.subprocess.Process):
            await each._child.wait()


async def test_the_numbers_of_gpus_are_read_by_a_child(minors):
    driver = minors(two_sockets())
    await driver.refresh()
    assert driver.known == {"0000:3b:00.0": 1, "0000:af:00.0": 0}


async def test_a_driver_that_hangs_costs_the_numbers_of_gpus_only(minors, tmp_path):
    # given a driver that does not answer, from the start on
    driver = minors(two_sockets(), 0.5)
    file = tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0/information"
    text = file.read_text()
    file.unlink()
    os.mkfifo(file)
    # then the topology is there without them, and the agent goes on
    with capture_logs() as logs:
        for _ in range(2):
            await driver.refresh()
            if driver._child is not None:  # on a busy machine the time may end before there is one
                await driver._child.wait()
    assert [entry["event"] for entry in logs] == ["gpu_driver_silent"]
    assert [gpu.index for gpu in read_topology(tmp_path, minors=driver.known).gpus] == [None, None]
    # until it answers again
    file.unlink()
    file.write_text(text)
    driver._deadline_s = 60.0
    await driver.refresh()
    assert [gpu.index for gpu in read_topology(tmp_path, minors=driver.known).gpus] == [1, 0]
    # and known ones stay when it hangs once more
    file.unlink()
    os.mkfifo(file)
    driver._deadline_s = 0.2
    await driver.refresh()
    assert [gpu.index for gpu in read_topology(tmp_path, minors=driver.known).gpus] == [1, 0]


async def test_as_long_as_the_driver_holds_a_child_no_other_is_started(minors):
    """A process inside the driver dies only when the driver returns; the test uses a child that never ends."""
    driver = minors(two_sockets())
    held = driver._child = SimpleNamespace(returncode=None)
    await driver.refresh()
    assert driver._child is held
    held.returncode = -9
    await driver.refresh()
    assert driver.known


@pytest.mark.parametrize("child", [("/no/such/python",), ("/bin/true",), ("/bin/echo",)])
async def test_a_child_that_fails_or_says_something_else_costs_no_more(minors, child):
    driver = minors(two_sockets(), child=child)
    await driver.refresh()
    assert driver.known == {}


async def test_without_gpus_or_a_driver_no_child_is_started(minors):
    files = {name: text for name, text in two_sockets().items() if not name.startswith("proc/")}
    for found in ({}, files):
        driver = minors(found, child=("/no/such/python",))
        with capture_logs() as logs:
            await driver.refresh()
        assert (driver.known, logs) == ({}, [])


def test_lists_of_cpus():
    assert cpu_list("0-3,8,10-11\n") == (0, 1, 2, 3, 8, 10, 11)
    assert cpu_list("") == ()
    for bad in ("a", "1-b", "0-99999999999", "-5", "7-"):
        with pytest.raises(ValueError, match=r"."):
            cpu_list(bad + "x" if bad == "7-" else bad)


def test_the_real_machine():
    found = read_topology(nics=read_nics())
    assert found.cpus is not None
    assert found.cpus >= len(os.sched_getaffinity(0))
    assert found.sockets is not None


def test_interfaces_whose_driver_hangs_stay_as_they_are_known(tmp_path):
    """The test uses a pipe without a writer."""
    devices = NicDevices(
        root=plant(tmp_path, {f"sys/{name}": text for name, text in nic("eth0").items()}), deadline_s=30.0
    )
    asyncio.run(devices.refresh())
    assert [device.name for device in devices.known] == ["eth0"]
    speed = tmp_path / "sys/class/net/eth0/speed"
    speed.unlink()
    os.mkfifo(speed)
    devices._reader._timeout_s = 0.1
    asyncio.run(devices.refresh())
    asyncio.run(devices.refresh())
    assert [device.speed_bits_per_s for device in devices.known] == [100_000_000_000]
    (held,) = [thread for thread in threading.enumerate() if thread.name == "bounded-read"]
    speed.open("w").close()
    held.join()
