"""The rows of a report from the agent to the controller. A missing measurement is None, never 0.

Times in `_ns` are CLOCK_MONOTONIC nanoseconds of this node; points in time in `_s` are seconds since the Unix epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from nodeagent.wire.bounds import MAX_NUMBER
from nodeagent.wire.frames import Model, Profile
from policies.serving.runtime.tasks.supervise import TaskFailure

_Count = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
_Amount = Annotated[float, Meta(ge=0, le=1e15)]
_Percent = Annotated[float, Meta(ge=0, le=100)]

ProcessState = Literal["connected", "ended", "lost"]
"""An `ended` process sent a bye; a `lost` one closed its connection without it."""
UsageSource = Literal["cgroup", "processes"]
"""`cgroup`: counted by the kernel for the job's cgroup. `processes`: added up over its processes by the agent."""


@dataclass(frozen=True, slots=True)
class RankReport:
    """One process of a job that reports, or has reported within the last window."""

    pid: int
    """Pid on this node, from the kernel."""
    step_id: str
    """Slurm's job step: "batch", "0", ...; empty = not known to the kernel."""
    rank: int
    """-1 = not known."""
    local_rank: int
    world_size: int
    state: ProcessState
    steps: int
    """Optimizer steps since the process started."""
    first_ns: int | None
    """End of its first step; None = it has made no step."""
    last_ns: int | None
    """End of its newest step."""
    steps_per_s: float | None
    """Rate over the window; None = fewer than two points yet."""
    profile: Profile | None
    no_profile: str = ""
    """Reason why it has dropped the newest request for a profile, as in frames.NoProfile; empty = it has not."""


@dataclass(frozen=True, slots=True)
class JobUsage:
    """Use of CPU and memory by a job's processes on this node."""

    cpu_s: float | None
    """CPU seconds so far. With `source` "processes": of the live processes, and of children for which they have waited."""
    memory_bytes: int | None
    source: UsageSource


@dataclass(frozen=True, slots=True)
class JobPressure:
    """Times that a job's processes on this node have waited so far, in seconds, as the kernel counts them for its cgroup.

    `some`: at least one of them waited; `full`: all that could run did (pressure stall information, cgroup v2).
    """

    cpu_some_s: float | None = None
    memory_some_s: float | None = None
    memory_full_s: float | None = None
    io_some_s: float | None = None
    io_full_s: float | None = None
    throttled_periods: int | None = None
    """Periods in which the CPU quota was used up (nr_throttled)."""
    throttled_s: float | None = None


