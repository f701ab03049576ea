"""Eligible nodes of a job, free or not: by partition, features, GPU type, reservations and node lists.

Masks are cached by the values on which they depend, because thousands of jobs have the same few requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from controller.slurm.model.cluster import SlurmReservation, SlurmSnapshot
from controller.slurm.model.job import ResourceRequest, SlurmJob
from controller.state.preemption import RelocationConstraint

Mask = npt.NDArray[np.bool_]
_FEATURE = re.compile(r"[\w.\-:/@]+")
ANYWHERE = RelocationConstraint()


class UnsupportedRequestError(Exception):
    """The job has a request that only Slurm itself can place; the text says which."""


class _Demand(NamedTuple):
    """Everything that a mask depends on."""

    partition: str
    features: str
    gpu_type: str
    reservation: str
    barred: frozenset[str]
    """Reservations that overlap the job's time limit, and in which it may not start."""
    required: tuple[str, ...]
    excluded: tuple[str, ...]
    avoid: frozenset[str]
    only: frozenset[str]


class EligibleNodes:
    """Node sets of one snapshot. Invariant: `masks[i]` belongs to set number i; set -1 is every node."""

    def __init__(self, snapshot: SlurmSnapshot, node_names: tuple[str, ...]) -> None:
        self._names = node_names
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._partitions = {partition.name: partition for partition in snapshot.partitions}
        self._reservations = {reservation.name: reservation for reservation in snapshot.reservations}
        self._now_s = snapshot.time_s
        self._rows: dict[Hashable, int] = {}
        """Row of each demand. Bound: `kept`, by which the observer replaces this object."""
        self._eventually: dict[Hashable, Mask] = {}
        """Bound: `kept`."""
        self._by_content: dict[bytes, int] = {}
        """Row of each mask by its bytes. Bound: as many as `masks`."""
        self.masks: list[Mask] = []
        """Bound: the observer replaces this object when there are too many."""

    @property
    def kept(self) -> int:
        """Number of demands that are kept, those of past jobs included."""
        return max(len(self._rows), len(self._eventually))

    @property
    def signature(self) -> Hashable:
        """Key of all masks: equal signatures of two snapshots give every job the same mask, while no reservation is near."""
        return (
            tuple((node.name, node.features, node.gpu_type, node.partitions) for node in self._nodes.values()),
            tuple(
                (one.name, one.up, one.max_time_s, one.min_nodes, one.max_nodes) for one in self._partitions.values()
            ),
            tuple(self._reservations.values()),
        )

    def node_set(self, job: SlurmJob, fits: Callable[[Mask], bool], constraint: RelocationConstraint = ANYWHERE) -> int:
        """Return the row of the job's node set under its constraint. Raises UnsupportedRequestError.

        Of several partitions, it is that of the first in which the job fits now. A job that fits in none now, but in one of them as
        soon as it is up and its nodes are not reserved, waits for that one, as a job of only that partition does.
        """
        names = job.partition.split(",")
        if len(names) == 1:
            self._require_one_reservation(job)
            return self._row(job, names[0], constraint)
        found = self.by_partition(job, fits, constraint)
        return found[0][1] if found else self._row(job, self._later(job, fits, constraint), constraint)

    def by_partition(
        self, job: SlurmJob, fits: Callable[[Mask], bool], constraint: RelocationConstraint = ANYWHERE
    ) -> tuple[tuple[str, int], ...]:
        """Return the job's partitions that are up, whose limits it keeps, and on whose nodes it fits now, each with the row of its
        node set; none, if it has to wait for a partition or a reservation. Raises UnsupportedRequestError."""
        self._require_one_reservation(job)
        rows = [(name, self._row(job, name, constraint)) for name in self._allowing(job) if self._up(name)]
        return tuple((name, row) for name, row in rows if row < 0 or fits(self.masks[row]))

    def _require_one_reservation(self, job: SlurmJob) -> None:
        if "," in job.reservation:
            # Slurm may start it in any of them, and keeps the whole list in the record of the job.
            raise UnsupportedRequestError(f"requests one of several reservations ({job.reservation})")

    def _later(self, job: SlurmJob, fits: Callable[[Mask], bool], constraint: RelocationConstraint) -> str:
        """Return the first partition in which the job fits when it is up and its nodes are not reserved; one in which it also keeps
        its constraint, if there is any."""
        later = [(name, mask) for name in self._allowing(job) if fits(mask := self.eventually(job, name))]
        if not later:
            raise UnsupportedRequestError(f"fits in none of its partitions ({job.partition})")
        kept = np.array([constraint.allows(name) for name in self._names], dtype=np.bool_)
        return next((name for name, mask in later if fits(mask & kept)), later[0][0])

    def _allowing(self, job: SlurmJob) -> list[str]:
        """Return the job's partitions whose lasting limits allow its time and nodes, up or not."""
        return [name for name in job.partition.split(",") if self._allows(name, job)]

    def _allows(self, name: str, job: SlurmJob) -> bool:
        partition = self._partitions.get(name)
        if partition is None:
            return False
        limit_s, most_s, request = job.time_limit_s, partition.max_time_s, job.request
        if limit_s is not None and most_s is not None and limit_s > most_s:
            return False
        if request.max_nodes and request.max_nodes < partition.min_nodes:
            return False
        return partition.max_nodes is None or request.min_nodes <= partition.max_nodes

    def _up(self, name: str) -> bool:
        partition = self._partitions.get(name)
        return partition is not None and partition.up

    def _row(self, job: SlurmJob, partition: str, constraint: RelocationConstraint) -> int:
        demand = _Demand(
            partition=partition,
            features=job.features,
            gpu_type=job.request.gpu_type,
            reservation=job.reservation,
            barred=self._barred(job),
            required=job.request.required_nodes,
            excluded=job.request.excluded_nodes,
            avoid=constraint.avoid,
            only=constraint.only,
        )
        row = self._rows.get(demand)
        if row is None:
            mask = self._mask(demand)
            row = -1 if bool(mask.all()) else self._intern(mask)
            self._rows[demand] = row
        return row

    def eventually(self, job: SlurmJob, partition: str = "") -> Mask:
        """Return the nodes that the job could use if every partition were up and no node reserved. Raises
        UnsupportedRequestError.

        `partition`: the only partition to consider; empty: all of the job.
        """
        wanted = job.request
        demand = (
            partition or job.partition,
            job.features,
            wanted.gpu_type,
            wanted.required_nodes,
            wanted.excluded_nodes,
        )
        if demand not in self._eventually:
            self._eventually[demand] = self._lasting_mask(*demand)
        return self._eventually[demand]

    def _lasting_mask(
        self, partition: str, features: str, gpu_type: str, required: tuple[str, ...], excluded: tuple[str, ...]
    ) -> Mask:
        names = [name for name in partition.split(",") if name in self._partitions]
        members: frozenset[str] = frozenset().union(*(self._partitions[name].nodes for name in names))
        return self._matching(members, features, gpu_type, required, excluded)

    def only(self, names: Container[str]) -> int:
        """Return the row of the set of exactly these nodes."""
        mask = np.array([name in names for name in self._names], dtype=np.bool_)
        return -1 if bool(mask.all()) else self._intern(mask)

    def _intern(self, mask: Mask) -> int:
        row = self._by_content.setdefault(mask.tobytes(), len(self.masks))
        if row == len(self.masks):
            self.masks.append(mask)
        return row

    def _barred(self, job: SlurmJob) -> frozenset[str]:
        if not self._reservations:
            return frozenset()
        return frozenset(
            name
            for name, reservation in self._reservations.items()
            if name != job.reservation and self._overlaps(job, reservation) and not self._draws(job, reservation)
        )

    def _draws(self, job: SlurmJob, reservation: SlurmReservation) -> bool:
        """Return whether Slurm would start the job there now although it does not request the reservation.

        Slurm starts no job half inside and half outside, which one node set cannot say: only jobs on one node count.
        """
        return (
            reservation.magnetic
            and not job.reservation
            and reservation.start_time_s <= self._now_s
            and reservation.draws(job.user, job.account)
            and _is_on_one_node(job.request)
            and (not reservation.draws_only_shorter or self._end_s(job) < reservation.end_time_s)
        )

    def _overlaps(self, job: SlurmJob, reservation: SlurmReservation) -> bool:
        return reservation.start_time_s < self._end_s(job) and reservation.end_time_s > self._now_s

    def _end_s(self, job: SlurmJob) -> float:
        """Return when the job ends at the latest if it starts now."""
        return float("inf") if job.time_limit_s is None else self._now_s + job.time_limit_s

    def _mask(self, demand: _Demand) -> Mask:
        allowed = self._partitions[demand.partition].nodes if self._up(demand.partition) else frozenset()
        if demand.reservation:
            reservation = self._reservations.get(demand.reservation)
            active = reservation is not None and reservation.start_time_s <= self._now_s < reservation.end_time_s
            allowed &= reservation.nodes if reservation is not None and active else frozenset()
        for name in demand.barred:
            allowed -= self._reservations[name].nodes
        allowed -= demand.avoid
        if demand.only:
            allowed &= demand.only
        return self._matching(allowed, demand.features, demand.gpu_type, demand.required, demand.excluded)

    def _matching(
        self,
        allowed: frozenset[str],
        features: str,
        gpu_type: str,
        required: tuple[str, ...],
        excluded: tuple[str, ...],
    ) -> Mask:
        allowed -= frozenset(excluded)
        if required:
            allowed &= frozenset(required)
        return np.array(
            [
                name in allowed
                and _has_features(self._nodes[name].features, features)
                and (not gpu_type or self._nodes[name].gpu_type == gpu_type)
                for name in self._names
            ],
            dtype=np.bool_,
        )


def _is_on_one_node(request: ResourceRequest) -> bool:
    return request.max_nodes == 1 or (request.min_nodes <= 1 and bool(request.gpus_per_node))


def _has_features(features: frozenset[str], expression: str) -> bool:
    """Evaluate Slurm's feature expressions `a&b` (or `a,b`) and `a|b`. Counts, brackets and parentheses are left to Slurm."""
    if not expression:
        return True
    if any(sign in expression for sign in "[]()*!"):
        raise UnsupportedRequestError(f"asks for nodes by --constraint={expression}")
    alternatives = expression.split("|")
    if len(alternatives) > 1 and any("&" in part or "," in part for part in alternatives):
        raise UnsupportedRequestError(f"asks for nodes by --constraint={expression}")
    return any(set(_FEATURE.findall(part)) <= features for part in alternatives)
