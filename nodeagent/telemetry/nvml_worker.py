"""Reads the GPUs through NVML in a process of its own: a driver that hangs blocks this process, and not the agent.

It writes one line {"ready": COUNT} or {"absent": WHY} at the start, and for every line "read" on standard input one line
{"gpus": [...]} whose rows have the fields of report.GpuReading. A value that NVML does not give is null. It ends with its input.
With the argument --gpm, rows have the figures of GPM too.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pynvml

from nodeagent.telemetry.nvml_gpm import GpmSamples
from nodeagent.telemetry.nvml_health import XidEvents, read_health

_PR_SET_PDEATHSIG = 1  # prctl(2)
_NO_DRIVER = 3
_ALL_LINKS = 0xFFFFFFFF
_KIB = 1024


def main() -> int:
    """Answer requests until standard input ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        _say({"absent": str(error)})
        return _NO_DRIVER
    _say({"ready": count})
    kept = _Kept(XidEvents(_call), GpmSamples(_call) if "--gpm" in sys.argv[1:] else None)
    for line in sys.stdin:
        if line.strip() == "read":
            positions = range(pynvml.nvmlDeviceGetCount())
            _say({"gpus": [row for position in positions if (row := _gpu(position, kept)) is not None]})
    return 0


@dataclass(slots=True)
class _Kept:
    """State that each reading leaves to the next one."""

    xids: XidEvents
    gpm: GpmSamples | None
    """None = GPM is not read."""
    seen_us: dict[int, int] = field(default_factory=dict)
    """Time of the newest sample of processes by position. Bound: the GPUs of the node."""


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _optional(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of NVML; None = this GPU, driver or library does not give it. Raises NVMLError_GpuIsLost."""
    try:
        return function(*arguments)
    except pynvml.NVMLError_GpuIsLost:
        raise
    except pynvml.NVMLError:
        return None


def _call(name: str, *arguments: Any) -> Any:
    """Call `_optional` with a function that older libraries may not have."""
    function = getattr(pynvml, name, None)
    return None if function is None else _optional(function, *arguments)


def _gpu(position: int, kept: _Kept) -> dict[str, Any] | None:
    """Return the row of a GPU; None if it has fallen off the bus.

    NVML may still give a handle of such a GPU. Its row would have no number, and so be taken for another GPU's.
    """
    try:
        handle = _optional(pynvml.nvmlDeviceGetHandleByIndex, position)
        return None if handle is None else _row(handle, position, kept)
    except pynvml.NVMLError_GpuIsLost:
        return None


def _row(handle: Any, position: int, kept: _Kept) -> dict[str, Any]:
    minor = _call("nvmlDeviceGetMinorNumber", handle)
    utilization = _call("nvmlDeviceGetUtilizationRates", handle)
    memory = _call("nvmlDeviceGetMemoryInfo", handle)
    power_mw = _call("nvmlDeviceGetPowerUsage", handle)
    links = _nvlink(handle)
    pci = _call("nvmlDeviceGetPciInfo", handle)
    return {
        "index": position if minor is None else minor,
        "uuid": _call("nvmlDeviceGetUUID", handle),
        "name": _call("nvmlDeviceGetName", handle),
        "pci_address": None if pci is None else _sysfs_address(pci.busId),
        "busy_percent": None if utilization is None else utilization.gpu,
        "sm_percent": _sm_percent(handle, position, kept.seen_us),
        "sm_clock_mhz": _call("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM),
        "memory_busy_percent": None if utilization is None else utilization.memory,
        "memory_used_bytes": None if memory is None else memory.used,
        "memory_total_bytes": None if memory is None else memory.total,
        "power_w": None if power_mw is None else power_mw / 1000,
        "pcie_tx_bytes_per_s": _pcie(handle, pynvml.NVML_PCIE_UTIL_TX_BYTES),
        "pcie_rx_bytes_per_s": _pcie(handle, pynvml.NVML_PCIE_UTIL_RX_BYTES),
        "nvlink_tx_bytes": links[0],
        "nvlink_rx_bytes": links[1],
        "processes": _processes(handle),
        "mig": _mig(handle),
        "health": read_health(_call, handle, position, kept.xids),
        "gpm": None if kept.gpm is None else kept.gpm.read(position, handle),
    }


def _sysfs_address(bus_id: str | bytes) -> str:
    """Convert 00000000:3B:00.0 to 0000:3b:00.0."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _pcie(handle: Any, counter: int) -> int | None:
    """Return bytes/s; the library measures KB/s over 20 ms."""
    kilobytes = _call("nvmlDeviceGetPcieThroughput", handle, counter)
    return None if kilobytes is None else kilobytes * 1000


def _nvlink(handle: Any) -> tuple[int | None, int | None]:
    """Return the bytes sent and received over all links since the driver was loaded; the counters are in KiB."""
    names = "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"
    if not all(hasattr(pynvml, name) for name in names):
        return None, None
    values = _call("nvmlDeviceGetFieldValues", handle, [(getattr(pynvml, name), _ALL_LINKS) for name in names])
    if values is None or len(values) != len(names):
        return None, None
    sent, received = (value.value.ullVal * _KIB if value.nvmlReturn == 0 else None for value in values)
    return sent, received


def _sm_percent(handle: Any, position: int, seen_us: dict[int, int]) -> float | None:
    """Return the mean use of the multiprocessors since the last reading, added up over the processes."""
    samples = _call("nvmlDeviceGetProcessUtilization", handle, seen_us.get(position, 0))
    if not samples:
        return None
    seen_us[position] = max(sample.timeStamp for sample in samples)
    shares: dict[int, list[int]] = {}
    for sample in samples:
        shares.setdefault(sample.pid, []).append(sample.smUtil)
    return min(100.0, sum(sum(values) / len(values) for values in shares.values()))


def _processes(handle: Any) -> list[dict[str, Any]] | None:
    """Return the processes with a compute or graphics context. None = the driver lists neither."""
    found: dict[int, int | None] = {}
    known = False
    for name in ("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetComputeRunningProcesses"):
        running = _call(name, handle)
        if running is not None:
            known = True
            found.update((process.pid, process.usedGpuMemory) for process in running)
    return [{"pid": pid, "memory_bytes": used} for pid, used in sorted(found.items())] if known else None


def _mig(handle: Any) -> list[dict[str, Any]]:
    mode = _call("nvmlDeviceGetMigMode", handle)
    if mode is None or not mode[0]:
        return []
    return [_mig_instance(instance) for instance in _mig_handles(handle)]


def _mig_handles(handle: Any) -> Iterable[Any]:
    for position in range(_call("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        instance = _call("nvmlDeviceGetMigDeviceHandleByIndex", handle, position)
        if instance is not None:  # positions without an instance are errors
            yield instance


def _mig_instance(instance: Any) -> dict[str, Any]:
    memory = _call("nvmlDeviceGetMemoryInfo", instance)
    return {
        "uuid": _call("nvmlDeviceGetUUID", instance) or "",
        "gpu_instance": _call("nvmlDeviceGetGpuInstanceId", instance),
        "compute_instance": _call("nvmlDeviceGetComputeInstanceId", instance),
        "memory_used_bytes": None if memory is None else memory.used,
        "memory_total_bytes": None if memory is None else memory.total,
        "processes": _processes(instance),
    }


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        sys.exit(main())
