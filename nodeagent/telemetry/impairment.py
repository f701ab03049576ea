"""GPUs that are slower than they should be by themselves: throttled, or failing. Pure.

Such a GPU makes a job slow as a neighbour on the same link would; so the windows of its job are not judged as contention. Running
at its power limit impairs no GPU: large GPUs do that whenever they are busy, alone as well as beside others, and a job is compared
with itself. A power brake of the machine does impair it. So does every error for which a link repeated a transfer: what it costs is
not known, and a window that is not judged does less harm than a job that is moved because its own GPU fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodeagent.telemetry.slurm_jobs import SlurmJob
from nodeagent.wire.report import GpuHealth, GpuReading, ImpairedGpu, Impairment

SW_POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80
"""Bits of NVML's nvmlClocksEventReason (before 12.2: nvmlClocksThrottleReason)."""
_NVLINK = ("nvlink_crc_errors", "nvlink_replays", "nvlink_recoveries")
_THERMAL = SW_THERMAL | HW_THERMAL | HW_SLOWDOWN
UNANSWERED_NS = 30_000_000_000
"""Time without a reading from which GPUs count as lost: a driver often hangs when a GPU fails. A busy node may miss a reading."""
SHARE = 0.02
"""A GPU counts as throttled from this share of the interval on: less cannot be told from the noise of a job's speed."""


class Impairments:
    """Compares each reading with the one before. Invariant: an impairment between two readings is seen, however short it was."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, GpuHealth]] = {}
        """Time and health of each GPU at the last reading. Bound: the GPUs of the node."""

    def read(self, gpus: Iterable[GpuReading], now_ns: int) -> dict[int, tuple[Impairment, ...]]:
        """Return the causes by GPU index, for the GPUs that were impaired since the last reading."""
        before, now = self._before, {gpu.index: (now_ns, gpu.health) for gpu in gpus}
        self._before = before | now
        found: dict[int, tuple[Impairment, ...]] = dict.fromkeys(before.keys() - now.keys(), ("lost",))
        for index, (_, health) in now.items():
            then_ns, then = before.get(index, (now_ns, health))
            causes = _causes(then, health, (now_ns - then_ns) / 1e9)
            if causes:
                found[index] = causes
        return found

    def unread(self, now_ns: int) -> dict[int, tuple[Impairment, ...]]:
        """Return the causes by GPU index when the driver gives no reading."""
        newest_ns = max((read_ns for read_ns, _ in self._before.values()), default=now_ns)
        return dict.fromkeys(self._before, ("lost",)) if now_ns - newest_ns > UNANSWERED_NS else {}


def _causes(before: GpuHealth, now: GpuHealth, interval_s: float) -> tuple[Impairment, ...]:
    events = now.clock_events or 0
    causes: list[Impairment] = []
    if events & HW_POWER_BRAKE:
        causes.append("power")
    if _violated(before.thermal_violation_s, now.thermal_violation_s, interval_s, bool(events & _THERMAL)):
        causes.append("thermal")
    if _rose(before.xid_errors, now.xid_errors) or _rose(before.ecc_uncorrected, now.ecc_uncorrected):
        causes.append("xid")
    if now.remapping_failed or _rose(before.rows_remapped_uncorrected, now.rows_remapped_uncorrected):
        causes.append("memory")
    if any(_rose(getattr(before, name), getattr(now, name)) for name in _NVLINK):
        causes.append("nvlink")
    if _rose(before.pcie_replays, now.pcie_replays):
        causes.append("pcie")
    return tuple(causes)


def _violated(before_s: float | None, now_s: float | None, interval_s: float, flagged: bool) -> bool:
    """Return whether the clock was lowered for that cause. `flagged`: it is at this moment.

    The counter says for how long; the flag alone, where there is no counter yet, or none at all.
    """
    if before_s is None or now_s is None or interval_s <= 0 or now_s < before_s:
        return flagged
    return now_s - before_s >= SHARE * interval_s


def _rose(before: int | None, now: int | None) -> bool:
    """Return whether a counter has counted something; one that fell has begun anew."""
    return now is not None and before is not None and (now > before or 0 < now < before)


def of_job(
    job: SlurmJob, gpus: Iterable[GpuReading], found: Mapping[int, tuple[Impairment, ...]]
) -> tuple[ImpairedGpu, ...]:
    """Return the impaired GPUs of a job: of those that Slurm gave to it, or, where that is not known, that its processes use."""
    own = set(job.gpus) if job.gpus is not None else {gpu.index for gpu in gpus if _uses(gpu, job.job_id)}
    return tuple(ImpairedGpu(index, found[index]) for index in sorted(own & found.keys()))


def _uses(gpu: GpuReading, job_id: int) -> bool:
    lists = (gpu.processes, *(part.processes for part in gpu.mig))
    return any(process.job_id == job_id for processes in lists for process in processes or ())
