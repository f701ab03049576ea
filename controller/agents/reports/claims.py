"""Check of agents' reports: every number, text, list and map must be within its bound before it is stored, summed or shown. Pure.

The bounds are those that an agent keeps to when it reads what jobs say (nodeagent/wire/bounds.py). They are checked here again,
because an agent may be of another version, or another program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf, isfinite
from typing import Any

from nodeagent.wire import bounds
from protos.headway.v1 import agent_pb2

MAX_TIME_S = 1e11
"""Latest time that a report may have, seconds since the Unix epoch: the year 5138."""
_MAX_CLAIMED_IDS = 64
_MAX_PROBLEM = 500
_MAX_KINDS = 64

_Wrong = Iterator[str]
"""Yields the names of fields that are out of bounds; none when the message is sound."""


def out_of_bounds(report: agent_pb2.AgentReport) -> str:
    """Return the name of the first field of the report that is out of bounds; empty when it may be used."""
    return next(_wrong(report), "")


def tidy(report: agent_pb2.AgentReport) -> None:
    """Shorten the text of an answer, and replace characters that cannot be printed."""
    if report.WhichOneof("kind") == "answer":
        problem = report.answer.problem[:_MAX_PROBLEM]
        report.answer.problem = "".join(each if each.isprintable() else "?" for each in problem)


def _wrong(report: agent_pb2.AgentReport) -> _Wrong:
    yield from _amounts(report, {"time_s": MAX_TIME_S})
    yield from _numbers(report, {"monotonic_ns": bounds.MAX_NUMBER, "dropped": bounds.MAX_STEPS})
    kind = report.WhichOneof("kind")
    if kind is not None:
        yield from (f"{kind}.{name}" for name in _CHECKS[kind](getattr(report, kind)))


def _job(job: agent_pb2.JobReport) -> _Wrong:
    yield from _name(job.job)
    yield from _texts(job, "script", "device", "torch")
    yield from _ranks("ranks", job.ranks)
    yield from _numbers(
        job,
        {
            "world_size": bounds.MAX_RANKS,
            "steps": bounds.MAX_STEPS,
            "steps_done": bounds.MAX_STEPS,
            "memory_bytes": bounds.MAX_SIZE,
        },
    )
    times = ("last_step_ns", "first_seen_ns", "monotonic_ns", "started_ns", "loaded_ns", "first_step_ns")
    yield from _numbers(job, dict.fromkeys(times, bounds.MAX_NUMBER))
    yield from _amounts(job, {"steps_per_s": inf, "cpu_s": inf, "energy_joules": bounds.MAX_JOULES})
    if len(job.impaired) > bounds.MAX_GPUS:
        yield "impaired"
    yield from _gpus("gpus", job.gpus)
    yield from _gpus("idle_gpus", job.idle_gpus)
    if len(job.claimed_job_ids) > _MAX_CLAIMED_IDS or any(len(each) > bounds.MAX_TEXT for each in job.claimed_job_ids):
        yield "claimed_job_ids"
    yield from _model(job.model)
    yield from _ranks("checkpoint.ranks", job.checkpoint.ranks)
    yield from _numbers(job.checkpoint, dict.fromkeys(("restored_step", "saved_step"), bounds.MAX_STEPS))


def _profile(profile: agent_pb2.JobProfile) -> _Wrong:
    yield from _name(profile.job)
    yield from _texts(profile, "script")
    yield from _model(profile.model)
    yield from _numbers(
        profile, {"rank": bounds.MAX_RANKS - 1, "world_size": bounds.MAX_RANKS, "steps": bounds.MAX_STEPS}
    )
    times = (
        "step_s", "compute_s", "comm_exposed_s", "comm_hidden_s", "busy_s", "local_exposed_s", "local_hidden_s",
    )  # fmt: skip
    yield from _amounts(profile, dict.fromkeys(times, bounds.MAX_SECONDS))
    if profile.step_s < bounds.MIN_STEP_S:
        yield "step_s"
    if len(profile.kinds) > _MAX_KINDS:
        yield "kinds"
    for use in profile.kinds:
        yield from _texts(use, "kind")
        yield from _amounts(use, dict.fromkeys(("count", "seconds"), bounds.MAX_SECONDS))
        yield from _amounts(use, dict.fromkeys(("bytes", "link_bytes"), bounds.MAX_SIZE))
    yield from _gpus("gpus", profile.gpus)


def _ended(ended: agent_pb2.JobEnded) -> _Wrong:
    yield from _name(ended.job)


def _answer(answer: agent_pb2.CommandAnswer) -> _Wrong:
    yield from _texts(answer, "id")
    yield from _ranks("saved.ranks", answer.saved.ranks)
    yield from _numbers(answer.saved, {"world_size": bounds.MAX_RANKS, "step": bounds.MAX_STEPS})


def _telemetry(telemetry: agent_pb2.NodeTelemetry) -> _Wrong:
    yield from _amounts(telemetry, {"interval_s": bounds.MAX_SECONDS})
    if len(telemetry.gpus) > bounds.MAX_GPUS or len(telemetry.nics) > bounds.MAX_NICS:
        yield "gpus" if len(telemetry.gpus) > bounds.MAX_GPUS else "nics"
        return
    processes = [process for gpu in telemetry.gpus for process in gpu.processes]
    processes += [process for gpu in telemetry.gpus for part in gpu.mig for process in part.processes]
    mig = [part for gpu in telemetry.gpus for part in gpu.mig]
    if len(mig) > bounds.MAX_GPU_PROCESSES:
        yield "gpus.mig"
        return
    for part in mig:
        yield from _texts(part, "uuid")
    if len(processes) > bounds.MAX_GPU_PROCESSES or any(process.job_id > bounds.MAX_ID for process in processes):
        yield "gpus.processes"
    if len(telemetry.failed_tasks) > bounds.MAX_TASKS:
        yield "failed_tasks"
        return
    for task in telemetry.failed_tasks:
        yield from _texts(task, "task", "problem")
        yield from _amounts(task, {"last_s": inf})
    rates = ("busy", "sm", "memory_busy", "power_watts", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")
    for gpu in telemetry.gpus:
        yield from _texts(gpu, "uuid", "name", "pci_address")
        yield from _amounts(gpu, dict.fromkeys(rates, inf))
    for nic in telemetry.nics:
        yield from _texts(nic, "name")
        yield from _amounts(nic, dict.fromkeys(("rx_bytes_per_s", "tx_bytes_per_s"), inf))


_CHECKS: dict[str, Callable[[Any], _Wrong]] = {
    "telemetry": _telemetry,
    "job": _job,
    "profile": _profile,
    "ended": _ended,
    "answer": _answer,
}


def topology_out_of_bounds(topology: agent_pb2.NodeTopology) -> str:
    """Return the name of the first field of a node's topology that is out of bounds; empty when it may be kept."""
    return next(_topology(topology), "")


