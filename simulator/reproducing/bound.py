"""A lower bound of the average JCT, for jobs that all arrive at once."""

from __future__ import annotations

import numpy as np

from simulator.cluster.cluster import Cluster
from simulator.traces.trace import NS_PER_S, Trace


def average_jct_bound_s(trace: Trace, cluster: Cluster) -> float:
    """Return a lower bound of the average JCT over all schedules of jobs that keep their size, without contention or fragmentation.

    The mean busy time of job j is at most C_j - p_j / 2. Over all jobs mean busy times add up to no less than on one machine with
    the work g p of every job and the speed of all m GPUs, where the least work first is best: C'_j - g_j p_j / 2m (after Eastman,
    Even and Isaacs, "Bounds for the optimal scheduling of n jobs on m processors", 1964, for jobs on several machines). Raises
    ValueError for jobs that do not arrive at once.
    """
    if len(set(trace.submit_ns.tolist())) > 1:
        raise ValueError(f"{trace.name}: its jobs do not arrive at once")
    length_s = trace.duration_ns / NS_PER_S
    work_s = np.sort(length_s * trace.num_gpus) / cluster.num_gpus
    return float(np.mean(np.cumsum(work_s)) + np.mean(length_s) / 2 - np.mean(work_s) / 2)
