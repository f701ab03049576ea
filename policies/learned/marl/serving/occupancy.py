"""The tasks on each GPU group and the pairs of tasks on each link, as MARL's agents see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from policies.learned.marl.edges import Amounts
from policies.learned.marl.graphs import TYPES
from policies.learned.marl.serving.cluster_graphs import uplinks_of
from policies.learned.marl.serving.job_columns import SERVER_CORES, WORKER_CORES, JobColumns
from policies.learned.marl.serving.schedulers import Ints, Schedulers
from policies.model import ClusterState, MaskColumn, Placement

WORKERS, SERVERS = 0, 1


class Occupancy:
    """Resources in use of every GPU group, and tasks there. Invariant: they are the sums over the tasks that were put.

    A node without a number of CPUs has those of the training for each GPU, 8 logical ones. Nodes that are not available, and what
    others than Headway use, count as in use.

    Bound: the jobs of one state.
    """

    def __init__(self, state: ClusterState, schedulers: Schedulers, columns: JobColumns) -> None:
        """Begin with all running jobs."""
        nodes, self._schedulers, self._columns = state.nodes, schedulers, columns
        groups = len(schedulers.group_node)
        node, gpus = schedulers.group_node, schedulers.group_gpus
        share = gpus / np.maximum(nodes.gpus[node], 1)
        foreign = np.minimum(nodes.foreign_cpus[node], nodes.cpus[node]) * share
        per_gpu = WORKER_CORES + SERVER_CORES
        self.free_gpus: Amounts = np.where(nodes.available[node], gpus, 0).astype(np.float64)
        self.free_cores: Amounts = np.where(nodes.cpus[node] > 0, nodes.cpus[node] * share - foreign, per_gpu * gpus)
        self.free_cores[~nodes.available[node]] = 0.0
        self.pcie = np.zeros(groups)
        """Sum of shares of PCIe of the workers in each group."""
        self.tasks = np.zeros((groups, 2 * TYPES), dtype=np.int64)
        """Workers of each model in each group, then servers."""
        self.pairs = np.zeros(2 * len(nodes))
        """Pairs of a worker and a server of a job whose transfers pass each link; racks are at most as many as nodes."""
        self.own: dict[int, dict[int, list[int]]] = defaultdict(dict)
        """Workers and servers of each job by group."""
        self.version = 0
        """Changes of `pairs`: equal numbers, equal pairs."""
        self._uplinks = uplinks_of(state)
        self._take_foreign(nodes.foreign_gpus, nodes.foreign_gpu_mask)
        for row in state.running.tolist():
            placement = state.jobs.placement(row)
            if placement is not None:
                self._run(state, row, placement)

    def put(self, row: int, group: int, workers: int, servers: int) -> None:
        """Put tasks of a job on a group."""
        columns = self._columns
        counts = self.own[row].setdefault(group, [0, 0])
        counts[WORKERS] += workers
        counts[SERVERS] += servers
        kind = int(columns.kind[row])
        self.tasks[group, kind] += workers
        self.tasks[group, TYPES + kind] += servers
        self.free_gpus[group] -= workers
        of_servers = 0.0 if columns.is_ring[row] else SERVER_CORES * servers
        self.free_cores[group] -= workers * float(columns.cores[row]) + of_servers
        self.pcie[group] += workers * float(columns.pcie[row])

    def clear(self, row: int) -> None:
        """Take back all tasks of a job that does not run."""
        for group, (workers, servers) in list(self.own[row].items()):
            self.put(row, group, -workers, -servers)
        del self.own[row]

    def start(self, row: int) -> None:
        """Let a job whose tasks are all there transfer; the servers of a ring come beside its workers."""
        if self._columns.is_ring[row]:
            for group, (workers, _) in list(self.own[row].items()):
                self.put(row, group, 0, workers)
        self._add_pairs(self.own[row])

    def free_here(self, group: int) -> int:
        """Return the GPUs of a group that no task has."""
        return max(int(self.free_gpus[group]), 0)

    def _run(self, state: ClusterState, row: int, placement: Placement) -> None:
        jobs, there = state.jobs, slice(*state.jobs.placement_offset[row : row + 2].tolist())
        columns = (jobs.placement_node[there], jobs.placement_gpus[there], jobs.placement_gpu_mask[there])
        for node, gpus, mask in zip(*(column.tolist() for column in columns), strict=True):
            for group, count in self._on(node, gpus, mask):
                self.put(row, group, count, 0)
        for node, servers in zip(placement.server_nodes, placement.servers, strict=True):
            if self._schedulers.of_node[node] >= 0:
                self.put(row, self._schedulers.groups_on(node)[0], 0, servers)
        self.start(row)

    def _on(self, node: int, gpus: int, mask: int) -> list[tuple[int, int]]:
        """Return (group, GPUs) of a job on a node: by its GPUs' numbers where these are known, else the first that are free."""
        if self._schedulers.of_node[node] < 0:
            return []
        groups, found = self._schedulers.groups_on(node), []
        if len(groups) > 1 and mask.bit_count() == gpus:
            return [(group, here) for group in groups if (here := self._in_group(group, mask))]
        for group in groups:
            here = gpus if group == groups[-1] else min(gpus, self.free_here(group))
            gpus -= here
            found += [(group, here)] if here else []
        return found

    def _in_group(self, group: int, mask: int) -> int:
        """Return how many GPUs of a mask are in a group."""
        return (mask & self._schedulers.group_mask[group]).bit_count()

    def _take_foreign(self, gpus: Ints, masks: MaskColumn | None) -> None:
        """Take the GPUs of foreign jobs, the last ones of each node where it is not known which."""
        for node in np.flatnonzero(gpus).tolist():
            left = int(gpus[node])
            mask = 0 if masks is None else int(masks[node])
            is_known = mask.bit_count() == left
            for group in reversed(self._schedulers.groups_on(node)):
                here = min(self._in_group(group, mask) if is_known else left, self.free_here(group))
                self.free_gpus[group] -= here
                left -= here

    def _add_pairs(self, tasks: Mapping[int, list[int]]) -> None:
        """Count the pairs of a worker and a server on different nodes on each link between them."""
        groups = np.fromiter(tasks, dtype=np.int64)
        counts = np.array(list(tasks.values()), dtype=np.float64).reshape(-1, 2)
        node = self._schedulers.group_node[groups]
        if len(set(node.tolist())) < 2:
            return
        workers, servers = counts.sum(0)
        for links in (node, self._uplinks[node]):
            numbers, place = np.unique(links, return_inverse=True)
            w = np.bincount(place.reshape(-1), counts[:, WORKERS])
            s = np.bincount(place.reshape(-1), counts[:, SERVERS])
            self.pairs[numbers] += w * (servers - s) + s * (workers - w)
        self.version += 1
