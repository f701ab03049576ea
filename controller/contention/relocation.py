"""Free places for a running job that should move: without certain nodes, and away from other jobs that communicate. Pure.

Places are found by best fit, the rule that policies share. Waiting jobs come first: a place may use only what is left after every
waiting job that fits now has been placed in the policy's order. The GPUs that a moved job leaves become free, so a move
takes no GPUs from other jobs; but no job is made to wait for these GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np

from controller.observe.eligible_nodes import EligibleNodes, UnsupportedRequestError
from controller.observe.observer import Observation
from controller.slurm.model.job import JobKey, Phase, ResourceRequest, SlurmJob
from controller.state.preemption import RelocationConstraint
from policies.model import BoolColumn, ClusterState, IntColumn, Placement
from policies.placement.best_fit import Capacity, placement_of
from policies.selection import present_placements


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place for one job."""

    row: int
    placement: Placement
    nodes: tuple[str, ...]
    constraint: RelocationConstraint
    """Constraint that excludes every usable node outside the nodes of the search."""
    empty: bool
    """True when no other job is on these nodes."""
    among: BoolColumn
    """Nodes that the search considered."""


class Relocations:
    """Places as of one observation. Invariant: a place that was reserved for one job is not found for another."""

    def __init__(
        self,
        observation: Observation,
        originals: Mapping[JobKey, ResourceRequest],
        order: Iterable[int] = (),
        silent: frozenset[str] = frozenset(),
    ) -> None:
        """`order`: rows of waiting jobs in the policy's order; other waiting jobs follow. `silent`: nodes without a connected
        agent, to which no job is moved."""
        self._silent = silent
        self._only_slurm = observation.only_slurm
        self._originals = originals
        self._state = state = observation.state
        self._eligible = EligibleNodes(observation.snapshot, state.nodes.names)
        waiting = state.pending.tolist()
        known = set(waiting)
        order = dict.fromkeys([*(row for row in order if row in known), *waiting])
        fits = Capacity(state).claim(order)
        self._taken = [(row, placement_of(fit)) for row, fit in fits.items()]
        """Bound: the jobs of one observation."""
        # Of ten thousand rows, only those matter that occupy nodes or would occupy them.
        rows = np.union1d(state.running, np.fromiter(fits, np.int64, len(fits)))
        self._jobs_with_nodes = _of_rows(state, rows)
        self._row = {row: place for place, row in enumerate(rows.tolist())}
        self._occupants = _occupants(observation)
        self._numbers = {least: self._number_of_occupants(least) for least in (1, 2)}

    def find(self, row: int, job: SlurmJob, off: frozenset[str]) -> Relocation | None:
        """Return a place for the running job of that row without the nodes `off`; None when there is none.

        Empty nodes come first. A job on several nodes may then share nodes with jobs that each run on one node only, and so do not
        communicate over the network.
        """
        usable = self._usable(job)
        if usable is None:
            return None
        off |= self._silent
        kept = usable & np.array([name not in off for name in self._state.nodes.names], dtype=np.bool_)
        for least_nodes in (1, 2) if len(job.allocated) > 1 else (1,):
            found = kept & ~self._others(job.key, least_nodes)
            placement = self._placement(row, found)
            if placement is not None:
                return self._relocation(row, placement, usable, found, empty=least_nodes == 1)
        return None

    def take(self, found: Relocation) -> None:
        """Reserve a place for its job."""
        self._taken.append((found.row, found.placement))

    def what_if(self, place: Relocation) -> ClusterState:
        """Return the cluster's state as if that job had been stopped."""
        state = _restricted(self._state, place.row, place.among)
        return replace(state, jobs=state.jobs.stopped(place.row))

    def _usable(self, job: SlurmJob) -> BoolColumn | None:
        """Return the nodes that the job may use by its user's request; None: only Slurm could place it."""
        if job.key in self._only_slurm:
            return None
        request = self._originals.get(job.key, job.request)
        pending = replace(job, request=request, phase=Phase.PENDING, allocated=())
        try:
            number = self._eligible.node_set(pending, lambda _mask: True)
        except UnsupportedRequestError:
            return None
        return np.ones(len(self._state.nodes), dtype=np.bool_) if number < 0 else self._eligible.masks[number]

    def _placement(self, row: int, nodes: BoolColumn) -> Placement | None:
        """Return where the job would be placed on these nodes if it were not running; None: it does not fit."""
        if np.count_nonzero(nodes & self._state.nodes.available) < self._state.jobs.min_nodes[row]:
            return None
        here = self._row[row]
        capacity = Capacity(_restricted(self._jobs_with_nodes, here, nodes))
        for other, placement in self._taken:
            capacity.take(self._row[other], placement)
        own = self._state.jobs.placement(row)
        if own is not None:
            capacity.give_back(here, own)
        return capacity.place(here)

    def _relocation(
        self, row: int, placement: Placement, usable: BoolColumn, found: BoolColumn, *, empty: bool
    ) -> Relocation:
        names = self._state.nodes.names
        avoid = frozenset(names[node] for node in np.flatnonzero(usable & ~found).tolist())
        nodes = tuple(names[node] for node in placement.nodes)
        return Relocation(row, placement, nodes, RelocationConstraint(avoid=avoid), empty, found)

    def _number_of_occupants(self, least_nodes: int) -> IntColumn:
        """Return for each node the number of its jobs that occupy at least so many nodes."""
        nodes = [nodes for number, nodes in self._occupants.values() if number >= least_nodes]
        return np.bincount(np.fromiter(chain.from_iterable(nodes), np.int64), minlength=len(self._state.nodes))

    def _others(self, moving: JobKey, least_nodes: int) -> BoolColumn:
        """Return the nodes of other jobs on at least so many nodes, with those that Slurm places or that are about to start."""
        number, own = self._occupants.get(moving, (0, []))
        occupants = self._numbers[least_nodes].copy()
        occupants[own] -= number >= least_nodes
        found: BoolColumn = occupants > 0
        for _, placement in self._taken:
            if len(placement.nodes) >= least_nodes:
                found[list(placement.nodes)] = True
        return found