@dataclass(frozen=True, slots=True)
class Usr1Report:
    """The effect that SIGUSR1, sent by Slurm, would have on the processes of a job on this node."""

    caught: int
    """Number of processes that receive and catch it."""
    fatal: int
    """Number of processes started by Slurm that it would end."""


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """State of a job's checkpoints."""

    ranks: tuple[int, ...]
    """Ranks on this node that can save on request, ascending."""
    restored_step: int | None
    """Steps done at the checkpoint from which the present program of this run resumed; None = it began anew."""
    saved_step: int | None
    """Steps done at the newest checkpoint of this run that is complete on all ranks; None = none yet."""
    saving: bool
    """A save is being written, or ranks are paused after one."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """One run of one job on this node."""

    job_id: int
    """Slurm's raw numeric id."""
    uid: int
    restart: int
    """Slurm's restart count of this run: 0, 1, ..."""
    first_seen_ns: int
    """Time at which the present program of this run was first seen: each program that begins to step in it has its own."""
    steps: int | None
    """Steps that the slowest rank has made in this run, also those that were lost; None = no process here has made a step."""
    steps_per_s: float | None
    """Rate of the slowest rank on this node; under data parallelism all ranks have the same."""
    last_step_ns: int | None
    """End of the newest step of the rank that is furthest behind."""
    world_size: int | None
    device: str | None
    """cpu or cuda."""
    torch: str | None
    script: str | None
    model: Model | None
    """Model of the lowest rank of the present program that has reported one."""
    profile: Profile | None
    """Newest profile of the lowest rank of the present program that has reported one and trains that model."""
    ranks: tuple[RankReport, ...]
    """Processes that have made a step, by rank; launchers and helpers are not among them."""
    num_connected: int
    """Processes connected now, launchers and helpers included."""
    num_ended: int
    num_lost: int
    """Processes that closed their connection without a bye since the run began."""
    claimed_job_ids: tuple[str, ...]
    """Other job ids that its processes have claimed. `job_id` is the true one."""
    usage: JobUsage | None = None
    gpus: tuple[int, ...] | None = None
    """Indices of the GPUs of this node that Slurm gave to the job; None = not known."""
    idle_gpus: tuple[int, ...] | None = None
    """Those of `gpus` on which no process of the job holds a context; None = not known."""
    report_wanted: bool = False
    """A connected process of it writes a report at its end, and would like what the controller knows."""
    checkpoint: CheckpointReport | None = None
    """None = no rank on this node has called headway_job.checkpoint."""
    started_ns: int | None = None
    """Times when the first training process on this node started, had loaded torch, and ended its first step; None = not known."""
    loaded_ns: int | None = None
    first_step_ns: int | None = None
    usr1: Usr1Report | None = None
    """None = not known: Slurm creates no cgroup for the job."""
    impaired: tuple[ImpairedGpu, ...] = ()
    """Those of its GPUs that were throttled or failed since the last report."""
    energy_j: float | None = None
    """Energy of its GPUs on this node since this agent has first seen the run, joules; None = not known."""
    pressure: JobPressure | None = None
    """None = the kernel counts it for no cgroup of the job."""
    steps_done: int | None = None
    """Steps that the training has done, those before the checkpoint from which it resumed included, without those that were lost
    when a program of this run began again at a checkpoint; None = no process here has made a step."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds a context on a GPU."""

    pid: _Count
    memory_bytes: _Count | None
    job_id: int | None = None
    """Slurm job of the process; None = none, or not known."""


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
class GpuHealth:
    """Condition of a GPU at one moment. Counters begin when the driver is loaded, unless they say otherwise."""

    temperature_c: _Amount | None = None
    power_limit_w: _Amount | None = None
    energy_j: _Amount | None = None
    """Energy used, in joules."""
    clock_events: _Count | None = None
    """Reasons for which the clock is lowered now: NVML's mask of nvmlClocksEventReason bits."""
    power_violation_s: _Amount | None = None
    """Time in which the clock was lowered to keep the power limit."""
    thermal_violation_s: _Amount | None = None
    """Time in which the clock was lowered to keep the temperature."""
    ecc_corrected: _Count | None = None
    ecc_uncorrected: _Count | None = None
    rows_remapped_corrected: _Count | None = None
    """Rows of memory that were remapped because of corrected errors, in the life of the GPU."""
    rows_remapped_uncorrected: _Count | None = None
    remapping_pending: bool | None = None
    """A row is remapped at the next reset of the GPU."""
    remapping_failed: bool | None = None
    pcie_replays: _Count | None = None
    nvlink_crc_errors: _Count | None = None
    """Errors over all links."""
    nvlink_replays: _Count | None = None
    nvlink_recoveries: _Count | None = None
    xid_errors: _Count | None = None
    """XID errors since the agent began to read the GPUs."""
    newest_xid: _Count | None = None
    """Number of the newest of them; None = there was none."""


@dataclass(frozen=True, slots=True)
class GpmReading:
    """Activity of a GPU: means over the time since the last reading, by GPM (Hopper and later)."""

    sm_percent: _Percent | None = None
    """Multiprocessors that were busy."""
    sm_occupancy_percent: _Percent | None = None
    """Warps that were active, of those that there is room for."""
    tensor_percent: _Percent | None = None
    """Part of the time in which tensor cores computed."""
    dram_percent: _Percent | None = None
    """Bandwidth of the memory in use, of the largest possible."""
    pcie_tx_bytes_per_s: _Amount | None = None
    pcie_rx_bytes_per_s: _Amount | None = None
    nvlink_tx_bytes_per_s: _Amount | None = None
    """Rates over all links."""
    nvlink_rx_bytes_per_s: _Amount | None = None


