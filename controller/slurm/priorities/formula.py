"""Priorities of waiting jobs, as Slurm's multifactor plugin computes them for jobs that are not held.

Source: slurm.schedmd.com/priority_multifactor.html, checked against sprio of 22.05. priority = sum of weight x factor, minus the
nice value:

- age: time since the job could start, divided by PriorityMaxAge, at most 1. A job that Headway has stopped keeps its age.
- fair share: the factor of its association, from sshare.
- job size: mean of its share of the cluster's nodes and its share of the CPUs; with PriorityFavorSmall 1 minus that.
- partition, QOS: priority of its own, divided by the highest one.
- TRES: for each type its share of what the partition has.

Not computed: PriorityWeightAssoc, site factors, and a priority that an administrator has set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.slurm.client import Shares, SlurmPartition, SlurmSnapshot
from controller.slurm.priorities.weights import PriorityWeights

Floats = npt.NDArray[np.float64]
Resources = Mapping[str, Floats]
"""Requests of each job, by type of resource ("cpu", "mem", "node", "gres/gpu"); memory in MiB."""

Owner = tuple[str, str, str, str]
"""User, account, QOS and partitions of a job."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Values from which the factors are computed: one entry per job in every column."""

    owners: Sequence[Owner]
    resources: Resources
    age_s: Floats
    """Seconds since the job could start."""
    nice: Floats
    time_limit_s: Floats
    """NaN where there is none."""
    whole_nodes: npt.NDArray[np.bool_]
    """True for jobs that share their nodes with no other job: by size they have all CPUs of their nodes."""


def multifactor(requests: Requests, weights: PriorityWeights, shares: Shares, snapshot: SlurmSnapshot) -> Floats:
    """Return the priority of each job, 1 or more."""
    partitions = {partition.name: partition for partition in snapshot.partitions}
    parts = _OwnerParts(weights, shares, partitions)
    by_owner = np.array([parts.of(owner) for owner in requests.owners], dtype=np.float64)
    age = weights.age * np.clip(requests.age_s / weights.max_age_s, 0.0, 1.0)
    size = weights.job_size * _job_size(requests, weights, snapshot) if weights.job_size else 0.0
    tres = _tres(requests, weights, snapshot, partitions) if weights.tres else 0.0
    total = by_owner + age + size + tres - requests.nice
    priorities: Floats = np.maximum(np.floor(total), 1.0)
    return priorities


class _OwnerParts:
    """Sum of the parts that are equal for all jobs of a user, account, QOS and partition: few values for thousands of jobs."""

    def __init__(self, weights: PriorityWeights, shares: Shares, partitions: Mapping[str, SlurmPartition]) -> None:
        self._weights = weights
        self._shares = shares
        self._partitions = partitions
        self._top_partition = max((p.priority_job_factor for p in partitions.values()), default=0) or 1
        self._top_qos = max(shares.qos.values(), default=0) or 1
        self._known: dict[Owner, float] = {}

    def of(self, owner: Owner) -> float:
        if owner not in self._known:
            self._known[owner] = self._sum(*owner)
        return self._known[owner]

    def _sum(self, user: str, account: str, qos: str, partitions: str) -> float:
        names = partitions.split(",")
        weights, flags = self._weights, self._weights.flags
        share = max(self._shares.fair_share_of(account, user, name) for name in names)
        factor = max((found.priority_job_factor for name in names if (found := self._partitions.get(name))), default=0)
        importance = self._shares.qos.get(qos, 0)
        return (
            weights.fairshare * share
            + weights.partition * (factor if "NO_NORMAL_PART" in flags else factor / self._top_partition)
            + weights.qos * (importance if "NO_NORMAL_QOS" in flags else importance / self._top_qos)
        )


def _job_size(requests: Requests, weights: PriorityWeights, snapshot: SlurmSnapshot) -> Floats:
    nodes = max(len(snapshot.nodes), 1)
    cpus = max(sum(node.cpus for node in snapshot.nodes), 1)
    wanted_nodes = requests.resources["node"]
    wanted_cpus = np.where(requests.whole_nodes, wanted_nodes * cpus / nodes, requests.resources["cpu"])
    if "SMALL_RELATIVE_TO_TIME" in weights.flags:
        minutes = np.maximum(np.where(np.isnan(requests.time_limit_s), np.inf, requests.time_limit_s) / 60.0, 1.0)
        factor = np.maximum(wanted_nodes * cpus / nodes, wanted_cpus) / minutes / cpus
    else:
        by_node, by_cpu = wanted_nodes / nodes, wanted_cpus / cpus
        factor = np.where(wanted_cpus > 0, (by_node + by_cpu) / 2.0, by_node)
    size: Floats = np.clip(1.0 - factor if weights.favor_small else factor, 0.0, 1.0)
    return size


_OF_NODE: Mapping[str, Callable[..., float]] = {
    "cpu": lambda node: float(node.cpus),
    "mem": lambda node: float(node.memory_mib),
    "node": lambda _node: 1.0,
    "gres/gpu": lambda node: float(node.gpus),
}


def _tres(
    requests: Requests, weights: PriorityWeights, snapshot: SlurmSnapshot, partitions: Mapping[str, SlurmPartition]
) -> Floats:
    total = np.zeros(len(requests.owners))
    for kind in weights.tres.keys() & requests.resources.keys():
        wanted = requests.resources[kind]
        if "NO_NORMAL_TRES" in weights.flags:
            total += weights.tres[kind] * wanted
            continue
        there = {
            name: sum(_OF_NODE[kind](node) for node in snapshot.nodes if name in node.partitions) for name in partitions
        }
        capacity = np.array([_largest(there, owner[3]) for owner in requests.owners])
        total += weights.tres[kind] * np.divide(wanted, capacity, out=np.zeros_like(wanted), where=capacity > 0)
    return total


def _largest(there: Mapping[str, float], partitions: str) -> float:
    return max(there.get(name, 0.0) for name in partitions.split(","))
