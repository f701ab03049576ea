"""Data of the emulated slurmctld: nodes, partitions, reservations and jobs, with queries that need only them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace

from controller.slurm.embedded.ctld.job import Job
from controller.slurm.embedded.ctld.node import Node
from controller.slurm.embedded.description import ClusterDescription, expand_hosts
from controller.slurm.model.cluster import SlurmNode, SlurmPartition, SlurmReservation
from controller.slurm.model.job import Phase

_FIRST_PRIORITY = 4_294_901_759


@dataclass(slots=True)
class Partition:
    """One partition's record."""

    name: str
    nodes: tuple[str, ...]
    max_time_s: float | None
    up: bool = True

    def view(self) -> SlurmPartition:
        """Return the partition as Slurm shows it."""
        return SlurmPartition(self.name, frozenset(self.nodes), self.up, self.max_time_s)


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation's record; with `maintenance` its nodes are in state MAINTENANCE while it is active."""

    view: SlurmReservation
    maintenance: bool = False

    def active(self, now_s: float) -> bool:
        """Return whether the reservation has begun and not ended."""
        return self.view.start_time_s <= now_s < self.view.end_time_s


class Records:
    """Present records. Invariant: a node's shares are exactly those of the jobs that occupy it, and fit into it."""

    def __init__(self, description: ClusterDescription, now_s: float) -> None:
        self.description = description
        self.now_s = now_s
        self.partitions = {
            partition.name: Partition(partition.name, description.members(partition), partition.max_time_s)
            for partition in description.partitions
        }
        self.nodes = _make_nodes(description, self.partitions.values())
        self.reservations: dict[str, Reservation] = {}
        self.jobs: dict[str, Job] = {}
        self.outcomes: dict[str, str] = {}
        """Job id → end state of every job that ended, forgotten ones too."""
        self.next_id = 1
        self.kept_ids: frozenset[int] = frozenset()
        """Raw ids of the jobs that the last crash has left: they are not issued again."""
        self.down_until_s = 0.0
        """Time until which slurmctld does not answer."""
        self.unregistered_until_s = 0.0
        """Time until which the nodes are UNKNOWN after a restart."""
        self._occupants: dict[str, Job] = {}
        self._numbers = itertools.count()
        self._priority = _FIRST_PRIORITY

    def issue_ids(self, count: int = 1) -> int:
        """Return the first of so many ids in a row, none of which a job has that outlived a crash."""
        first = self.next_id
        while not self.kept_ids.isdisjoint(range(first, first + count)):
            first += 1
        self.next_id = first + count
        return first

    def next_number(self) -> int:
        """Return a number greater than all before."""
        return next(self._numbers)

    def next_priority(self) -> int:
        """Return a priority lower than those of all jobs in the queue (priority/basic)."""
        self._priority -= 1
        return self._priority + 1

    def queue(self) -> list[Job]:
        """Return the pending jobs that are not held, by priority."""
        waiting = [job for job in self.jobs.values() if job.phase is Phase.PENDING and not job.held]
        return sorted(waiting, key=lambda job: (-job.priority, job.sequence))

    def occupants(self) -> list[Job]:
        """Return the jobs that occupy nodes, in the order of their starts."""
        return list(self._occupants.values())

    def may_start_jobs(self, node: Node) -> bool:
        """Return whether the node's state lets it start jobs, with no regard to reservations."""
        return node.available and self.unregistered_until_s <= self.now_s

    def node_view(self, node: Node) -> SlurmNode:
        """Return the node as Slurm shows it."""
        if self.unregistered_until_s > self.now_s and not node.down:
            return replace(node.view(False), state="UNKNOWN", available=False)
        return node.view(self.in_maintenance(node.name))

    def in_maintenance(self, node: str) -> bool:
        """Return whether a maintenance reservation has the node now."""
        return any(r.maintenance and r.active(self.now_s) and node in r.view.nodes for r in self.reservations.values())


def _make_nodes(description: ClusterDescription, partitions: Iterable[Partition]) -> dict[str, Node]:
    members = [(partition.name, frozenset(partition.nodes)) for partition in partitions]
    return {
        name: Node(
            name=name,
            gpus=kind.gpus,
            gpu_type=kind.gpu_type,
            cpus=kind.cpus,
            memory_mib=kind.memory_mib,
            features=frozenset(kind.features),
            partitions=frozenset(partition for partition, nodes in members if name in nodes),
        )
        for kind in description.nodes
        for name in expand_hosts(kind.names)
    }
