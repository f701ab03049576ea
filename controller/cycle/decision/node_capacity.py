"""Free capacity of every node, in columns: for the checks of a plan, and for `headway why`.

Policies use another form (`policies.placement.best_fit.Capacity`), which changes thousands of times within one
decision, because bit sets are faster for that than columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from policies.model import BoolColumn, ClusterState, FloatColumn, IntColumn


@dataclass(slots=True)
class NodeCapacity:
    """Capacity of each node that foreign jobs and the given jobs leave free. Below zero: they use more than the node has.

    Invariant: where Slurm does not show the CPUs or the memory of a node, they count as unlimited.
    """

    free_gpus: IntColumn
    free_cpus: FloatColumn
    free_memory_mib: FloatColumn
    jobs: IntColumn
    """Number of jobs on each node; all foreign jobs count as one."""
    sealed: BoolColumn
    """Nodes that have an exclusive job."""

    @classmethod
    def beside(cls, state: ClusterState, rows: IntColumn, nodes: IntColumn, gpus: IntColumn) -> Self:
        """Return the capacity beside these allocations: the job's row, the node and the GPUs of each entry."""
        jobs, table = state.jobs, state.nodes
        count = len(table)
        used_gpus = np.bincount(nodes, weights=gpus, minlength=count).astype(np.int64)
        used_cpus = np.bincount(nodes, weights=gpus * jobs.cpus_per_gpu[rows], minlength=count)
        used_memory_mib = np.bincount(nodes, weights=gpus * jobs.memory_mib_per_gpu[rows], minlength=count)
        sealed = np.zeros(count, dtype=np.bool_)
        sealed[nodes[jobs.exclusive[rows]]] = True
        free_memory_mib = table.memory_mib - table.foreign_memory_mib - used_memory_mib
        return cls(
            free_gpus=table.gpus - table.foreign_gpus - used_gpus,
            free_cpus=np.where(table.cpus > 0, table.cpus - table.foreign_cpus - used_cpus, np.inf),
            free_memory_mib=np.where(table.memory_mib > 0, free_memory_mib, np.inf),
            jobs=np.bincount(nodes, minlength=count) + (table.foreign_gpus > 0),
            sealed=sealed,
        )

    @classmethod
    def beside_running(cls, state: ClusterState) -> Self:
        """Return the capacity beside all jobs that run, those that are about to stop among them."""
        jobs = state.jobs
        rows = np.repeat(np.arange(len(jobs)), np.diff(jobs.placement_offset))
        return cls.beside(state, rows, jobs.placement_node, jobs.placement_gpus)
