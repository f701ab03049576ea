"""What the agent tells the controller: frozen rows. A measurement that is missing is None, never 0.

Times in `_ns` are CLOCK_MONOTONIC nanoseconds of this node; times in `_s` that are points are seconds since the Unix epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from nodeagent.wire.bounds import MAX_NUMBER
from nodeagent.wire.frames import Model, Profile

_Count = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
_Amount = Annotated[float, Meta(ge=0, le=1e15)]
_Percent = Annotated[float, Meta(ge=0, le=100)]

ProcessState = Literal["connected", "ended", "lost"]
"""`ended` said bye; `lost` went away without a word."""
UsageSource = Literal["cgroup", "processes"]
"""Whether the kernel counted for the job's cgroup, or the agent added up the processes that it found in it."""


@dataclass(frozen=True, slots=True)
class RankReport:
    """One process of a job that reports, or did within the last window."""

    pid: int
    """On this node, as the kernel tells it."""
    step_id: str
    """Slurm's job step: "batch", "0", ...; empty where the kernel does not tell."""
    rank: int
    """-1 = not known."""
    local_rank: int
    world_size: int
    state: ProcessState
    steps: int
    """Optimizer steps since the process started."""
    first_ns: int | None
    """End of its first step; None = it has not stepped."""
    last_ns: int | None
    """End of its newest step."""
    steps_per_s: float | None
    """Over the window; None = fewer than two points yet."""
    profile: Profile | None


@dataclass(frozen=True, slots=True)
class JobUsage:
    """What a job's processes on this node use."""

    cpu_s: float | None
    """CPU seconds so far. Where `source` is "processes", those of processes still there and of children they waited for."""
    memory_bytes: int | None
    source: UsageSource


@dataclass(frozen=True, slots=True)
class Usr1Report:
    """What SIGUSR1, sent by Slurm, would do to the processes of a job here."""

    caught: int
    """Processes that it reaches and that catch it."""
    fatal: int
    """Processes that Slurm started and that it would end."""


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """How a job can come back."""

    ranks: tuple[int, ...]
    """Ranks here that save when they are asked, ascending."""
    restored_step: int | None
    """Steps done at the checkpoint that this run began with; None = it began anew."""
    saved_step: int | None
    """Steps done at the newest checkpoint of this run that is complete on all ranks; None = none yet."""
    saving: bool
    """A save is being written, or ranks stand still after one."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """One run of one job on this node."""

    job_id: int
    """Slurm's raw numeric id."""
    uid: int
    restart: int
    """Which run of the job this is, as Slurm counts: 0, 1, ..."""
    first_seen_ns: int
    steps: int | None
    """Steps of the slowest rank; None = nobody here has stepped."""
    steps_per_s: float | None
    """Of the slowest rank here, which under data parallelism is everybody's."""
    last_step_ns: int | None
    """End of the newest step of the rank that is furthest behind."""
    world_size: int | None
    device: str | None
    """cpu or cuda."""
    torch: str | None
    script: str | None
    model: Model | None
    """Of the lowest rank that told."""
    profile: Profile | None
    """The newest of the lowest rank that told."""
    ranks: tuple[RankReport, ...]
    """Those that have stepped, by rank; launchers and helpers are not among them."""
    num_connected: int
    """Processes connected now, launchers and helpers included."""
    num_ended: int
    num_lost: int
    """Processes gone without a word since the run began."""
    claimed_job_ids: tuple[str, ...]
    """Other ids that its processes said they belong to. The job is filed under its true one."""
    usage: JobUsage | None = None
    gpus: tuple[int, ...] | None = None
    """Indices of the GPUs that Slurm gave it here; None = not known."""
    idle_gpus: tuple[int, ...] | None = None
    """Of these, the ones on which no process of the job holds a context; None = not known."""
    checkpoint: CheckpointReport | None = None
    """None = no rank here has called headway_job.checkpoint."""
    started_ns: int | None = None
    """When the first process here that trains began, had loaded torch, and ended its first step; None = not known, not yet."""
    loaded_ns: int | None = None
    first_step_ns: int | None = None
    usr1: Usr1Report | None = None
    """None = not known: Slurm makes no cgroup for it."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds a context on a GPU."""

    pid: _Count
    memory_bytes: _Count | None
    job_id: int | None = None
    """Its Slurm job; None = none, or not known."""


@dataclass(frozen=True, slots=True)
class MigReading:
    """One MIG instance of a GPU."""

    uuid: str
    gpu_instance: _Count | None
    compute_instance: _Count | None
    memory_used_bytes: _Count | None
    memory_total_bytes: _Count | None
    processes: tuple[GpuProcess, ...] | None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment."""

    index: _Count
    """N of /dev/nvidiaN, which is how Slurm counts."""
    uuid: str | None
    name: str | None
    pci_address: str | None
    """As sysfs writes it: 0000:3b:00.0."""
    busy_percent: _Percent | None
    """Share of the last sample period in which any kernel ran."""
    sm_percent: _Percent | None
    """Share of the multiprocessors that processes used, added up."""
    sm_clock_mhz: _Count | None
    memory_busy_percent: _Percent | None
    memory_used_bytes: _Count | None
    memory_total_bytes: _Count | None
    power_w: _Amount | None
    pcie_tx_bytes_per_s: _Amount | None
    """Sent by the GPU over PCIe, in a sample of 20 ms."""
    pcie_rx_bytes_per_s: _Amount | None
    nvlink_tx_bytes: _Count | None
    """Counter over all links since the driver was loaded."""
    nvlink_rx_bytes: _Count | None
    processes: tuple[GpuProcess, ...] | None
    mig: tuple[MigReading, ...] = ()


@dataclass(frozen=True, slots=True)
class NicReading:
    """Traffic of one network interface, or InfiniBand port, since the reading before."""

    name: str
    """eth0, or mlx5_0/1 for a port."""
    kind: Literal["ethernet", "infiniband"]
    speed_bits_per_s: int | None
    up: bool | None
    rx_bytes_per_s: float | None
    tx_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One memory node and its CPUs."""

    index: int
    cpus: tuple[int, ...]
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """Where a GPU sits."""

    pci_address: str
    index: int | None
    """N of /dev/nvidiaN; None = the driver does not tell."""
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class NicDevice:
    """Where a network interface sits, and how fast it is."""

    name: str
    kind: Literal["ethernet", "infiniband"]
    speed_bits_per_s: int | None
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class Topology:
    """What does not change while the node is up."""

    sockets: int | None
    cpus: int | None
    numa_nodes: tuple[NumaNode, ...]
    gpus: tuple[GpuDevice, ...]
    nics: tuple[NicDevice, ...]


@dataclass(frozen=True, slots=True)
class SocketCounters:
    """What happened on the job socket since the agent started."""

    connections: int
    """Open now."""
    accepted: int
    refused: int
    """Turned away: not in a job, or over a limit."""
    closed_for_cause: int
    """Closed by the agent: no frame, or too many of them."""
    frames: int
    unknown_frames: int
    dropped_sends: int


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Everything that the agent knows of its node at one moment."""

    node_name: str
    time_s: float
    monotonic_ns: int
    """The same moment on the clock of the `_ns` times."""
    interval_s: float | None
    """Time since the report before; None = the first."""
    jobs: tuple[JobReport, ...]
    gpus: tuple[GpuReading, ...] | None
    """None = no driver, or it did not answer in time."""
    nics: tuple[NicReading, ...]
    socket: SocketCounters
