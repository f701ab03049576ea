"""Several resources at once: requests of jobs and resources of nodes, as shares of one whole.

A resource that a node (or the whole cluster) does not limit counts as not used and not asked for.
"""

from __future__ import annotations

import numpy as np

from policies.model import ClusterState, FloatColumn, IntColumn, Placement


class Loads:
    """Shares of each node's GPUs, CPUs and memory that are in use, added up.

    Invariant: `of[n]` counts foreign use, the running jobs of the state, and all jobs given to `add`.
    """

    def __init__(self, state: ClusterState) -> None:
        """Begin with the use of that state."""
        nodes, jobs = state.nodes, state.jobs
        has = np.stack((nodes.gpus, nodes.cpus, nodes.memory_mib), axis=1).astype(np.float64)
        self._per_unit = np.divide(1.0, has, out=np.zeros_like(has), where=has > 0).tolist()
        self._asks = np.stack((np.ones(len(jobs)), jobs.cpus_per_gpu, jobs.memory_mib_per_gpu), axis=1).tolist()
        foreign = np.stack((nodes.foreign_gpus, nodes.foreign_cpus, nodes.foreign_memory_mib), axis=1)
        self.of: list[float] = (foreign * np.array(self._per_unit).reshape(has.shape)).sum(axis=1).tolist()
        for row in state.running.tolist():
            placement = jobs.placement(row)
            if placement is not None:
                self.add(row, placement)

    def add(self, row: int, placement: Placement) -> None:
        """Count that job on these nodes from now on."""
        for node, gpus in placement.items():
            self.of[node] = self.with_workers(node, row, gpus)

    def with_workers(self, node: int, row: int, gpus: int) -> float:
        """Return the load of the node with `gpus` more GPUs of that job, and the CPUs and memory that come with them."""
        (gpu, cpu, memory), (ask_gpus, ask_cpus, ask_memory) = self._per_unit[node], self._asks[row]
        return self.of[node] + gpus * float(gpu * ask_gpus + cpu * ask_cpus + memory * ask_memory)


def demands(state: ClusterState) -> FloatColumn:
    """Return for each job the shares of the cluster's GPUs, CPUs and memory that it asks for.

    The cluster is its available nodes. Where one of them does not limit a resource, all shares of it are 0.
    """
    jobs, gpus = state.jobs, state.jobs.num_gpus.astype(np.float64)
    asked = np.stack((gpus, gpus * jobs.cpus_per_gpu, gpus * jobs.memory_mib_per_gpu), axis=1)
    totals = cluster_totals(state)
    return np.divide(asked, totals, out=np.zeros_like(asked), where=totals > 0)


def cluster_totals(state: ClusterState) -> FloatColumn:
    """Return GPUs, CPUs and memory of all available nodes; 0 for a resource that one of them does not limit."""
    nodes = state.nodes
    has = np.stack((nodes.gpus, nodes.cpus, nodes.memory_mib), axis=1)[nodes.available].astype(np.float64)
    limited = (has[:, 1:] > 0).all(axis=0)
    totals: FloatColumn = has.sum(axis=0) * np.concatenate(([True], limited))
    return totals


def occupied_gpus(state: ClusterState) -> IntColumn:
    """Return the GPUs that each job occupies."""
    jobs = state.jobs
    rows = np.repeat(np.arange(len(jobs)), np.diff(jobs.placement_offset))
    occupied = np.zeros(len(jobs), dtype=np.int64)
    np.add.at(occupied, rows, jobs.placement_gpus)
    return occupied
