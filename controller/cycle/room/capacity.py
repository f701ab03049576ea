"""Capacity of the nodes as jobs are taken from them, and the place of one job on it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from controller.cycle.decision.node_capacity import NodeCapacity
from policies.model import BoolColumn, ClusterState, FloatColumn, IntColumn, Placement, Split

_SLACK = 1e-3


@dataclass(frozen=True, slots=True)
class OnNode:
    """Resources of one job on one node."""

    node: int
    gpus: int
    cpus: float
    memory_mib: float


@dataclass(frozen=True, slots=True)
class Need:
    """Request of a waiting job, and the nodes that it may use."""

    num_gpus: int
    min_nodes: int
    max_nodes: int
    split: Split
    gpus_per_node: int
    cpus_per_gpu: float
    memory_mib_per_gpu: float
    exclusive: bool
    nodes: BoolColumn

    @classmethod
    def of(cls, state: ClusterState, row: int, node_set: int | None = None) -> Self:
        """Return the need of the job of that row, in the size that it asks for. `node_set` None: its own."""
        jobs = state.jobs
        node_set = int(jobs.node_set[row]) if node_set is None else node_set
        return cls(
            num_gpus=int(jobs.num_gpus[row]),
            min_nodes=int(jobs.min_nodes[row]),
            max_nodes=int(jobs.max_nodes[row]),
            split=Split(int(jobs.split[row])),
            gpus_per_node=int(jobs.gpus_per_node[row]),
            cpus_per_gpu=float(jobs.cpus_per_gpu[row]),
            memory_mib_per_gpu=float(jobs.memory_mib_per_gpu[row]),
            exclusive=bool(jobs.exclusive[row]),
            nodes=state.nodes.available if node_set < 0 else state.nodes.available & state.node_sets[node_set],
        )

    @property
    def signature(self) -> tuple[object, ...]:
        """Key of everything that decides where it fits."""
        return (
            *(self.num_gpus, self.min_nodes, self.max_nodes, self.split, self.gpus_per_node, self.exclusive),
            *(self.cpus_per_gpu, self.memory_mib_per_gpu, self.nodes.tobytes()),
        )


Leaving = tuple[tuple[OnNode, ...], bool]
"""Resources of a job that leaves, and whether it is exclusive."""


@dataclass(frozen=True, slots=True)
class Departures:
    """Jobs that leave one after the other, in columns: one entry for each of their nodes."""

    node: IntColumn
    gpus: IntColumn
    cpus: FloatColumn
    memory_mib: FloatColumn
    exclusive: IntColumn
    ends: IntColumn
    """Number of entries of the first 0, 1, 2, ... jobs."""

    @classmethod
    def of(cls, jobs: Iterable[Leaving]) -> Self:
        """Return the columns of these jobs."""
        each = list(jobs)
        entries = [(share, exclusive) for shares, exclusive in each for share in shares]
        return cls(
            np.array([share.node for share, _ in entries], dtype=np.int64),
            np.array([share.gpus for share, _ in entries], dtype=np.int64),
            np.array([share.cpus for share, _ in entries], dtype=np.float64),
            np.array([share.memory_mib for share, _ in entries], dtype=np.float64),
            np.array([exclusive for _, exclusive in entries], dtype=np.int64),
            np.cumsum([0, *(len(shares) for shares, _ in each)]),
        )

    def after(self, capacity: Capacity, number: int | None = None) -> Capacity:
        """Return the capacity after the first `number` jobs have gone; None: after all."""
        end = int(self.ends[-1 if number is None else number])
        node, count = self.node[:end], len(capacity.gpus)

        def by_node(weights: IntColumn | FloatColumn) -> FloatColumn:
            return np.bincount(node, weights=weights[:end], minlength=count).astype(np.float64)

        return Capacity(
            capacity.gpus + by_node(self.gpus).astype(np.int64),
            capacity.cpus + by_node(self.cpus),
            capacity.memory_mib + by_node(self.memory_mib),
            capacity.jobs - np.bincount(node, minlength=count),
            capacity.sealed - by_node(self.exclusive).astype(np.int64),
        )


@dataclass(slots=True)
class Capacity:
    """Free resources of each node. Below zero: its jobs use more than it has, as while one is about to take another's place."""

    gpus: IntColumn
    cpus: FloatColumn
    memory_mib: FloatColumn
    jobs: IntColumn
    """Number of jobs on each node."""
    sealed: IntColumn
    """Number of exclusive jobs on each node."""

    @classmethod
    def of(cls, state: ClusterState, jobs: IntColumn, sealed: IntColumn) -> Self:
        """Return the resources beside all jobs that run or start. `jobs`, `sealed`: jobs and exclusive jobs on each node."""
        free = NodeCapacity.beside_running(state)
        return cls(free.free_gpus, free.free_cpus, free.free_memory_mib, jobs, sealed)

    def without(self, jobs: Iterable[Leaving]) -> Capacity:
        """Return the capacity after these jobs have gone."""
        return Departures.of(jobs).after(self)

    def take(self, need: Need, placement: Placement) -> None:
        """Take what a job needs on its nodes."""
        for node, gpus in placement.items():
            self.gpus[node] -= gpus
            self.cpus[node] -= gpus * need.cpus_per_gpu
            self.memory_mib[node] -= gpus * need.memory_mib_per_gpu
            self.jobs[node] += 1
            self.sealed[node] += need.exclusive

    def usable(self, need: Need) -> IntColumn:
        """Return the number of GPUs of each node that the job could use, beside the CPUs and the memory that they need."""
        usable = self.gpus
        for has, wants in ((self.cpus, need.cpus_per_gpu), (self.memory_mib, need.memory_mib_per_gpu)):
            if wants > 0:
                by_this = np.minimum(np.maximum((has + _SLACK) / wants, 0), usable.max(initial=0))
                usable = np.minimum(usable, by_this.astype(np.int64))
        barred = ~need.nodes | (self.sealed > 0)
        if need.exclusive:
            barred = barred | (self.jobs > 0)
        return np.where(barred, 0, np.maximum(usable, 0))

    def holds(self, need: Need, placement: Placement) -> bool:
        """Return whether the job fits there."""
        usable = self.usable(need)
        return all(usable[node] >= gpus for node, gpus in placement.items())

    def place(self, need: Need, before: IntColumn) -> Placement | None:
        """Return a place for the job, on nodes where little has to be stopped; None: there is none.

        `before`: GPUs of each node that it could use without a stop.
        """
        usable = self.usable(need)
        if need.split is Split.ANY:
            return _filled(need, usable)
        for count in range(need.min_nodes, need.max_nodes + 1):
            if need.split is Split.EVEN and need.num_gpus % count:
                continue
            each = need.gpus_per_node if need.split is Split.FIXED else need.num_gpus // count
            if need.split is Split.FIXED and each * count != need.num_gpus:
                continue
            nodes = np.flatnonzero(usable >= max(each, 1))
            if each and len(nodes) >= count:
                first = nodes[np.lexsort((nodes, before[nodes], np.maximum(each - before[nodes], 0)))][:count]
                return Placement.of(dict.fromkeys(first.tolist(), each))
        return None


def _filled(need: Need, usable: IntColumn) -> Placement | None:
    """Return a place on as few nodes as possible, with any number of GPUs on each."""
    order = np.argsort(-usable, kind="stable")
    order = order[usable[order] > 0]
    if usable[order].sum() < need.num_gpus or len(order) < need.min_nodes:
        return None
    fewest = int(np.searchsorted(np.cumsum(usable[order]), need.num_gpus)) + 1
    count = max(fewest, need.min_nodes)
    if not need.min_nodes <= count <= min(need.max_nodes, need.num_gpus):
        return None
    left, there = need.num_gpus, {}
    for place, node in enumerate(order[:count].tolist()):
        there[node] = min(int(usable[node]), left - (count - place - 1))
        left -= there[node]
    return Placement.of(there)
