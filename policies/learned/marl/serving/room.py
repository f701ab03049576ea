"""Nodes that the next GPUs of a job can have, so that all of the job can still be placed.

A job may ask for a number of nodes, for equal shares, or for nodes of its own. So an inference for a worker offers only nodes from
which the rest of the job fits on what is free now. Jobs of equal shares are placed share by share, other jobs GPU by GPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from policies.learned.marl.edges import Amounts
from policies.learned.marl.serving.job_columns import SERVER_CORES
from policies.learned.marl.serving.schedulers import Ints
from policies.model import ClusterState, Split
from policies.placement.best_fit import Capacity
from policies.placement.requests import CPU_SLACK, MEMORY_SLACK_MIB, Request

Flags = npt.NDArray[np.bool_]


class Room:
    """Free resources of each node. Invariant: they are what running jobs and the tasks that were put, and not taken back, leave.

    Bound: lives for one decision.
    """

    def __init__(self, state: ClusterState) -> None:
        nodes, jobs = state.nodes, state.jobs
        capacity = Capacity(state)
        self._requests = capacity.requests
        free = [capacity.free(node) for node in range(len(nodes))]
        self.gpus: Ints = np.array([each[0] for each in free], dtype=np.int64)
        """GPUs that jobs could take."""
        self._cpus: Amounts = np.array([each[1] for each in free], dtype=np.float64)
        if jobs.server_node is not None and jobs.server_count is not None:
            np.subtract.at(self._cpus, jobs.server_node, SERVER_CORES * jobs.server_count)
        self._memory: Amounts = np.array([each[2] for each in free], dtype=np.float64)
        self._occupants = np.bincount(jobs.placement_node, minlength=len(nodes))
        self._clean = (nodes.foreign_gpus == 0) & (nodes.foreign_cpus == 0) & (nodes.foreign_memory_mib == 0)
        self._sealed = np.zeros(len(nodes), dtype=np.bool_)
        self._may: dict[int, Flags] = {}

    def key(self, row: int) -> int:
        """Return the number of a job's class: jobs of a class fit alike."""
        return self._requests.keys[row]

    def share(self, row: int) -> int:
        """Return the GPUs of one inference; 0 for a job that never fits."""
        request = self._requests.of(row)
        if not request.parts:
            return 0
        return 1 if request.split == Split.ANY else request.parts[0][0]

    def of_server(self, row: int, cores: float) -> Flags:
        """Return the nodes that can have a parameter server of that job."""
        found: Flags = self._allowed(row, self._requests.of(row)) & (self._cpus + CPU_SLACK >= cores)
        return found

    def of_worker(self, row: int, own: Mapping[int, int]) -> Flags:
        """Return the nodes that can have the next share of that job, which has these GPUs by node; none: it does not fit."""
        request = self._requests.of(row)
        most = self._most(row, request, own)
        left = request.gpus - sum(own.values())
        if request.split != Split.ANY:
            share = self.share(row)
            most[list(own)] = 0
            fits = most >= share
            return fits if share and np.count_nonzero(fits) * share >= left else np.zeros_like(fits)
        return _any(most, own, left, request.min_nodes, request.max_nodes)

    def put(self, row: int, node: int, gpus: int, *, cores: float = 0.0, is_first: bool) -> None:
        """Let a job take GPUs of a node, or with `cores` a parameter server; `is_first`: it had none there."""
        self._change(row, node, gpus, cores, int(is_first))

    def take_back(self, row: int, node: int, gpus: int, *, cores: float = 0.0) -> None:
        """Undo all that `put` did for a job on a node."""
        self._change(row, node, -gpus, -cores, -1 if gpus else 0)

    def _change(self, row: int, node: int, gpus: int, cores: float, jobs: int) -> None:
        request = self._requests.of(row)
        self.gpus[node] -= gpus
        self._cpus[node] -= gpus * request.cpus_per_gpu + cores
        self._memory[node] -= gpus * request.memory_mib_per_gpu
        self._occupants[node] += jobs
        if request.exclusive and jobs:
            self._sealed[node] = jobs > 0

    def _allowed(self, row: int, request: Request) -> Flags:
        key = self.key(row)
        if key not in self._may:
            count = len(self.gpus)
            octets = np.frombuffer(request.nodes.to_bytes(-(-count // 8) or 1, "little"), dtype=np.uint8)
            self._may[key] = np.unpackbits(octets, bitorder="little")[:count].astype(np.bool_)
        return self._may[key]

    def _most(self, row: int, request: Request, own: Mapping[int, int]) -> Ints:
        """Return the GPUs that the job could take of each node."""
        allowed = self._allowed(row, request) & ~self._sealed
        if request.exclusive:
            allowed &= self._clean & (self._occupants == 0)
        allowed[list(own)] = True
        most = np.where(allowed, self.gpus, 0)
        if request.limited:
            for free, each, slack in (
                (self._cpus, request.cpus_per_gpu, CPU_SLACK),
                (self._memory, request.memory_mib_per_gpu, MEMORY_SLACK_MIB),
            ):
                if each > 0:
                    suffices = np.floor((free + slack) / each)
                    most = np.minimum(most, np.clip(suffices, 0, most)).astype(np.int64)
        return most


def _any(most: Ints, own: Mapping[int, int], left: int, low: int, high: int) -> Flags:
    """Return the nodes for one GPU more of a job that may be divided in any way on `low` to `high` nodes."""
    used = np.zeros(len(most), dtype=np.bool_)
    used[list(own)] = True
    on_own, others = int(most[used].sum()), np.where(used, 0, most)
    missing, slots = max(low - len(own), 0), high - len(own)
    none = np.zeros_like(used)
    if np.count_nonzero(others) < missing or left < missing:
        return none
    if slots >= left:
        if on_own + int(others.sum()) < left:
            return none
        new = others > 0
    else:
        best = np.sort(others)[::-1][: max(slots, 0)]
        if on_own + int(best.sum()) < left:
            return none
        # The best of the other nodes, one fewer than there may be, and this one have the rest.
        new = (others > 0) & (others >= left - on_own - int(best[:-1].sum())) if slots > 0 else none
    old = used & (most > 0)
    return new | old if left > missing else new
