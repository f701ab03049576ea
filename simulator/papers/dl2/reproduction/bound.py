"""A lower bound of the average JCT in DL2's environment, over all agents."""

from __future__ import annotations

import heapq

import numpy as np

from simulator.cluster.cluster import Cluster
from simulator.papers.dl2.progress import whole_numbers
from simulator.papers.dl2.servers import SpeedLaw, law_of, nics_gbs, packed, units
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.traces.trace import NS_PER_S, Trace

_SLOT_S = 1200.0


def average_jct_bound_s(trace: Trace, cluster: Cluster, profiles: ModelProfiles, slot_s: float = _SLOT_S) -> float:
    """Return a lower bound of the average JCT, for traces whose jobs all have parameter servers.

    A job begins with a slot, and runs no faster than alone with its best numbers of workers and servers, placed as well as
    possible. A GPU does no more of its work in a second than a single worker without transfers does. The bound is the larger of

    - the mean wait for the next slot, plus the mean of the shortest run times;
    - the mean over jobs of an optimal schedule (shortest remaining work first) on one machine with the work that all GPUs
      together do, to which a job comes with the next slot.
    """
    submit_s = trace.submit_ns / NS_PER_S
    begin_s = np.ceil(submit_s / slot_s) * slot_s
    asked = whole_numbers(trace, "num_ps", trace.num_gpus.tolist(), least=0)
    if not all(asked):
        raise ValueError(f"{trace.name}: it has all-reduce jobs, and the bound is for jobs with parameter servers")
    best = [_best(trace, job, servers, cluster, profiles) for job, servers in enumerate(asked)]
    shortest_s, least_gpu_s = np.array(best).T
    alone = float(np.mean(begin_s - submit_s + shortest_s))
    shared = _one_machine(begin_s.tolist(), (least_gpu_s / cluster.num_gpus).tolist())
    return max(alone, shared - float(np.mean(submit_s)))


def _best(trace: Trace, job: int, servers: int, cluster: Cluster, profiles: ModelProfiles) -> tuple[float, float]:
    """Return the shortest run time of a job that requests so many servers, and the fewest GPU-seconds that it needs."""
    requested = int(trace.num_gpus[job])
    gbs = max(nics_gbs(cluster.topology))
    law = law_of(profiles.of(trace.model[job]), int(trace.batch_size[job]), requested, gbs)
    best = packed(requested, servers, cluster.topology.max_gpus)
    ideal_s = law.step_s(requested, servers, units(*best, dict.fromkeys(best[0], 1)))
    steps = float(trace.duration_ns[job]) / NS_PER_S / ideal_s
    most = int(trace.max_gpus[job])
    shortest_s = min(
        law.step_s(workers, parties, _least_units(workers, parties, cluster))
        for workers in range(1, most + 1)
        for parties in range(1, most + 1)
    )
    return steps * shortest_s, steps * _least_gpu_s(law, most)


def _least_gpu_s(law: SpeedLaw, most: int) -> float:
    """Return the fewest GPU-seconds of a step, at any number of workers, without transfers."""
    return min(workers * law.step_s(workers, 1, 0.0) for workers in range(1, most + 1))


def _least_units(workers: int, servers: int, cluster: Cluster) -> float:
    """Return a lower bound of the models that the busiest NIC sends or receives in a step, alone on the cluster.

    With n_i workers and the share q_i of the servers on node i, the nodes receive sum n_i (1 - q_i) >= w - max n_i models for
    their workers, and the busiest of at most w nodes with workers no less than their mean. A node with a share q of the servers,
    which is at least 1/p where it is not 0, sends q (w - n).
    """
    most = min(cluster.topology.max_gpus, workers)
    if workers <= most:
        return 0.0
    nodes = min(workers, cluster.num_nodes)
    return max((workers - most) / nodes, (workers - most) / servers)


def _one_machine(begin_s: list[float], work_s: list[float]) -> float:
    """Return the mean completion time with preemption where the least remaining work is always first."""
    order = sorted(range(len(begin_s)), key=lambda job: begin_s[job])
    waiting: list[tuple[float, int]] = []
    now, total, place = 0.0, 0.0, 0
    while waiting or place < len(order):
        if not waiting:
            now = max(now, begin_s[order[place]])
        while place < len(order) and begin_s[order[place]] <= now:
            heapq.heappush(waiting, (work_s[order[place]], order[place]))
            place += 1
        left, job = heapq.heappop(waiting)
        end = now + left
        following = begin_s[order[place]] if place < len(order) else float("inf")
        if end <= following:
            total, now = total + end, end
        else:
            heapq.heappush(waiting, (end - following, job))
            now = following
    return total / len(begin_s)
