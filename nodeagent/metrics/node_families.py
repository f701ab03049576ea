"""Families of the node's network interfaces and jobs, and all families of one report. Pure.

The number of series is bounded by the hardware, and by `MOST_JOBS`: a GPU has about 40 (48 with GPM), a job about 16, an InfiniBand
port 20.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nodeagent.metrics.families import Family
from nodeagent.metrics.gpu_families import gpu_families
from nodeagent.wire.bounds import MAX_GPUS
from nodeagent.wire.report import JobPressure, JobReport, NicReading, NodeReport

MOST_JOBS = 256
"""Jobs of a node that have series; the ones with the lowest numbers."""
MOST_NICS = 128

_Value = float | None
_NO_PRESSURE = JobPressure()

_JOBS: tuple[tuple[str, str, Callable[[JobReport], _Value]], ...] = (
    ("steps_total", "Optimizer steps of the slowest rank on this node in this run", lambda job: job.steps),
    ("steps_per_second", "Speed of the slowest rank on this node", lambda job: job.steps_per_s),
    ("gpus", "GPUs of this node that Slurm gave to the job", lambda job: _len(job.gpus)),
    ("idle_gpus", "Those of them on which the job has no process", lambda job: _len(job.idle_gpus)),
    (
        "impaired_gpus", "Those of them that were throttled by a power brake or temperature or failed since the last report",
        lambda job: len(job.impaired) if job.gpus is not None else None,
    ),
    ("energy_joules_total", "Energy of its GPUs since the agent has seen this run", lambda job: job.energy_j),
    ("cpu_seconds_total", "CPU time used", lambda job: None if job.usage is None else job.usage.cpu_s),
    ("memory_bytes", "Memory in use", lambda job: None if job.usage is None else job.usage.memory_bytes),
    (
        "cpu_throttled_periods_total", "Periods in which the CPU quota was used up (nr_throttled)",
        lambda job: _pressure(job).throttled_periods,
    ),
    ("cpu_throttled_seconds_total", "Time in which the CPU quota was used up", lambda job: _pressure(job).throttled_s),
)  # fmt: skip
_STALLS: tuple[tuple[str, str, Callable[[JobPressure], _Value]], ...] = (
    ("cpu", "some", lambda of: of.cpu_some_s), ("memory", "some", lambda of: of.memory_some_s),
    ("memory", "full", lambda of: of.memory_full_s), ("io", "some", lambda of: of.io_some_s),
    ("io", "full", lambda of: of.io_full_s),
)  # fmt: skip
_NICS: tuple[tuple[str, str, Callable[[NicReading], _Value]], ...] = (
    ("rx_bytes_per_second", "Rate received since the last report", lambda nic: nic.rx_bytes_per_s),
    ("tx_bytes_per_second", "Rate sent since the last report", lambda nic: nic.tx_bytes_per_s),
    (
        "speed_bytes_per_second", "Speed of the link in each direction",
        lambda nic: None if nic.speed_bits_per_s is None else nic.speed_bits_per_s / 8,
    ),
    ("up", "1: the link is up", lambda nic: nic.up),
)  # fmt: skip


def node_families(report: NodeReport) -> list[Family]:
    """Return all families of a report."""
    node, jobs = report.node_name, sorted(report.jobs, key=lambda job: job.job_id)[:MOST_JOBS]
    agent = Family("headway_agent_report_timestamp_seconds", "gauge", "Unix time of these values")
    agent.add({"node": node}, report.time_s)
    read = Family("headway_agent_gpus_read", "gauge", "0: there is no driver, or it did not answer in time")
    read.add({"node": node}, report.gpus is not None)
    left_out = Family(
        "headway_agent_jobs_left_out", "gauge", f"Jobs beyond the first {MOST_JOBS}, which have no series"
    )
    left_out.add({"node": node}, len(report.jobs) - len(jobs))
    gpus = (report.gpus or ())[:MAX_GPUS]
    lost = Family(
        "headway_gpu_lost",
        "gauge",
        "1: the driver no longer finds a GPU that it had since the agent began, or has not answered for 30 s",
    )
    for index in sorted({gpu.index for gpu in gpus}.union(report.lost_gpus[:MAX_GPUS])):
        lost.add({"node": node, "gpu": str(index)}, index in report.lost_gpus)
    return [
        agent, read, left_out, lost, *gpu_families(node, gpus, jobs), *_nic_families(node, report.nics[:MOST_NICS]),
        *_job_families(node, jobs),
    ]  # fmt: skip


def _nic_families(node: str, nics: Sequence[NicReading]) -> list[Family]:
    found = []
    for name, text, value in _NICS:
        family = Family(f"headway_nic_{name}", "gauge", text)
        for nic in nics:
            family.add({"node": node, "nic": nic.name}, value(nic))
        found.append(family)
    events = Family("headway_nic_events_total", "counter", "Errors, waits and congestion, by the kernel's names")
    for nic in nics:
        for event, number in nic.events:
            events.add({"node": node, "nic": nic.name, "event": event}, number)
    return [*found, events]


def _job_families(node: str, jobs: Sequence[JobReport]) -> list[Family]:
    found = []
    for name, text, value in _JOBS:
        family = Family(f"headway_job_{name}", "counter" if name.endswith("_total") else "gauge", text)
        for job in jobs:
            family.add({"node": node, "job_id": str(job.job_id)}, value(job))
        found.append(family)
    stalls = Family(
        "headway_job_stall_seconds_total", "counter", "Time in which some or all (full) of its processes waited (PSI)"
    )
    for job in jobs:
        for resource, kind, waited in _STALLS:
            stalls.add(
                {"node": node, "job_id": str(job.job_id), "resource": resource, "kind": kind}, waited(_pressure(job))
            )
    return [*found, stalls]


def _pressure(job: JobReport) -> JobPressure:
    return job.pressure or _NO_PRESSURE


def _len(indices: Sequence[int] | None) -> int | None:
    return None if indices is None else len(indices)
