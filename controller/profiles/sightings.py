"""Agents' reports as rows for the store of profiles. Values that make no sense are left out here. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import get_args

from controller.profiles.sensitivity import RING_SHARES
from controller.profiles.windows import RunKey, RunShape, Sample, Trained
from nodeagent.wire.bounds import MAX_STEPS, MIN_STEP_S
from nodeagent.wire.report import Impairment
from protos.headway.v1 import agent_pb2

IMPAIRMENTS = frozenset(get_args(Impairment))
"""Causes of impaired GPUs that this version knows."""
_MAX_TEXT = 255
_MAX_INT = 2**63 - 1
"""Largest integer that SQLite stores exactly."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A report, and how it arrived."""

    node: str
    run_id: str
    """Id of the agent's run."""
    report: agent_pb2.AgentReport
    time_s: float
    """Time of arrival on the controller's clock."""
    offset_s: float = 0.0
    """Seconds to add to the node's clock to get the controller's."""
    numa_of_gpu: tuple[tuple[int, int], ...] = ()
    """(GPU index, NUMA node) of the node's GPUs, where both are known."""
    made_s: float | None = None
    """Time at which the report was made, on the controller's clock; None: the agent did not give the report's age."""

    @property
    def reported_s(self) -> float:
        """Time at which the report was made, on the controller's clock; at most the time of arrival."""
        made_s = self.report.time_s + self.offset_s if self.made_s is None else self.made_s
        return min(made_s, self.time_s) if isfinite(made_s) else self.time_s


@dataclass(frozen=True, slots=True)
class Sighting:
    """Jobs on a node according to one report."""

    time_s: float
    node: str
    sample: Sample | None
    present: tuple[int, ...]
    """Numbers of the jobs that are there."""
    impaired: tuple[str, ...] = ()
    """Causes for which GPUs of the job were slower than they should be: power, thermal or xid."""
    energy_j: float | None = None
    """Energy of the job's GPUs there since this run of the agent has first seen the job, joules."""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One profile of one rank."""

    time_s: float
    node: str
    run: RunKey
    """The run as the job claims, until Slurm has confirmed it."""
    trained: Trained
    param_bytes: int | None
    world_size: int | None
    steps: int
    step_s: float
    compute_s: float
    exposed_s: float
    hidden_s: float
    kinds: dict[str, float]
    """Bytes of a step by kind of communication."""
    shape: RunShape | None = None
    """Shape of the whole job; None when it is not known yet."""
    busy_s: float | None = None
    """Seconds of a step in which the GPU computed; None: not reported, or no GPU."""
    link_kinds: dict[str, float] | None = None
    """Bytes of a step by kind, as if all ranks took part in each call, without the calls of groups within a node; None: it is not
    known which these are, so that all bytes count."""
    local_exposed_s: float | None = None
    """Part of `exposed_s` in which only calls within the node were in progress; None: as for `link_kinds`."""
    local_hidden_s: float | None = None
    """The same part of `hidden_s`."""


def gpu_models(telemetry: agent_pb2.NodeTelemetry) -> dict[int, str] | None:
    """Return the models of a node's GPUs by index; None when they could not be read."""
    if not telemetry.gpus_read:
        return None
    return {gpu.index: gpu.name[:_MAX_TEXT] for gpu in telemetry.gpus if gpu.name}


def sighting_of(arrival: Arrival, models: Mapping[int, str] = MappingProxyType({})) -> Sighting | None:
    """Return what a job report, or the processes on GPUs, say about jobs, or None. `models`: models of the node's GPUs."""
    report = arrival.report
    match report.WhichOneof("kind"):
        case "job":
            sample = _sample(arrival, report.job, models)
            if sample is None:
                return None
            causes = {cause for gpu in report.job.impaired for cause in gpu.causes if cause in IMPAIRMENTS}
            energy_j = report.job.energy_joules if report.job.HasField("energy_joules") else None
            return Sighting(
                sample.time_s, sample.node, sample, (sample.job_id,), impaired=tuple(sorted(causes)), energy_j=energy_j
            )
        case "telemetry":
            jobs = {
                process.job_id
                for gpu in report.telemetry.gpus
                for process in (*gpu.processes, *(process for part in gpu.mig for process in part.processes))
                if process.HasField("job_id") and process.job_id <= _MAX_INT
            }
            return Sighting(arrival.reported_s, arrival.node, None, tuple(sorted(jobs))) if jobs else None
        case _:
            return None


