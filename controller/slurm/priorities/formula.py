"""Priorities of waiting jobs, as Slurm's multifactor plugin computes them for jobs that are not held.

Source: slurm.schedmd.com/priority_multifactor.html, checked against sprio of 22.05. priority = sum of weight x factor, minus the
nice value:

- age: time since the job could start, divided by PriorityMaxAge, at most 1. A job that Headway has stopped keeps its age.
- fair share: the factor of its association, from sshare.
- job size: mean of its share of the cluster's nodes and its share of the CPUs; with PriorityFavorSmall 1 minus that.
- partition, QOS, association: priority of its own, divided by the highest one.
- TRES: for each type its share of what the partition has.

Not computed: site factors, and a priority that an administrator has set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.shares import Shares
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
    # Thousands of jobs have few owners: what depends on these alone is computed once for each.
    rows: dict[Owner, int] = {}
    row_of = np.array([rows.setdefault(owner, len(rows)) for owner in requests.owners], dtype=np.intp)
    by_owner = _by_owner(rows, weights, shares, snapshot)[row_of]
    age = weights.age * np.clip(requests.age_s / weights.max_age_s, 0.0, 1.0)
    size = weights.job_size * _job_size(requests, weights, snapshot) if weights.job_size else 0.0
    tres = _tres(requests, weights, snapshot, rows, row_of) if weights.tres else 0.0
    total = by_owner + age + size + tres - requests.nice
    priorities: Floats = np.maximum(np.floor(total), 1.0)
    return priorities


def _by_owner(owners: Iterable[Owner], weights: PriorityWeights, shares: Shares, snapshot: SlurmSnapshot) -> Floats:
    """Return the parts for fair share, association, partition and QOS of each owner, added up."""
    factors = {partition.name: partition.priority_job_factor for partition in snapshot.partitions}
    top_factor = 1 if "NO_NORMAL_PART" in weights.flags else max(factors.values(), default=0) or 1
    top_qos = 1 if "NO_NORMAL_QOS" in weights.flags else max(shares.qos.values(), default=0) or 1
    top_association = 1 if "NO_NORMAL_ASSOC" in weights.flags else max(shares.association.values(), default=0) or 1
    sums = []
    for user, account, qos, partitions in owners:
        names = partitions.split(",")
        share = max(shares.fair_share_of(account, user, name) for name in names)
        rank = max(shares.association_priority_of(account, user, name) for name in names) / top_association
        factor = max(factors.get(name, 0) for name in names) / top_factor
        importance = shares.qos.get(qos, 0) / top_qos
        own = weights.fairshare * share + weights.association * rank
        sums.append(own + weights.partition * factor + weights.qos * importance)
    return np.array(sums, dtype=np.float64)


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


def _totals(snapshot: SlurmSnapshot, partitions: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return what the nodes of each of these partitions have, by partition and type of resource."""
    nodes = snapshot.nodes
    columns = np.array([(node.cpus, node.memory_mib, 1, node.gpus) for node in nodes], dtype=np.float64).reshape(-1, 4)
    totals = {}
    for name in partitions:
        members = np.fromiter((name in node.partitions for node in nodes), np.bool_, len(nodes))
        totals[name] = dict(zip(("cpu", "mem", "node", "gres/gpu"), columns[members].sum(axis=0).tolist(), strict=True))
    return totals


def _tres(
    requests: Requests,
    weights: PriorityWeights,
    snapshot: SlurmSnapshot,
    owners: Iterable[Owner],
    row_of: npt.NDArray[np.intp],
) -> Floats:
    """Return the part of each job for its resources. `row_of` is the row of each job in `owners`."""
    partitions = [owner[3].split(",") for owner in owners]
    totals = _totals(snapshot, {name for names in partitions for name in names})
    part = np.zeros(len(row_of))
    for kind in weights.tres.keys() & requests.resources.keys():
        wanted = requests.resources[kind]
        if "NO_NORMAL_TRES" in weights.flags:
            part += weights.tres[kind] * wanted
            continue
        largest = [max(totals[name][kind] for name in names) for names in partitions]
        capacity = np.array(largest)[row_of]
        part += weights.tres[kind] * np.divide(wanted, capacity, out=np.zeros_like(wanted), where=capacity > 0)
    return part
