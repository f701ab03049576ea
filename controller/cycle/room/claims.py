"""Nodes that are emptied for waiting jobs. Pure functions of one observation.

Jobs may save for minutes. Until then the user of the waiting job may change it, and its nodes may be reserved or drained. So a
claim says only which GPUs are emptied; the job gets those of them that it requests when they are empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from controller.cycle.room.capacity import Capacity, Need
from controller.observe.observer import Observation
from controller.slurm.model.job import SlurmJob
from policies.model import IntColumn, Placement


@dataclass(frozen=True, slots=True)
class Claim:
    """Nodes that Headway empties for a waiting job, and the GPUs on each."""

    nodes: tuple[str, ...]
    gpus: tuple[int, ...]
    until_s: float
    why: str
    rank: tuple[object, ...]
    """QOS and partitions by which the job may take the place of others. With other ones, Slurm's rules may not allow it."""

    @classmethod
    def of(cls, job: SlurmJob, placement: Placement, names: Sequence[str], until_s: float, why: str) -> Self:
        """Return the claim of a job on the nodes of this placement."""
        return cls(tuple(names[node] for node in placement.nodes), placement.gpus, until_s, why, _rank(job))


def index_of(observation: Observation) -> dict[str, int]:
    """Return the row of each node by its name."""
    return {name: node for node, name in enumerate(observation.state.nodes.names)}


def is_wanted(claim: Claim, observation: Observation, row: int, index: Mapping[str, int]) -> bool:
    """Return whether the waiting job of that row, as it is now, could start on the claimed GPUs when they are empty.

    Other jobs there, CPUs and memory are left to the check before a start.
    """
    if claim.rank != _rank(observation.rows[row]):
        return False
    count = len(index)
    plenty, none = np.full(count, np.inf), np.zeros(count, dtype=np.int64)
    empty = Capacity(_gpus(claim, index), plenty, plenty, none, none)
    return any(empty.place(need, none) is not None for need in _needs(observation, row))


def place_within(
    claim: Claim, observation: Observation, row: int, index: Mapping[str, int], capacity: Capacity, now: Capacity
) -> tuple[Need, Placement] | None:
    """Return a place for the job on the claimed GPUs, with its need in that partition; None: it does not fit there.

    `now`: capacity by which nodes that are empty already come first.
    """
    there = Capacity(
        np.minimum(capacity.gpus, _gpus(claim, index)),
        capacity.cpus,
        capacity.memory_mib,
        capacity.jobs,
        capacity.sealed,
    )
    for need in _needs(observation, row):
        if (placement := there.place(need, now.usable(need))) is not None:
            return need, placement
    return None


def _gpus(claim: Claim, index: Mapping[str, int]) -> IntColumn:
    """Return the claimed GPUs of each node."""
    gpus = np.zeros(len(index), dtype=np.int64)
    for node, count in zip(claim.nodes, claim.gpus, strict=True):
        if node in index:
            gpus[index[node]] = count
    return gpus


def _needs(observation: Observation, row: int) -> Iterator[Need]:
    """Yield the need of the waiting job in each of its partitions."""
    for _, node_set in observation.partitions_of(row):
        yield Need.of(observation.state, row, node_set)


def _rank(job: SlurmJob) -> tuple[object, ...]:
    return job.qos, frozenset(job.partition.split(","))
