"""Reports of agents as rows for the store of profiles. Strict at this boundary: what makes no sense is left out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType

from controller.profiles.sensitivity import RING_SHARES
from controller.profiles.windows import RunKey, RunShape, Sample, Trained
from nodeagent.wire.bounds import LEAST_STEP_S, MAX_STEPS
from protos.headway.v1 import agent_pb2

_MAX_TEXT = 255
_MAX_INT = 2**63 - 1
"""The largest number that SQLite keeps whole."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A report as it came in."""

    node: str
    run_id: str
    """Of the agent."""
    report: agent_pb2.AgentReport
    time_s: float
    """When, by the controller's clock."""
    offset_s: float = 0.0
    """What is to be added to the node's clock to have the controller's."""
    numa_of_gpu: tuple[tuple[int, int], ...] = ()
    """(GPU index, NUMA node) of the node's GPUs, where both are known."""
    made_s: float | None = None
    """When the report was made, by the controller's clock, found without the node's; None: the agent did not tell its age."""

    @property
    def reported_s(self) -> float:
        """When the report was made, by the controller's clock; never later than it came."""
        made_s = self.report.time_s + self.offset_s if self.made_s is None else self.made_s
        return min(made_s, self.time_s) if isfinite(made_s) else self.time_s


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a report says of jobs on its node."""

    time_s: float
    node: str
    sample: Sample | None
    present: tuple[int, ...]
    """Numeric ids of jobs that are there."""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One profile of one rank."""

    time_s: float
    node: str
    run: RunKey
    """As the job says, until Slurm has told of it."""
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
    """Of the whole job; None: not known yet."""
    busy_s: float | None = None
    """In which a kernel that computes ran on the GPU; None: not told, or not on GPUs."""


def gpu_models(telemetry: agent_pb2.NodeTelemetry) -> dict[int, str] | None:
    """Models of a node's GPUs by index; None: they could not be read."""
    if not telemetry.gpus_read:
        return None
    return {gpu.index: gpu.name[:_MAX_TEXT] for gpu in telemetry.gpus if gpu.name}


def sighting_of(arrival: Arrival, models: Mapping[int, str] = MappingProxyType({})) -> Sighting | None:
    """What a job report, or the processes on the GPUs, say of jobs; None where nothing. `models`: of the node's GPUs."""
    report = arrival.report
    match report.WhichOneof("kind"):
        case "job":
            sample = _sample(arrival, report.job, models)
            return Sighting(sample.time_s, sample.node, sample, (sample.job_id,)) if sample else None
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
    """The profile in a report; None where there is none, or one that no step can have."""
    if arrival.report.WhichOneof("kind") != "profile":
        return None
    told = arrival.report.profile
    times = (told.step_s, told.compute_s, told.comm_exposed_s, told.comm_hidden_s)
    sizes = {use.kind: use.bytes for use in told.kinds if use.kind in RING_SHARES}
    if not all(isfinite(number) and number >= 0 for number in (*times, *sizes.values())):
        return None
    if told.step_s < LEAST_STEP_S or not 0 < told.steps <= MAX_STEPS or told.job.job_id > _MAX_INT:
        return None
    return ProfileRow(
        time_s=arrival.reported_s,
        node=arrival.node,
        run=RunKey(told.job.job_id, told.job.restart),
        trained=_trained(told.job, told.script, told.model),
        param_bytes=min(told.model.param_bytes, _MAX_INT) if told.HasField("model") else None,
        world_size=told.world_size if told.HasField("world_size") else None,
        steps=told.steps,
        step_s=told.step_s,
        compute_s=told.compute_s,
        exposed_s=told.comm_exposed_s,
        hidden_s=told.comm_hidden_s,
        kinds=sizes,
        busy_s=told.busy_s if told.HasField("busy_s") and isfinite(told.busy_s) and told.busy_s > 0 else None,
    )


def _sample(arrival: Arrival, told: agent_pb2.JobReport, models: Mapping[int, str]) -> Sample | None:
    times = (told.last_step_ns, told.monotonic_ns, told.first_seen_ns)
    if max(told.job.job_id, *times) > _MAX_INT or told.steps > MAX_STEPS:
        return None
    numa = dict(arrival.numa_of_gpu)
    places = [numa.get(index) for index in told.gpus.index]
    return Sample(
        time_s=arrival.reported_s,
        node=arrival.node,
        job_id=told.job.job_id,
        claimed_restart=told.job.restart,
        trained=_trained(told.job, told.script, told.model),
        num_ranks=len(told.ranks),
        world_size=told.world_size if told.HasField("world_size") else None,
        gpus=len(told.gpus.index) if told.HasField("gpus") else None,
        idle_gpus=len(told.idle_gpus.index) if told.HasField("idle_gpus") else None,
        sockets=len(set(places)) if places and None not in places else None,
        steps=told.steps if told.HasField("steps") else None,
        last_step_ns=told.last_step_ns if told.HasField("last_step_ns") else None,
        monotonic_ns=told.monotonic_ns,
        first_seen_ns=told.first_seen_ns or None,
        gpu_model=_gpu_model(told, models),
        several=len(set(told.ranks)) < len(told.ranks),
    )


def _gpu_model(told: agent_pb2.JobReport, models: Mapping[int, str]) -> str:
    """Of the GPUs that the job has; where it is not known which, of the node's if they are all of one model."""
    if told.device == "cpu":
        return ""
    its = set(told.gpus.index) if told.HasField("gpus") else set(models)
    found = sorted({models[index] for index in its if index in models})
    return " + ".join(found) if told.HasField("gpus") or len(found) == 1 else ""


def _trained(job: agent_pb2.JobName, script: str, model: agent_pb2.JobModel) -> Trained:
    batch_size = model.batch_size if model.HasField("batch_size") and 0 < model.batch_size <= _MAX_INT else None
    return Trained(job.uid, script[:_MAX_TEXT], model.signature[:_MAX_TEXT], batch_size)
