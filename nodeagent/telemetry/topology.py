"""The hardware of a node, read from /sys. Drivers may hang: those of NICs have a deadline here, the GPU driver in driver_minors."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from nodeagent.identity.bounded_read import BoundedReader
from nodeagent.telemetry import sysfs
from nodeagent.telemetry.network import ROOT, interfaces
from nodeagent.wire.report import GpuDevice, NicDevice, NumaNode, Topology

_PCI = "sys/bus/pci/devices"
_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"
_DEADLINE_S = 5.0


class NicDevices:
    """The interfaces of the node. Invariant: `refresh` returns within its deadline, and does not block the event loop."""

    def __init__(self, wanted: Sequence[str] = (), root: Path = Path("/"), deadline_s: float = _DEADLINE_S) -> None:
        self.known: tuple[NicDevice, ...] = ()
        """As last read; empty = they could not be read yet."""
        self._wanted = tuple(wanted)
        self._root = root
        self._reader = BoundedReader(deadline_s, slow_s=math.inf)

    async def refresh(self) -> None:
        """Read the interfaces again. Those that are known stay when a driver does not answer."""
        with suppress(TimeoutError):
            self.known = await asyncio.to_thread(self._reader.call, ROOT, lambda: read_nics(self._root, self._wanted))


def read_nics(root: Path = Path("/"), wanted: Sequence[str] = ()) -> tuple[NicDevice, ...]:
    """Return the interfaces below `root` that match `wanted`; see `interfaces`. May hang."""
    found = interfaces(root / "sys", wanted)
    return tuple(NicDevice(nic.name, nic.kind, nic.speed_bits_per_s, nic.numa_node) for nic in found)


def read_topology(
    root: Path = Path("/"),
    nics: tuple[NicDevice, ...] = (),
    minors: Mapping[str, int] | None = None,
) -> Topology:
    """Read sockets, NUMA nodes and GPUs below `root`. What cannot be read is None or missing.

    `nics`: the interfaces, from NicDevices. `minors`: N of /dev/nvidiaN by PCI address, as far as it is known.
    """
    system = root / "sys/devices/system"
    cpus = _online(system / "cpu/online")
    return Topology(
        sockets=_sockets(system / "cpu", cpus),
        cpus=len(cpus) or None,
        numa_nodes=_numa_nodes(system / "node"),
        gpus=_gpus(root, minors or {}),
        nics=nics,
    )


def _online(path: Path) -> tuple[int, ...]:
    with suppress(ValueError):
        return sysfs.cpu_list(sysfs.text(path) or "")
    return ()


def _sockets(folder: Path, cpus: tuple[int, ...]) -> int | None:
    packages = {sysfs.number(folder / f"cpu{cpu}/topology/physical_package_id") for cpu in cpus} - {None}
    return len(packages) or None


def _numa_nodes(folder: Path) -> tuple[NumaNode, ...]:
    entries = [(entry, found) for entry in sysfs.folders(folder) if (found := re.fullmatch(r"node(\d+)", entry.name))]
    nodes = (
        NumaNode(int(found[1]), _online(entry / "cpulist"), _memory_bytes(entry / "meminfo"))
        for entry, found in entries
    )
    return tuple(sorted(nodes, key=lambda node: node.index))


def _memory_bytes(path: Path) -> int | None:
    found = re.search(r"MemTotal:\s*(\d+) kB", sysfs.text(path) or "")
    return int(found[1]) * 1024 if found else None


def gpu_addresses(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the display and 3D controllers of NVIDIA by bus address, which is also the order of the driver."""
    return tuple(
        device.name
        for device in sysfs.folders(root / _PCI)
        if sysfs.text(device / "vendor") == _NVIDIA and (sysfs.text(device / "class") or "").startswith(_DISPLAY_CLASS)
    )


def _gpus(root: Path, minors: Mapping[str, int]) -> tuple[GpuDevice, ...]:
    return tuple(
        GpuDevice(address, minors.get(address), sysfs.numa_node(root / _PCI / address))
        for address in gpu_addresses(root)
    )
