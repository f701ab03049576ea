"""The cluster as a policy sees it, in immutable columns.

A policy reads `ClusterState` and nothing else. Columns are numpy arrays so that 10,000 jobs cost microseconds to sort and
filter. Nothing here does I/O, and nothing here knows whether a simulator or a live cluster filled it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.state.gpu_layout import GpuLayout
from policies.state.pair_ratios import Pair
from policies.state.ring_reduction import RingTime

IntColumn = npt.NDArray[np.int64]
FloatColumn = npt.NDArray[np.float64]
BoolColumn = npt.NDArray[np.bool_]
MaskColumn = npt.NDArray[np.uint64]


class JobState(IntEnum):
    """State of a job, as far as a policy may act on it."""

    PENDING = 1
    RUNNING = 2


class Split(IntEnum):
    """Ways of dividing a job's GPUs among its nodes."""

    FIXED = 1
    """`gpus_per_node` GPUs on each of `min_nodes` nodes."""
    EVEN = 2
    """The same number on every node, on `min_nodes` to `max_nodes` nodes."""
    ANY = 3
    """Any numbers that add up, on `min_nodes` to `max_nodes` nodes."""


class EstimateSource(IntEnum):
    """Sources of a duration estimate."""

    UNKNOWN = 0
    TIME_LIMIT = 1
    HISTORY = 2
    TRUTH = 3


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes that a job occupies, and how many GPUs on each; for jobs with parameter servers also their nodes.

    Invariant: nodes are distinct and ascending, counts positive; the same holds for servers. `gpu_masks` is empty, or has one entry
    per node, which is 0 or has as many bits as the job has GPUs there.
    """

    nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    server_nodes: tuple[int, ...] = ()
    servers: tuple[int, ...] = ()
    """Parameter servers on each of `server_nodes`; a server occupies no GPU."""
    gpu_masks: tuple[int, ...] = ()
    """Which GPUs of each of `nodes`: bit k stands for GPU k, 0 for any that are free. Empty: any on every node. A running job that
    names none keeps those that it has."""

    @staticmethod
    def of(
        counts: Mapping[int, int] | Iterable[tuple[int, int]], servers: Mapping[int, int] | None = None
    ) -> Placement:
        """Return the placement with these GPUs and these parameter servers by node, which may come in any order."""
        pairs = sorted(counts.items() if isinstance(counts, Mapping) else counts)
        there = sorted((servers or {}).items())
        return Placement(
            tuple(node for node, _ in pairs),
            tuple(gpus for _, gpus in pairs),
            tuple(node for node, _ in there),
            tuple(count for _, count in there),
        )

    @property
    def num_gpus(self) -> int:
        """GPUs on all nodes together."""
        return sum(self.gpus)

    @property
    def num_servers(self) -> int:
        """Parameter servers on all nodes together."""
        return sum(self.servers)

    def items(self) -> Iterable[tuple[int, int]]:
        """Return (node, GPUs) pairs, by rising node."""
        return zip(self.nodes, self.gpus, strict=True)


@dataclass(frozen=True)
class Nodes:
    """One entry per node in every column; units are in the names. `cpus` and `memory_mib` are 0 where they do not limit.

    Speeds of links hold for each direction. An unknown speed is NaN; a column is None where no speed is known.
    """

    names: tuple[str, ...]
    gpus: IntColumn
    cpus: IntColumn
    memory_mib: IntColumn
    available: BoolColumn
    foreign_gpus: IntColumn
    foreign_cpus: IntColumn
    foreign_memory_mib: IntColumn
    rack: IntColumn
    nic_gbyte_s: FloatColumn | None = None
    """GB/s of the link by which jobs leave the node; of several links the narrowest."""
    uplink_gbyte_s: FloatColumn | None = None
    """GB/s of the link from the node's rack to the other racks; one link for all nodes of a rack."""
    pcie_gbyte_s: FloatColumn | None = None
    """GB/s between a GPU group and its socket: no job of the node sends faster."""
    gpu_speed: FloatColumn | None = None
    """Speed of one of the node's GPUs relative to those of other nodes, for a job that feels all of the difference
    (`ProfileTable.speed_sensitivity`)."""
    gpu_layout: IntColumn | None = None
    """Row of the node's layout in `ClusterState.gpu_layouts`, or -1; None: no layout is known."""
    foreign_gpu_mask: MaskColumn | None = None
    """Which GPUs `foreign_gpus` are (bit k: GPU k; 0 = not known); None: it is known for no node."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Jobs:
    """One entry per job in every column, in order of submission (ties: job id).

    Running jobs occupy `placement_node[placement_offset[i]:placement_offset[i+1]]`, and beside it `placement_gpus` and
    `placement_gpu_mask` (bit k: GPU k; 0 = not known). `node_set` is a row of `ClusterState.node_sets`, or -1 for every node.
    `duration_estimate_s` and `duration_spread_s` are NaN when not known; `start_time_s` is NaN while pending.

    Elastic jobs take `min_gpus` to `max_gpus` GPUs, which include `num_gpus`, what they ask for; only a policy that resizes
    gives them another number. Both are None where every job takes exactly `num_gpus`, and where there are no jobs.

    Measurements of running jobs: `contention_sensitivity` says how many times slower the job runs now than it would alone on
    the same nodes, `contention_confidence` from 0 to 1 how sure that is, and `throughput_steps_per_s` what it achieves. NaN (the
    confidence: 0) where it is not known, and all three are None where nothing is known of any job.

    Training: `epochs` is the number of epochs that the job's user states, `progress` the share of its training that is done, from 0
    to 1. NaN where it is not known; both are None where nothing is known of any job.

    Slurm's order: `slurm_priority` is the priority that Slurm would give a waiting job that is not held, `partition_tier` the
    highest PriorityTier of its partitions. NaN where a priority is not known, and for running jobs. Both are None where Slurm's
    order is not known, and in simulations.

    Quality of service: `qos` is a row of `qos_names`, or -1 for a job that has none; `qos_of` returns the name. Both are None where
    no job has one: without Slurm's accounting, and in simulations.

    Parameter servers: `num_servers` is the number that a job requests (0: it trains by all-reduce). Running jobs have servers
    on `server_node[server_offset[i]:server_offset[i+1]]`, and beside it `server_count`. All four are None where no job has
    servers.
    """

    ids: tuple[str, ...]
    state: IntColumn
    submit_time_s: FloatColumn
    start_time_s: FloatColumn
    num_gpus: IntColumn
    split: IntColumn
    min_nodes: IntColumn
    max_nodes: IntColumn
    gpus_per_node: IntColumn
    cpus_per_gpu: FloatColumn
    memory_mib_per_gpu: FloatColumn
    service_s: FloatColumn
    attained_gpu_s: FloatColumn
    duration_estimate_s: FloatColumn
    duration_spread_s: FloatColumn
    estimate_source: IntColumn
    preemptible: BoolColumn
    exclusive: BoolColumn
    node_set: IntColumn
    user: IntColumn
    users: tuple[str, ...]
    placement_offset: IntColumn
    placement_node: IntColumn
    placement_gpus: IntColumn
    placement_gpu_mask: MaskColumn
    min_gpus: IntColumn | None = None
    max_gpus: IntColumn | None = None
    contention_sensitivity: FloatColumn | None = None
    contention_confidence: FloatColumn | None = None
    throughput_steps_per_s: FloatColumn | None = None
    epochs: FloatColumn | None = None
    progress: FloatColumn | None = None
    num_servers: IntColumn | None = None
    server_offset: IntColumn | None = None
    server_node: IntColumn | None = None
    server_count: IntColumn | None = None
    slurm_priority: FloatColumn | None = None
    partition_tier: IntColumn | None = None
    qos: IntColumn | None = None
    qos_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def sizes(self) -> tuple[IntColumn, IntColumn]:
        """The fewest and the most GPUs that each job takes."""
        if self.min_gpus is None or self.max_gpus is None:
            return self.num_gpus, self.num_gpus
        return self.min_gpus, self.max_gpus

    def qos_of(self, row: int) -> str:
        """Return the name of the QOS of the job of that row; empty if it has none."""
        if self.qos is None or self.qos_names is None or self.qos[row] < 0:
            return ""
        return self.qos_names[int(self.qos[row])]

    def placement(self, row: int) -> Placement | None:
        """Return what the job of that row occupies; None while it waits."""
        begin, end = int(self.placement_offset[row]), int(self.placement_offset[row + 1])
        if begin == end:
            return None
        gpus = zip(self.placement_node[begin:end].tolist(), self.placement_gpus[begin:end].tolist(), strict=True)
        return Placement.of(gpus, self._servers_of(row))

    def _servers_of(self, row: int) -> dict[int, int]:
        if self.server_offset is None or self.server_node is None or self.server_count is None:
            return {}
        there = slice(*self.server_offset[row : row + 2].tolist())
        return dict(zip(self.server_node[there].tolist(), self.server_count[there].tolist(), strict=True))

    def stopped(self, row: int) -> Jobs:
        """Return the same jobs with that one stopped: it waits, and occupies nothing."""
        begin, end = self.placement_offset[row : row + 2].tolist()
        offset = self.placement_offset.copy()
        offset[row + 1 :] -= end - begin
        kept = np.r_[0:begin, end : len(self.placement_node)]
        state, start_time_s, preemptible = self.state.copy(), self.start_time_s.copy(), self.preemptible.copy()
        state[row], start_time_s[row], preemptible[row] = JobState.PENDING, np.nan, False
        return replace(
            self,
            state=state,
            start_time_s=start_time_s,
            preemptible=preemptible,
            placement_offset=offset,
            placement_node=self.placement_node[kept],
            placement_gpus=self.placement_gpus[kept],
            placement_gpu_mask=self.placement_gpu_mask[kept],
            **self._servers_without(row),
        )

    def _servers_without(self, row: int) -> dict[str, Any]:
        """Return the columns of servers after that job has stopped; empty where no job has servers."""
        if self.server_offset is None or self.server_node is None or self.server_count is None:
            return {}
        begin, end = self.server_offset[row : row + 2].tolist()
        offset = self.server_offset.copy()
        offset[row + 1 :] -= end - begin
        kept = np.r_[0:begin, end : len(self.server_node)]
        return {
            "server_offset": offset,
            "server_node": self.server_node[kept],
            "server_count": self.server_count[kept],
        }


@dataclass(frozen=True)
class Pairs:
    """Measured ratios of jobs that share a node (`policies.state.pair_ratios`): one entry per pair in every column but `kinds`."""

    kinds: tuple[str, ...]
    """Keys: a model, or `model,GPUs,nodes`."""
    target: IntColumn
    """The row in `kinds` of the job that is slowed down."""
    other: IntColumn
    """The row in `kinds` of its neighbour."""
    ratio: FloatColumn
    """Throughput of the target beside the other, as a share of its throughput alone."""

    def table(self) -> dict[Pair, float]:
        """Return the ratios by pairs of keys."""
        kinds = self.kinds
        rows = zip(self.target.tolist(), self.other.tolist(), self.ratio.tolist(), strict=True)
        return {(kinds[target], kinds[other]): ratio for target, other, ratio in rows}

    @staticmethod
    def of(table: Mapping[Pair, float]) -> Pairs:
        """Return the columns of such a table, sorted by key."""
        kinds = sorted({key for pair in table for key in pair})
        row = {key: place for place, key in enumerate(kinds)}
        rows = sorted(table.items())
        return Pairs(
            tuple(kinds),
            np.array([row[target] for (target, _), _ in rows], dtype=np.int64),
            np.array([row[other] for (_, other), _ in rows], dtype=np.int64),
            np.array([ratio for _, ratio in rows], dtype=np.float64),
        )


@dataclass(frozen=True)
class ProfileTable:
    """Measured profiles of models: one entry per model in every column unless its docstring says otherwise. An entry is NaN where
    it was not measured, and a column is None where it was measured for no model.

    `locality[m, t]` is the throughput of model m at tier t (`policies.placement.locality_tiers`), as a share of that at tier 0:
    it never rises with t. `cpu_cores` and `pcie_gbyte_s` are what a worker of one GPU uses when it runs alone.
    """

    models: tuple[str, ...]
    of_job: IntColumn
    """The row of each job's model, or -1."""
    locality: FloatColumn
    bytes_per_step: FloatColumn
    """Bytes of gradients, or of other data, that workers exchange in one step."""
    compute_s: FloatColumn
    """Seconds of one step, without waiting for other workers."""
    cpu_cores: FloatColumn
    pcie_gbyte_s: FloatColumn
    overlap: FloatColumn | None = None
    """Overlap of communicating with the part of computing that `hiding` gives, as a share of the shorter of the two."""
    hiding: FloatColumn | None = None
    """Share of computing that communicating can overlap with at all."""
    batch_per_gpu: FloatColumn | None = None
    """Examples on one GPU in the step that `compute_s` measures; computing takes longer in proportion to them. NaN: the number does
    not matter, or is not known."""
    neighbour_loss: FloatColumn | None = None
    """Share of its throughput that a job loses beside another, averaged over the neighbours that it was measured with."""
    speed_sensitivity: FloatColumn | None = None
    """Share of a step that takes longer on slower GPUs (`Nodes.gpu_speed`), from 0 to 1."""
    job_batch_per_gpu: FloatColumn | None = None
    """Examples of each job's step on one GPU, at the size that the job asks for."""
    pairs: Pairs | None = None
    """Measurements of two jobs that share nodes; also of models that are not in `models`."""
    ring: RingTime | None = None
    """Measured time of a reduction; None: it follows from the bytes and the links."""

    def per_job(self, column: FloatColumn) -> FloatColumn:
        """Return that column with one entry (or one row) per job; NaN where the job has no profile."""
        unknown = np.full((1, *column.shape[1:]), np.nan)
        return np.concatenate((column, unknown))[self.of_job]


@dataclass(frozen=True)
class ClusterState:
    """One reading of queue and cluster. `node_sets[s, n]` says whether node n belongs to set s.

    `profiles` is None where nothing was measured.
    """

    sequence: int
    time_s: float
    nodes: Nodes
    jobs: Jobs
    node_sets: npt.NDArray[np.bool_]
    profiles: ProfileTable | None = None
    gpu_layouts: tuple[GpuLayout, ...] = ()
    """Layouts of the GPUs inside nodes, one for each kind of node; `Nodes.gpu_layout` refers to them."""

    @cached_property
    def pending(self) -> IntColumn:
        """Rows of the jobs that wait, in order of submission."""
        return np.flatnonzero(self.jobs.state == JobState.PENDING)

    @cached_property
    def running(self) -> IntColumn:
        """Rows of the jobs that occupy a placement, in order of submission."""
        return np.flatnonzero(self.jobs.state == JobState.RUNNING)

    @cached_property
    def remaining_s(self) -> FloatColumn:
        """Estimated run time that is left, per job, seconds; infinite where no estimate is known."""
        left = np.maximum(self.jobs.duration_estimate_s - self.jobs.service_s, 0.0)
        return np.where(np.isnan(left), np.inf, left)