def _occupants(observation: Observation) -> dict[JobKey, tuple[int, list[int]]]:
    """Return, for every job that occupies nodes or is about to, the number of its nodes and its managed nodes."""
    index = {name: number for number, name in enumerate(observation.state.nodes.names)}
    found = {
        job.key: (len(job.allocated), [index[share.node] for share in job.allocated if share.node in index])
        for job in observation.snapshot.jobs
        if job.allocated and job.phase.occupies_nodes
    }
    for row, placement in present_placements(observation.state, observation.state.running).items():
        found.setdefault(observation.rows[row].key, (len(placement.nodes), list(placement.nodes)))
    return found


def _of_rows(state: ClusterState, rows: IntColumn) -> ClusterState:
    """Return the state with only these jobs, in ascending order."""
    jobs = state.jobs
    kept = np.zeros(len(jobs), dtype=np.bool_)
    kept[rows] = True
    lengths = np.diff(jobs.placement_offset)
    entries = np.repeat(kept, lengths)
    columns: dict[str, Any] = {}
    for column in fields(jobs):
        values = getattr(jobs, column.name)
        if column.name.startswith("placement_"):
            columns[column.name] = values[entries] if column.name != "placement_offset" else None
        elif isinstance(values, np.ndarray):
            columns[column.name] = values[kept]
    columns["placement_offset"] = np.append(0, np.cumsum(lengths[kept]))
    ids = tuple(jobs.ids[row] for row in rows.tolist())
    return replace(state, jobs=replace(jobs, ids=ids, **columns))


def _restricted(state: ClusterState, row: int, mask: BoolColumn) -> ClusterState:
    """Return the state in which the job of that row may use only these nodes."""
    node_set = state.jobs.node_set.copy()
    node_set[row] = len(state.node_sets)
    sets = np.vstack((state.node_sets.reshape(-1, len(mask)), mask[None]))
    return replace(state, jobs=replace(state.jobs, node_set=node_set), node_sets=sets)