def profile_of(arrival: Arrival) -> ProfileRow | None:
    """Return the profile in a report; None when there is none, or an impossible one."""
    if arrival.report.WhichOneof("kind") != "profile":
        return None
    reported = arrival.report.profile
    times = (reported.step_s, reported.compute_s, reported.comm_exposed_s, reported.comm_hidden_s)
    sizes = {use.kind: use.bytes for use in reported.kinds if use.kind in RING_SHARES}
    links = _link_kinds(reported)
    if not all(isfinite(number) and number >= 0 for number in (*times, *sizes.values(), *(links or {}).values())):
        return None
    if reported.step_s < MIN_STEP_S or not 0 < reported.steps <= MAX_STEPS or reported.job.job_id > _MAX_INT:
        return None
    return ProfileRow(
        time_s=arrival.reported_s,
        node=arrival.node,
        run=RunKey(reported.job.job_id, reported.job.restart),
        trained=_trained(reported.job, reported.script, reported.model),
        param_bytes=min(reported.model.param_bytes, _MAX_INT) if reported.HasField("model") else None,
        world_size=reported.world_size if reported.HasField("world_size") else None,
        steps=reported.steps,
        step_s=reported.step_s,
        compute_s=reported.compute_s,
        exposed_s=reported.comm_exposed_s,
        hidden_s=reported.comm_hidden_s,
        kinds=sizes,
        busy_s=reported.busy_s
        if reported.HasField("busy_s") and isfinite(reported.busy_s) and reported.busy_s > 0
        else None,
        link_kinds=links,
        local_exposed_s=None if links is None else _part(reported.local_exposed_s, reported.comm_exposed_s),
        local_hidden_s=None if links is None else _part(reported.local_hidden_s, reported.comm_hidden_s),
    )


def _link_kinds(reported: agent_pb2.JobProfile) -> dict[str, float] | None:
    """Return the bytes between nodes by kind; None if the report does not divide them. A kind that is not divided counts whole."""
    uses = [use for use in reported.kinds if use.kind in RING_SHARES]
    if not any(use.HasField("link_bytes") for use in uses):
        return None
    return {use.kind: use.link_bytes if use.HasField("link_bytes") else use.bytes for use in uses}


def _part(part_s: float, whole_s: float) -> float:
    """Return the part of a time, at most all of it."""
    return min(part_s, whole_s) if part_s > 0 else 0.0


def _sample(arrival: Arrival, reported: agent_pb2.JobReport, models: Mapping[int, str]) -> Sample | None:
    times = (reported.last_step_ns, reported.monotonic_ns, reported.first_seen_ns)
    if max(reported.job.job_id, *times) > _MAX_INT or reported.steps > MAX_STEPS:
        return None
    numa = dict(arrival.numa_of_gpu)
    places = [numa.get(index) for index in reported.gpus.index]
    return Sample(
        time_s=arrival.reported_s,
        node=arrival.node,
        job_id=reported.job.job_id,
        claimed_restart=reported.job.restart,
        trained=_trained(reported.job, reported.script, reported.model),
        num_ranks=len(reported.ranks),
        world_size=reported.world_size if reported.HasField("world_size") else None,
        gpus=len(reported.gpus.index) if reported.HasField("gpus") else None,
        idle_gpus=len(reported.idle_gpus.index) if reported.HasField("idle_gpus") else None,
        sockets=len(set(places)) if places and None not in places else None,
        steps=reported.steps if reported.HasField("steps") else None,
        last_step_ns=reported.last_step_ns if reported.HasField("last_step_ns") else None,
        monotonic_ns=reported.monotonic_ns,
        first_seen_ns=reported.first_seen_ns or None,
        gpu_model=_gpu_model(reported, models),
        several=len(set(reported.ranks)) < len(reported.ranks),
    )


def _gpu_model(reported: agent_pb2.JobReport, models: Mapping[int, str]) -> str:
    """Return the model of the job's GPUs; when its GPUs are not known, the node's only model; else empty."""
    if reported.device == "cpu":
        return ""
    its = set(reported.gpus.index) if reported.HasField("gpus") else set(models)
    found = sorted({models[index] for index in its if index in models})
    return " + ".join(found) if reported.HasField("gpus") or len(found) == 1 else ""


def _trained(job: agent_pb2.JobName, script: str, model: agent_pb2.JobModel) -> Trained:
    batch_size = model.batch_size if model.HasField("batch_size") and 0 < model.batch_size <= _MAX_INT else None
    return Trained(job.uid, script[:_MAX_TEXT], model.signature[:_MAX_TEXT], batch_size)
