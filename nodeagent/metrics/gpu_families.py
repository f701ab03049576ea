"""Families of the node's GPUs. Pure.

Labels are `node` and `gpu`, the number that Slurm uses. Which job has a GPU is a family of its own (`headway_gpu_job`): as a label
of every family, each job would begin some thirty series a GPU anew, and cut counters such as the energy in pieces. Its label is
`job_id`, because Prometheus uses `job` for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nodeagent.metrics.families import Family
from nodeagent.wire.report import GpmReading, GpuHealth, GpuReading, JobReport

_Value = float | None

EVENTS = {
    0x1: "idle", 0x2: "applications_clocks", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display_clocks",
}  # fmt: skip
"""Bits of NVML's nvmlClocksEventReason, and the label `reason` of each."""

_READINGS: tuple[tuple[str, str, Callable[[GpuReading], _Value]], ...] = (
    ("busy_ratio", "Part of the last sample period in which a kernel ran, 0 to 1", lambda gpu: _share(gpu.busy_percent)),
    ("sm_ratio", "Use of the multiprocessors, 0 to 1", lambda gpu: _share(gpu.sm_percent)),
    (
        "memory_busy_ratio", "Part of the last sample period in which memory was read or written, 0 to 1",
        lambda gpu: _share(gpu.memory_busy_percent),
    ),
    ("sm_clock_hertz", "Clock of the multiprocessors", lambda gpu: _times(gpu.sm_clock_mhz, 1e6)),
    ("memory_used_bytes", "Memory in use", lambda gpu: gpu.memory_used_bytes),
    ("memory_bytes", "Size of the memory", lambda gpu: gpu.memory_total_bytes),
    ("power_watts", "Power", lambda gpu: gpu.power_w),
    (
        "pcie_tx_bytes_per_second", "Rate sent by the GPU over PCIe, in a sample of 20 ms",
        lambda gpu: gpu.pcie_tx_bytes_per_s,
    ),
    (
        "pcie_rx_bytes_per_second", "Rate received by the GPU over PCIe, in a sample of 20 ms",
        lambda gpu: gpu.pcie_rx_bytes_per_s,
    ),
    ("nvlink_tx_bytes_total", "Bytes sent over all NVLinks", lambda gpu: gpu.nvlink_tx_bytes),
    ("nvlink_rx_bytes_total", "Bytes received over all NVLinks", lambda gpu: gpu.nvlink_rx_bytes),
)  # fmt: skip
_HEALTH: tuple[tuple[str, str, Callable[[GpuHealth], _Value]], ...] = (
    ("temperature_celsius", "Temperature of the GPU", lambda of: of.temperature_c),
    ("power_limit_watts", "Enforced power limit", lambda of: of.power_limit_w),
    ("energy_joules_total", "Energy used since the driver was loaded", lambda of: of.energy_j),
    (
        "power_violation_seconds_total", "Time in which the clock was lowered to keep the power limit",
        lambda of: of.power_violation_s,
    ),
    (
        "thermal_violation_seconds_total", "Time in which the clock was lowered to keep the temperature",
        lambda of: of.thermal_violation_s,
    ),
    ("ecc_corrected_errors_total", "ECC errors that were corrected, since the driver was loaded", lambda of: of.ecc_corrected),
    (
        "ecc_uncorrected_errors_total", "ECC errors that could not be corrected, since the driver was loaded",
        lambda of: of.ecc_uncorrected,
    ),
    (
        "rows_remapped_corrected_total", "Rows of memory remapped for corrected errors, in the life of the GPU",
        lambda of: of.rows_remapped_corrected,
    ),
    (
        "rows_remapped_uncorrected_total", "Rows of memory remapped for uncorrected errors, in the life of the GPU",
        lambda of: of.rows_remapped_uncorrected,
    ),
    ("row_remapping_pending", "1: a row is remapped at the next reset of the GPU", lambda of: of.remapping_pending),
    ("row_remapping_failed", "1: a row could not be remapped", lambda of: of.remapping_failed),
    ("pcie_replays_total", "Replays on PCIe since the driver was loaded", lambda of: of.pcie_replays),
    ("nvlink_crc_errors_total", "CRC errors of flits over all NVLinks", lambda of: of.nvlink_crc_errors),
    ("nvlink_replays_total", "Replays over all NVLinks", lambda of: of.nvlink_replays),
    ("nvlink_recoveries_total", "Recoveries of all NVLinks", lambda of: of.nvlink_recoveries),
    ("xid_errors_total", "XID errors since the agent began to read the GPUs", lambda of: of.xid_errors),
    ("newest_xid", "Number of the newest XID error; none: no series", lambda of: of.newest_xid),
)  # fmt: skip

