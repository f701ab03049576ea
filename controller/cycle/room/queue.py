"""Waiting jobs that Slurm would start in the place of others, with the room for each. Pure functions of one observation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from controller.cycle.decision.plan import Start
from controller.cycle.room.capacity import Capacity, Need, OnNode
from controller.cycle.room.stops import Candidate, Room, room_for
from controller.observe.observer import Observation
from controller.slurm.client import Phase, SlurmJob, SlurmPartition
from controller.slurm.priorities.preemption import PreemptionRules, holds_nodes

_MOST_TRIES = 50
"""Maximum number of different requests for which room is searched in one cycle; the others are tried when these have started."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Room for one waiting job."""

    row: int
    need: Need
    room: Room


class Cluster:
    """Jobs on the nodes, by what Slurm's rules say of them. Invariant: a job is in at most one of `candidates` and `leaving`."""

    def __init__(
        self,
        observation: Observation,
        rules: PreemptionRules,
        leaves: Callable[[SlurmJob], bool],
        starts: Iterable[Start],
    ) -> None:
        """`leaves`: whether a job is being stopped already. `starts`: starts of this cycle."""
        self._observation = observation
        self._rules = rules
        self.partitions: Mapping[str, SlurmPartition] = {one.name: one for one in observation.snapshot.partitions}
        self.candidates: list[Candidate] = []
        """Jobs that may be stopped for others, in the order in which Slurm stops them."""
        self.leaving: list[Candidate] = []
        """Jobs that are about to leave their nodes."""
        names = observation.state.nodes.names
        index = {name: node for node, name in enumerate(names)}
        jobs, sealed = np.zeros(len(names), dtype=np.int64), np.zeros(len(names), dtype=np.int64)
        for job in observation.snapshot.jobs:
            shares = _shares(job, index) if job.phase.occupies_nodes else ()
            nodes = [share.node for share in shares]
            jobs[nodes] += 1
            sealed[nodes] += job.exclusive
            if shares:
                self._sort_in(Candidate(job, shares), leaves)
        self.candidates.sort(key=lambda one: rules.order(one.job, self.partitions))
        self.capacity = Capacity.of(observation.state, jobs, sealed)
        for start in starts:
            self.capacity.take(Need.of(observation.state, start.row), start.placement)

    def _sort_in(self, one: Candidate, leaves: Callable[[SlurmJob], bool]) -> None:
        if one.job.phase is Phase.COMPLETING or leaves(one.job):
            self.leaving.append(one)
        elif (
            holds_nodes(one.job)
            and self._rules.exempt_until_s(one.job) <= self._observation.snapshot.time_s
            and self._rules.stop_mode(one.job, self.partitions) is not None
        ):
            self.candidates.append(one)

    def wanted(self, queue: Iterable[int]) -> Iterator[Wanted]:
        """Yield the waiting jobs for which there will be room after stops, the first in Slurm's order first.

        Each has taken its room when the next is considered, so that no job is stopped for two.
        """
        rows, tried = self._observation.rows, set[tuple[object, ...]]()
        free, candidates = self.capacity.without(one.leaves for one in self.leaving), list(self.candidates)
        below: dict[tuple[str, str], list[Candidate]] = {}
        for row in self._in_order(queue):
            job = rows[row]
            group = (job.qos, job.partition)
            if group not in below:
                below[group] = self._below(job, candidates)
            if not below[group]:
                continue
            need = Need.of(self._observation.state, row)
            if (case := (group, need.signature)) in tried:
                continue
            room = room_for(need, free, below[group])
            if room is None:
                tried.add(case)
                if len(tried) >= _MOST_TRIES:
                    return
                continue
            yield Wanted(row, need, room)
            free = free.without(one.leaves for one in room.stops)
            free.take(need, room.placement)
            candidates = [one for one in candidates if one not in room.stops]
            below.clear()

    def _below(self, job: SlurmJob, candidates: Sequence[Candidate]) -> list[Candidate]:
        return [one for one in candidates if self._rules.may_stop(job, one.job, self.partitions)]

    def _in_order(self, queue: Iterable[int]) -> list[int]:
        """Return the rows in Slurm's order, as far as it is known; the others keep the policy's."""
        jobs = self._observation.state.jobs
        rows = np.fromiter(queue, np.int64)
        tier = np.zeros(len(jobs)) if jobs.partition_tier is None else -jobs.partition_tier
        priority = np.zeros(len(jobs)) if jobs.slurm_priority is None else -jobs.slurm_priority
        order: list[int] = rows[np.lexsort((np.arange(len(rows)), priority[rows], tier[rows]))].tolist()
        return order


def _shares(job: SlurmJob, index: Mapping[str, int]) -> tuple[OnNode, ...]:
    return tuple(
        OnNode(index[share.node], share.gpus, float(share.cpus), float(share.memory_mib))
        for share in job.allocated
        if share.node in index
    )