Impairment = Literal["power", "thermal", "xid", "lost", "memory", "nvlink", "pcie"]
"""Cause for which a GPU was slower than it should be, by itself: a power brake, its temperature, an error that the driver reported,
the driver no longer finds it, rows of its memory, or errors of its links."""


@dataclass(frozen=True, slots=True)
class ImpairedGpu:
    """A GPU that was impaired since the last report."""

    index: int
    causes: tuple[Impairment, ...]


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment."""

    index: _Count
    """N of /dev/nvidiaN, the number that Slurm uses."""
    uuid: str | None
    name: str | None
    pci_address: str | None
    """Address in the form of sysfs: 0000:3b:00.0."""
    busy_percent: _Percent | None
    """Part of the last sample period in which a kernel ran."""
    sm_percent: _Percent | None
    """Use of the multiprocessors, added up over the processes."""
    sm_clock_mhz: _Count | None
    memory_busy_percent: _Percent | None
    memory_used_bytes: _Count | None
    memory_total_bytes: _Count | None
    power_w: _Amount | None
    pcie_tx_bytes_per_s: _Amount | None
    """Rate sent by the GPU over PCIe, in a sample of 20 ms."""
    pcie_rx_bytes_per_s: _Amount | None
    nvlink_tx_bytes: _Count | None
    """Bytes over all links since the driver was loaded."""
    nvlink_rx_bytes: _Count | None
    processes: tuple[GpuProcess, ...] | None
    mig: tuple[MigReading, ...] = ()
    health: GpuHealth = GpuHealth()
    gpm: GpmReading | None = None
    """None = it is not read, the GPU has none, or this is the first reading."""


@dataclass(frozen=True, slots=True)
class NicReading:
    """Traffic of one network interface or InfiniBand port since the last reading."""

    name: str
    """eth0, or mlx5_0/1 for a port."""
    kind: Literal["ethernet", "infiniband"]
    speed_bits_per_s: int | None
    up: bool | None
    rx_bytes_per_s: float | None
    tx_bytes_per_s: float | None
    events: tuple[tuple[str, int], ...] = ()
    """Counters of errors, waits and congestion, by the kernel's names; those that this interface has."""


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node and its CPUs."""

    index: int
    cpus: tuple[int, ...]
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU and its NUMA node."""

    pci_address: str
    index: int | None
    """N of /dev/nvidiaN; None = not known to the driver."""
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class NicDevice:
    """A network interface, its speed and its NUMA node."""

    name: str
    kind: Literal["ethernet", "infiniband"]
    speed_bits_per_s: int | None
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class Topology:
    """The hardware of the node, which does not change while it is up."""

    sockets: int | None
    cpus: int | None
    numa_nodes: tuple[NumaNode, ...]
    gpus: tuple[GpuDevice, ...]
    nics: tuple[NicDevice, ...]


@dataclass(frozen=True, slots=True)
class SocketCounters:
    """Counters of the job socket since the agent started."""

    connections: int
    """Open now."""
    accepted: int
    refused: int
    """Connections refused: the process is not in a job, or over a limit."""
    closed_for_cause: int
    """Connections closed by the agent: an invalid frame, or too many frames."""
    frames: int
    unknown_frames: int
    dropped_sends: int


@dataclass(frozen=True, slots=True)
class NodeReport:
    """All measurements of the node at one moment."""

    node_name: str
    time_s: float
    monotonic_ns: int
    """The same moment as `time_s`, on the clock of the `_ns` times."""
    interval_s: float | None
    """Time since the last report; None = this is the first."""
    jobs: tuple[JobReport, ...]
    gpus: tuple[GpuReading, ...] | None
    """None = there is no driver, or it did not answer in time."""
    nics: tuple[NicReading, ...]
    socket: SocketCounters
    lost_gpus: tuple[int, ...] = ()
    """GPUs that the driver had since the agent began, and no longer has; all of them where it has not answered for 30 s."""
    failed_tasks: tuple[TaskFailure, ...] = ()
    """Background tasks of the agent that have failed since its start."""
