"""What the embedded cluster is made of: nodes, partitions, limits, delays, and jobs that come by themselves.

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
    """How long Slurm takes, seconds. The defaults are those of Slurm with batch_sched_delay=0."""

    model_config = _STRICT

    call_s: Seconds = 0.0
    """One request of a client."""
    schedule_s: Seconds = 0.05
    """From a change (submission, release, end of a job) to the scheduler's pass."""
    launch_s: Seconds = 0.05
    """CONFIGURING: from allocation to the batch script's first line."""
    exit_s: Seconds = 0.05
    """COMPLETING: from the end of the tasks to free nodes."""
    kill_wait_s: Seconds = 5.0
    """KillWait: what tasks that ignore TERM get before KILL."""
    requeue_s: Seconds = 120.0
    """What a requeue adds to the begin time."""
    backfill_s: Annotated[float, Field(gt=0)] = 5.0
    """Time between two passes of the backfill scheduler."""
    restart_s: Seconds = 1.0
    """How long slurmctld is away when it crashes."""
    register_s: Seconds = 2.0
    """How long after a restart the nodes are UNKNOWN, until they have registered."""
    min_job_age_s: Seconds = 300.0
    """How long ended jobs stay in memory."""


class NodeDescription(BaseModel):
    """Nodes of one kind."""

    model_config = _STRICT

    names: str
    """Host list: "n1", "n[1-4]", "a,b[01-16]"."""
    gpus: Annotated[int, Field(ge=0, le=64)] = 8
    """GPUs of each."""
    gpu_type: str = ""
    """Type in Slurm's Gres, if it has one."""
    cpus: Annotated[int, Field(ge=1)] = 64
    """CPUs of each."""
    memory_mib: Annotated[int, Field(ge=1)] = 256_000
    """Memory of each, MiB."""
    features: tuple[str, ...] = ()
    """What `--constraint` can ask for."""
    sockets: Annotated[int, Field(ge=1)] | None = None
    """CPU sockets of each, at most one for each GPU; none = 2 from four GPUs on, else 1."""
    rack: str = ""
    """Rack of all of them, or in a network of kind "switches" the switch right above them."""
    speed: Annotated[float, Field(gt=0)] = 1.0
    """Of a GPU, relative to those of the other nodes, for the slowdown `node-speed`."""

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
    """Its name. The first partition is the default one."""
    nodes: str = "ALL"
    """Host list, or ALL."""
    max_time_s: float | None = None
    """MaxTime, seconds; none = unlimited."""


class GpuLimit(BaseModel):
    """Cap on the GPUs that one user's jobs hold at once."""

    model_config = _STRICT

    user: str
    """Whose jobs."""
    gpus: Annotated[int, Field(ge=0)]
    """At most so many at once."""
    reason: str = "AssocGrpGRES"
    """What Slurm says of a job that would exceed it: AssocGrpGRES, QOSMaxGRESPerUser, ..."""


class JobDescription(BaseModel):
    """A job that submits itself: the demonstration's queue, without anybody to type sbatch."""

    model_config = _STRICT

    at_s: Seconds = 0.0
    """When, seconds after the cluster's start."""
    duration_s: Annotated[float, Field(gt=0)]
    """How long it truly runs where nobody slows it down."""
    gpus: Annotated[int, Field(ge=1)]
    """GPUs on each node."""
    nodes: Annotated[int, Field(ge=1)] = 1
    """Number of nodes."""
    max_nodes: Annotated[int, Field(ge=1)] | None = None
    """Most nodes of a job that asks for its GPUs in all: `gpus` times `nodes`, on as few nodes as have room, at least `nodes`."""
    name: str = "train"
    """Job name."""
    user: str = "alice"
    """Whose job."""
    partition: str = ""
    """Where; empty = the default partition."""
    time_limit_s: float | None = None
    """Time limit, seconds."""
    model: str = ""
    """What it trains, by the name that it has in the profiles; empty or not there = a job like the median of them."""
    batch_size: Annotated[int, Field(ge=1)] | None = None
    """Examples of a step over all its GPUs; none = as in the profile."""

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
    """Its nodes."""
    partitions: Annotated[tuple[PartitionDescription, ...], Field(min_length=1)] = (PartitionDescription(name="dl"),)
    """Its partitions."""
    licenses: dict[str, Annotated[int, Field(ge=0)]] = {}
    """License → how many there are."""
    limits: tuple[GpuLimit, ...] = ()
    """Caps per user."""
    delays: Delays = Delays()
    """How long things take."""
    default_memory_mib_per_cpu: Annotated[int, Field(ge=0)] = 1000
    """DefMemPerCPU."""
    jobs: tuple[JobDescription, ...] = ()
    """Jobs that come by themselves."""
    slowdown: tuple[str, ...] = ()
    """Why jobs run slower, each as `headway-sim run --slowdown` takes it: "max-min", "pair-table", ...; none = they do not."""
    profiles: Path | None = None
    """How models train, a file as `headway-sim run --profiles` takes it, relative to this one; none = those of the papers."""
    network: dict[str, Any] = {}
    """What connects the nodes: kind and keys as in the simulator's cluster files."""

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
        """Every node, in order."""
        return tuple(name for kind in self.nodes for name in expand_hosts(kind.names))

    def members(self, partition: PartitionDescription) -> tuple[str, ...]:
        """The nodes of a partition."""
        return self.node_names if partition.nodes == "ALL" else expand_hosts(partition.nodes)


def expand_hosts(text: str) -> tuple[str, ...]:
    """Return the names in a host list such as "a,b[01-03,7]"; empty for an empty text. Raises ValueError."""
    return expand(text) if text else ()