def _topology(topology: agent_pb2.NodeTopology) -> _Wrong:
    if len(topology.gpus) > bounds.MAX_GPUS:
        yield "gpus"
    if len(topology.nics) > bounds.MAX_NICS:
        yield "nics"
    if (
        len(topology.numa_nodes) > bounds.MAX_CPUS
        or sum(len(one.cpus) for one in topology.numa_nodes) > bounds.MAX_CPUS
    ):
        yield "numa_nodes"
    for gpu in topology.gpus:
        yield from _texts(gpu, "pci_address")
    for nic in topology.nics:
        yield from _texts(nic, "name")


def link_bits_per_s(topology: agent_pb2.NodeTopology) -> int | None:
    """Return the speed of a node's fastest network interface, bits/s, as it claims; None when it claims no possible one."""
    rates = (nic.speed_bits_per_s for nic in topology.nics if nic.HasField("speed_bits_per_s"))
    return max((rate for rate in rates if rate <= bounds.MAX_BITS_PER_S), default=None)


def _name(job: agent_pb2.JobName) -> _Wrong:
    yield from _numbers(job, {"job_id": bounds.MAX_ID, "restart": bounds.MAX_RESTART})


def _model(model: agent_pb2.JobModel) -> _Wrong:
    yield from _texts(model, "signature")
    sizes = ("param_bytes", "num_tensors", "num_params", "optimizers")
    yield from _numbers(model, dict.fromkeys(sizes, bounds.MAX_SIZE) | {"batch_size": bounds.MAX_BATCH})
    if len(model.groups) > bounds.MAX_GROUPS:
        yield "groups"


def _numbers(message: Any, most: dict[str, int]) -> _Wrong:
    return (name for name, limit in most.items() if getattr(message, name) > limit)


def _amounts(message: Any, most: dict[str, float]) -> _Wrong:
    """Yield the fields that are not finite, or not between 0 and their limit. A missing field is 0."""
    for name, limit in most.items():
        value = getattr(message, name)
        if not isfinite(value) or not 0 <= value <= limit:
            yield name


def _texts(message: Any, *names: str) -> _Wrong:
    return (name for name in names if len(getattr(message, name)) > bounds.MAX_TEXT)


def _ranks(name: str, ranks: Iterable[int]) -> _Wrong:
    found = list(ranks)
    if len(found) > bounds.MAX_RANKS or max(found, default=0) >= bounds.MAX_RANKS:
        yield name


def _gpus(name: str, gpus: agent_pb2.GpuSet) -> _Wrong:
    if len(gpus.index) > bounds.MAX_GPUS:
        yield name
