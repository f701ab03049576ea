"""Description of the embedded cluster: nodes, partitions, limits, delays, and jobs that submit themselves.

`loading` reads it from a TOML file. The default is one partition over 4 nodes with 8 GPUs each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policies.serving.runtime.hostlist import expand

_STRICT = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

Seconds = Annotated[float, Field(ge=0)]


class Delays(BaseModel):
    """Delays of Slurm, in seconds. The defaults are those of Slurm with batch_sched_delay=0."""

    model_config = _STRICT

    call_s: Seconds = 0.0
    """Duration of one request of a client."""
    schedule_s: Seconds = 0.05
    """Time from a change (submission, release, end of a job) to the scheduler's pass."""
    launch_s: Seconds = 0.05
    """Time in CONFIGURING, from the allocation to the batch script's first line."""
    exit_s: Seconds = 0.05
    """Time in COMPLETING, from the end of the tasks until the nodes are free."""
    kill_wait_s: Seconds = 5.0
    """KillWait: time that tasks which ignore TERM get before KILL."""
    requeue_s: Seconds = 120.0
    """Seconds that a requeue adds to the begin time."""
    backfill_s: Annotated[float, Field(gt=0)] = 5.0
    """Time between two passes of the backfill scheduler."""
    restart_s: Seconds = 1.0
    """Time that slurmctld is away after a crash."""
    register_s: Seconds = 2.0
    """Time after a restart during which the nodes are UNKNOWN, until they have registered."""
    min_job_age_s: Seconds = 300.0
    """Time that ended jobs stay in memory."""


class NodeDescription(BaseModel):
    """Nodes of one kind."""

    model_config = _STRICT

    names: str
    """Names as a host list: "n1", "n[1-4]", "a,b[01-16]"."""
    gpus: Annotated[int, Field(ge=0, le=64)] = 8
    """Number of GPUs of each node."""
    gpu_type: str = ""
    """GPU type in Slurm's Gres; empty: none."""
    cpus: Annotated[int, Field(ge=1)] = 64
    """Number of CPUs of each node."""
    memory_mib: Annotated[int, Field(ge=1)] = 256_000
    """Memory of each node, MiB."""
    features: tuple[str, ...] = ()
    """Features for `--constraint`."""
    sockets: Annotated[int, Field(ge=1)] | None = None
    """CPU sockets of each node, at most one for each GPU; none = 2 for four GPUs and more, else 1."""
    switches: Annotated[int, Field(ge=1)] | None = None
    """PCIe switches of each node, a multiple of its sockets; none = one for each socket."""
    nvlink: Annotated[int, Field(ge=2)] | None = None
    """GPUs of each group of a node that NVLink connects; none = no NVLink."""
    rack: str = ""
    """Rack of all these nodes; in a network of kind "switches", the switch right above them."""
    speed: Annotated[float, Field(gt=0)] = 1.0
    """Speed of a GPU relative to those of the other nodes, for the slowdown `node-speed`."""

    @model_validator(mode="after")
    def _check_sockets(self) -> NodeDescription:
        if self.gpus and (self.sockets or 0) > self.gpus:
            raise ValueError(
                f"sockets = {self.sockets} is more than its {self.gpus} GPUs; give at most one for each GPU"
            )
        return self


class PartitionDescription(BaseModel):
    """One partition."""

    model_config = _STRICT

    name: str
    """Name of the partition. The first partition is the default one."""
    nodes: str = "ALL"
    """Nodes as a host list, or ALL."""
    max_time_s: float | None = None
    """MaxTime, seconds; none = unlimited."""


class GpuLimit(BaseModel):
    """Limit on the GPUs that one user's jobs occupy at once."""

    model_config = _STRICT

    user: str
    """User of the limited jobs."""
    gpus: Annotated[int, Field(ge=0)]
    """Maximum number of GPUs at once."""
    reason: str = "AssocGrpGRES"
    """Slurm's reason for a job that would exceed the limit: AssocGrpGRES, QOSMaxGRESPerUser, ..."""


