"""Waiting jobs that Slurm would start in the place of others, with the room for each. Pure functions of one observation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.base.apart import apart
from controller.cycle.decision.plan import Start
from controller.cycle.room.capacity import Capacity, Need
from controller.cycle.room.occupancy import free_capacity, occupants_of
from controller.cycle.room.stops import Candidate, Room, room_for
from controller.observe.observer import Observation
from controller.slurm.model.cluster import SlurmPartition
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.slurm.priorities.preemption import PreemptionRules, holds_nodes

_MOST_TRIES = 20
"""Maximum number of different requests for which room is searched in one cycle; the others are tried when these have started."""

_MOST_ROOMS = 20
"""Maximum number of waiting jobs that find room in one cycle."""
_MOST_JOBS = 1000
"""Maximum number of waiting jobs that are considered in one cycle, the first in Slurm's order."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Room for one waiting job."""

    row: int
    need: Need
    room: Room


class Cluster:
    """Jobs on the nodes, by what Slurm's rules say of them. Invariant: a job is in at most one of `candidates` and `leaving`.

    Bound: lives for one cycle.
    """

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
        self._below: dict[tuple[str, str], frozenset[JobKey]] = {}
        """Candidates that a job of that QOS in that partition may take the place of."""
        occupants = occupants_of(observation)
        for job, shares in occupants:
            with apart("Slurm's preemption", job.key.job_id):
                self._sort_in(Candidate(job, shares), leaves)
        self.candidates.sort(key=lambda one: rules.order(one.job, self.partitions))
        self.capacity = free_capacity(observation, occupants)
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
        free, candidates = self.capacity.without(one.leaves for one in self.leaving), list(self.candidates)
        tried = set[tuple[object, ...]]()
        rooms = 0
        for row in self._in_order(queue)[:_MOST_JOBS]:
            found = next(filter(None, self._rooms(row, free, candidates, tried)), None)
            if found is not None:
                yield found
                free = free.without(one.leaves for one in found.room.stops)
                free.take(found.need, found.room.placement)
                taken = {one.job.key for one in found.room.stops}
                candidates = [one for one in candidates if one.job.key not in taken] if taken else candidates
                rooms += 1
            if rooms >= _MOST_ROOMS or len(tried) >= _MOST_TRIES:
                return

    def _rooms(
        self, row: int, free: Capacity, candidates: Sequence[Candidate], tried: set[tuple[object, ...]]
    ) -> Iterator[Wanted | None]:
        """Yield the room for the job in each of its partitions; None where there is none. Adds to the requests that were tried."""
        job, state = self._observation.rows[row], self._observation.state
        for name, node_set in self._observation.partitions_of(row):
            if (group := (job.qos, name)) not in self._below:
                self._below[group] = self._stoppable(replace(job, partition=name))
            if not self._below[group]:
                continue
            need = Need.of(state, row, node_set)
            if (case := (group, need.signature)) in tried:
                continue
            room = room_for(need, free, [one for one in candidates if one.job.key in self._below[group]])
            if room is None:
                tried.add(case)
            yield None if room is None else Wanted(row, need, room)

    def _stoppable(self, job: SlurmJob) -> frozenset[JobKey]:
        return frozenset(one.job.key for one in self.candidates if self._rules.may_stop(job, one.job, self.partitions))

    def _in_order(self, queue: Iterable[int]) -> list[int]:
        """Return the rows in Slurm's order, as far as it is known; the others keep the policy's."""
        jobs = self._observation.state.jobs
        rows = np.fromiter(queue, np.int64)
        tier = np.zeros(len(jobs)) if jobs.partition_tier is None else -jobs.partition_tier
        priority = np.zeros(len(jobs)) if jobs.slurm_priority is None else -jobs.slurm_priority
        order: list[int] = rows[np.lexsort((np.arange(len(rows)), priority[rows], tier[rows]))].tolist()
        return order
