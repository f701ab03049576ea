"""Several resources at once: what jobs ask for and nodes have, as shares of one whole.

A resource that a node (or the whole cluster) does not limit counts as not used and not asked for.
"""

from __future__ import annotations

import numpy as np

from policies.model import ClusterState, FloatColumn
from policies.packing import Capacity


def load(capacity: Capacity, node: int) -> float:
    """Shares of the node's GPUs, CPUs and memory that are in use, added up."""
    nodes = capacity.state.nodes
    has = (int(nodes.gpus[node]), int(nodes.cpus[node]), int(nodes.memory_mib[node]))
    return sum(1 - free / all_ for all_, free in zip(has, capacity.free(node), strict=True) if all_)


def load_of_one_gpu(capacity: Capacity, row: int, node: int) -> float:
    """What one GPU of that job, and what comes with it, adds to the load of the node."""
    nodes, jobs = capacity.state.nodes, capacity.state.jobs
    asks = (1, float(jobs.cpus_per_gpu[row]), float(jobs.memory_mib_per_gpu[row]))
    has = (int(nodes.gpus[node]), int(nodes.cpus[node]), int(nodes.memory_mib[node]))
    return sum(ask / all_ for all_, ask in zip(has, asks, strict=True) if all_)


def demands(state: ClusterState) -> FloatColumn:
    """For each job a row: the shares of the cluster's GPUs, CPUs and memory that it asks for as a whole.

    The cluster is its available nodes. Where one of them does not limit a resource, nobody's share of it counts.
    """
    jobs, gpus = state.jobs, state.jobs.num_gpus.astype(np.float64)
    asked = np.stack((gpus, gpus * jobs.cpus_per_gpu, gpus * jobs.memory_mib_per_gpu), axis=1)
    totals = cluster_totals(state)
    return np.divide(asked, totals, out=np.zeros_like(asked), where=totals > 0)


def cluster_totals(state: ClusterState) -> FloatColumn:
    """GPUs, CPUs and memory of all available nodes; 0 for what one of them does not limit."""
    nodes = state.nodes
    has = np.stack((nodes.gpus, nodes.cpus, nodes.memory_mib), axis=1)[nodes.available].astype(np.float64)
    limited = (has[:, 1:] > 0).all(axis=0)
    totals: FloatColumn = has.sum(axis=0) * np.concatenate(([True], limited))
    return totals