class JobDescription(BaseModel):
    """A job that the emulation submits itself, so that a demonstration needs no user who runs sbatch."""

    model_config = _STRICT

    at_s: Seconds = 0.0
    """Time of the submission, in seconds after the cluster's start."""
    duration_s: Annotated[float, Field(gt=0)]
    """True run time of the job without slowdown by other jobs, in seconds."""
    gpus: Annotated[int, Field(ge=1)]
    """GPUs on each node."""
    nodes: Annotated[int, Field(ge=1)] = 1
    """Number of nodes."""
    max_nodes: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of nodes. With it, the job asks for `gpus` times `nodes` GPUs in all, on as few nodes as possible, at least
    `nodes`."""
    name: str = "train"
    """Job name."""
    user: str = "alice"
    """User of the job."""
    partition: str = ""
    """Partition; empty = the default partition."""
    time_limit_s: float | None = None
    """Time limit, seconds."""
    model: str = ""
    """Name of the model in the profiles; empty or unknown = the median of all profiles."""
    batch_size: Annotated[int, Field(ge=1)] | None = None
    """Examples per step over all its GPUs; none = as in the profile."""

    @model_validator(mode="after")
    def _check_nodes(self) -> JobDescription:
        if self.max_nodes is not None and self.max_nodes < self.nodes:
            raise ValueError(f"max_nodes = {self.max_nodes} is less than nodes = {self.nodes}; give at least as many")
        return self


class ClusterDescription(BaseModel):
    """The whole cluster."""

    model_config = _STRICT

    name: str = "embedded"
    """ClusterName."""
    nodes: Annotated[tuple[NodeDescription, ...], Field(min_length=1)] = (NodeDescription(names="n[1-4]"),)
    """Nodes of the cluster."""
    partitions: Annotated[tuple[PartitionDescription, ...], Field(min_length=1)] = (PartitionDescription(name="dl"),)
    """Partitions of the cluster."""
    licenses: dict[str, Annotated[int, Field(ge=0)]] = {}
    """License → number available."""
    limits: tuple[GpuLimit, ...] = ()
    """Limits per user."""
    delays: Delays = Delays()
    """Delays of Slurm."""
    default_memory_mib_per_cpu: Annotated[int, Field(ge=0)] = 1000
    """DefMemPerCPU."""
    jobs: tuple[JobDescription, ...] = ()
    """Jobs that submit themselves."""
    slowdown: tuple[str, ...] = ()
    """Models that slow jobs down, named as for `headway-sim run --slowdown`: "max-min", "pair-table", ...; none = no slowdown."""
    profiles: Path | None = None
    """File with job profiles, as for `headway-sim run --profiles`, relative to this file; none = the profiles of the papers."""
    network: dict[str, Any] = {}
    """Network between the nodes: kind and keys as in the simulator's cluster files."""

    @model_validator(mode="after")
    def _check_names(self) -> ClusterDescription:
        names = self.node_names
        if len(names) != len(set(names)):
            raise ValueError("a node is named twice")
        for partition in self.partitions:
            unknown = set(self.members(partition)) - set(names)
            if unknown:
                raise ValueError(f"partition {partition.name} names unknown nodes: {', '.join(sorted(unknown))}")
        known = {partition.name for partition in self.partitions} | {""}
        for job in self.jobs:
            if job.partition not in known:
                raise ValueError(f"job {job.name} names the unknown partition {job.partition!r}")
        return self

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of all nodes, in order."""
        return tuple(name for kind in self.nodes for name in expand_hosts(kind.names))

    def members(self, partition: PartitionDescription) -> tuple[str, ...]:
        """Return the nodes of a partition."""
        return self.node_names if partition.nodes == "ALL" else expand_hosts(partition.nodes)


def expand_hosts(text: str) -> tuple[str, ...]:
    """Return the names in a host list such as "a,b[01-03,7]"; empty for an empty text. Raises ValueError."""
    return expand(text) if text else ()
