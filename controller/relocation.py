"""Where a running job could be instead: whether there is room now, off some nodes and away from others that communicate. Pure.

Rooms are found by the packing that policies share. What waits comes first: room is what would be left after every waiting job that
fits now has its place, in the policy's order. The GPUs that a moved job leaves are free for the others, so that nobody's room
gets smaller by it; but nobody is asked to wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from controller.feasible import Feasibility, UnsupportedRequestError
from controller.observe import Observation
from controller.preemption import Elsewhere
from controller.slurm.client import JobKey, Phase, ResourceRequest, SlurmJob
from policies.model import BoolColumn, ClusterState, JobState, Placement
from policies.packing import Capacity, placement_of


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place for one job."""

    row: int
    placement: Placement
    nodes: tuple[str, ...]
    elsewhere: Elsewhere
    """Keeps it off every node that it may use but those among which this place was looked for."""
    empty: bool
    """Nobody else is on these nodes."""
    what_if: ClusterState
    """The cluster as it would be, had the job been stopped by now and were kept off those nodes."""


class Relocations:
    """Places as of one observation. Invariant: what was taken for one job is not found for another."""

    def __init__(
        self, observation: Observation, originals: Mapping[JobKey, ResourceRequest], line: Iterable[int] = ()
    ) -> None:
        """`line`: rows of waiting jobs in the order in which the policy considers them; those left out follow."""
        self._observation = observation
        self._originals = originals
        self._state = state = observation.state
        self._feasibility = Feasibility(observation.snapshot, state.nodes.names)
        waiting = state.pending.tolist()
        known = set(waiting)
        line = dict.fromkeys([*(row for row in line if row in known), *waiting])
        fits = Capacity(state).claim(line)
        self._taken = [(row, placement_of(fit)) for row, fit in fits.items()]

    def find(self, row: int, job: SlurmJob, off: frozenset[str]) -> Relocation | None:
        """Room for the running job of that row off these nodes: empty nodes first; for one on several nodes, then such where all
        others are on one node each, and so do not communicate over the network."""
        usable = self._usable(job)
        if usable is None:
            return None
        kept = usable & np.array([name not in off for name in self._state.nodes.names], dtype=np.bool_)
        for least_nodes in (1, 2) if len(job.allocated) > 1 else (1,):
            found = kept & ~self._others(row, job, least_nodes)
            placement = self._room(row, found)
            if placement is not None:
                return self._relocation(row, placement, usable, found, empty=least_nodes == 1)
        return None

    def take(self, found: Relocation) -> None:
        """It is that job's from now on."""
        self._taken.append((found.row, found.placement))

    def _usable(self, job: SlurmJob) -> BoolColumn | None:
        """Nodes that it may use as its user asked; None: only Slurm could place it."""
        request = self._originals.get(job.key, job.request)
        asking = replace(job, request=request, phase=Phase.PENDING, allocated=())
        try:
            number = self._feasibility.node_set(asking, lambda _mask: True)
        except UnsupportedRequestError:
            return None
        return np.ones(len(self._state.nodes), dtype=np.bool_) if number < 0 else self._feasibility.masks[number]

    def _room(self, row: int, nodes: BoolColumn) -> Placement | None:
        """Where it would go on these nodes, were it not where it is."""
        capacity = Capacity(_asking(self._state, row, nodes))
        for other, placement in self._taken:
            capacity.take(other, placement)
        own = self._state.jobs.placement(row)
        if own is not None:
            capacity.give_back(row, own)
        return capacity.place(row)

    def _relocation(
        self, row: int, placement: Placement, usable: BoolColumn, found: BoolColumn, *, empty: bool
    ) -> Relocation:
        names = self._state.nodes.names
        avoid = frozenset(names[node] for node in np.flatnonzero(usable & ~found).tolist())
        nodes = tuple(names[node] for node in placement.nodes)
        stopped = _stopped(_asking(self._state, row, found), row)
        return Relocation(row, placement, nodes, Elsewhere(avoid=avoid), empty, stopped)

    def _others(self, row: int, job: SlurmJob, least_nodes: int) -> BoolColumn:
        """Nodes of jobs besides this one that hold so many nodes or more: those that Slurm places and those to come too."""
        nodes = self._state.nodes
        found = np.zeros(len(nodes), dtype=np.bool_)
        for placement in (*self._running(row), *(placement for _, placement in self._taken)):
            if len(placement.nodes) >= least_nodes:
                found[list(placement.nodes)] = True
        index = {name: number for number, name in enumerate(nodes.names)}
        for other in self._observation.snapshot.jobs:
            if len(other.allocated) >= least_nodes and other.phase.holds_nodes and other.key != job.key:
                found[[index[share.node] for share in other.allocated if share.node in index]] = True
        return found

    def _running(self, row: int) -> Iterator[Placement]:
        """Of the running jobs besides that one, those included that Slurm is about to start."""
        for other in self._state.running.tolist():
            placement = self._state.jobs.placement(other)
            if other != row and placement is not None:
                yield placement


def _asking(state: ClusterState, row: int, mask: BoolColumn) -> ClusterState:
    """The state in which the job of that row may only use these nodes."""
    node_set = state.jobs.node_set.copy()
    node_set[row] = len(state.node_sets)
    sets = np.vstack((state.node_sets.reshape(-1, len(mask)), mask[None]))
    return replace(state, jobs=replace(state.jobs, node_set=node_set), node_sets=sets)


def _stopped(state: ClusterState, row: int) -> ClusterState:
    """The state in which the job of that row waits."""
    jobs = state.jobs
    begin, end = jobs.placement_offset[row : row + 2].tolist()
    offset = jobs.placement_offset.copy()
    offset[row + 1 :] -= end - begin
    held = np.r_[0:begin, end : len(jobs.placement_node)]
    phase, start_time_s, preemptible = jobs.state.copy(), jobs.start_time_s.copy(), jobs.preemptible.copy()
    phase[row], start_time_s[row], preemptible[row] = JobState.PENDING, np.nan, False
    return replace(
        state,
        jobs=replace(
            jobs,
            state=phase,
            start_time_s=start_time_s,
            preemptible=preemptible,
            placement_offset=offset,
            placement_node=jobs.placement_node[held],
            placement_gpus=jobs.placement_gpus[held],
            placement_gpu_mask=jobs.placement_gpu_mask[held],
        ),
    )