_GPM: tuple[tuple[str, str, Callable[[GpmReading], _Value]], ...] = (
    ("sm_active_ratio", "Multiprocessors that were busy, 0 to 1", lambda of: _share(of.sm_percent)),
    ("sm_occupancy_ratio", "Active warps of those that there is room for, 0 to 1", lambda of: _share(of.sm_occupancy_percent)),
    ("tensor_active_ratio", "Part of the time in which tensor cores computed, 0 to 1", lambda of: _share(of.tensor_percent)),
    ("dram_bandwidth_ratio", "Bandwidth of the memory in use, of the largest possible, 0 to 1", lambda of: _share(of.dram_percent)),
    ("pcie_tx_bytes_per_second", "Rate sent by the GPU over PCIe", lambda of: of.pcie_tx_bytes_per_s),
    ("pcie_rx_bytes_per_second", "Rate received by the GPU over PCIe", lambda of: of.pcie_rx_bytes_per_s),
    ("nvlink_tx_bytes_per_second", "Rate sent over all NVLinks", lambda of: of.nvlink_tx_bytes_per_s),
    ("nvlink_rx_bytes_per_second", "Rate received over all NVLinks", lambda of: of.nvlink_rx_bytes_per_s),
)  # fmt: skip
"""Means since the last report."""
_NO_GPM = GpmReading()


def gpu_families(node: str, gpus: Iterable[GpuReading], jobs: Iterable[JobReport]) -> list[Family]:
    """Return the families of these GPUs; `jobs` are those of the node."""
    rows = [({"node": node, "gpu": str(gpu.index)}, gpu) for gpu in gpus]
    found = [_family(name, text, ((labels, value(gpu)) for labels, gpu in rows)) for name, text, value in _READINGS]
    found += [
        _family(name, text, ((labels, value(gpu.health)) for labels, gpu in rows)) for name, text, value in _HEALTH
    ]
    found += [
        _family(
            f"gpm_{name}",
            f"{text}; mean since the last report, by GPM",
            ((labels, value(gpu.gpm or _NO_GPM)) for labels, gpu in rows),
        )
        for name, text, value in _GPM
    ]
    reasons = Family("headway_gpu_clock_event", "gauge", "1: the clock is lowered now, for this reason")
    info = Family("headway_gpu_info", "gauge", "Always 1; names of the GPU")
    for labels, gpu in rows:
        for bit, reason in EVENTS.items() if gpu.health.clock_events is not None else ():
            reasons.add(labels | {"reason": reason}, bool((gpu.health.clock_events or 0) & bit))
        info.add(labels | {"uuid": gpu.uuid or "", "name": gpu.name or "", "pci": gpu.pci_address or ""}, 1)
    holders = Family("headway_gpu_job", "gauge", "Always 1; the Slurm job that has the GPU")
    for job in jobs:
        for index in job.gpus or ():
            holders.add({"node": node, "gpu": str(index), "job_id": str(job.job_id)}, 1)
    return [*found, reasons, info, holders]


def _family(name: str, text: str, series: Iterable[tuple[dict[str, str], _Value]]) -> Family:
    family = Family(f"headway_gpu_{name}", "counter" if name.endswith("_total") else "gauge", text)
    for labels, value in series:
        family.add(labels, value)
    return family


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
