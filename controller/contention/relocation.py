"""Where a running job could be instead: whether there is room now, off some nodes and away from others that communicate. Pure.

Rooms are found by the packing that policies share. What waits comes first: room is what would be left after every waiting job that
fits now has its place, in the policy's order. The GPUs that a moved job leaves are free for the others, so that nobody's room
gets smaller by it; but nobody is asked to wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np

from controller.observe.eligible_nodes import Feasibility, UnsupportedRequestError
from controller.observe.observer import Observation
from controller.slurm.client import JobKey, Phase, ResourceRequest, SlurmJob
from controller.state.preemption import RelocationConstraint
from policies.model import BoolColumn, ClusterState, IntColumn, Placement
from policies.placement.best_fit import Capacity, placement_of
from policies.selection import held_placements


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place for one job."""

    row: int
    placement: Placement
    nodes: tuple[str, ...]
    elsewhere: RelocationConstraint
    """Keeps it off every node that it may use but those among which this place was looked for."""
    empty: bool
    """Nobody else is on these nodes."""
    among: BoolColumn
    """The nodes among which it was looked for."""


class Relocations:
    """Places as of one observation. Invariant: what was taken for one job is not found for another."""

    def __init__(
        self,
        observation: Observation,
        originals: Mapping[JobKey, ResourceRequest],
        line: Iterable[int] = (),
        silent: frozenset[str] = frozenset(),
    ) -> None:
        """`line`: rows of waiting jobs in the order in which the policy considers them; those left out follow. `silent`: nodes
        that no job is moved to."""
        self._silent = silent
        self._originals = originals
        self._state = state = observation.state
        self._feasibility = Feasibility(observation.snapshot, state.nodes.names)
        waiting = state.pending.tolist()
        known = set(waiting)
        line = dict.fromkeys([*(row for row in line if row in known), *waiting])
        fits = Capacity(state).claim(line)
        self._taken = [(row, placement_of(fit)) for row, fit in fits.items()]
        # Of ten thousand rows only those count that hold something, or would.
        rows = np.union1d(state.running, np.fromiter(fits, np.int64, len(fits)))
        self._few = _of_rows(state, rows)
        self._row = {row: place for place, row in enumerate(rows.tolist())}
        self._holders = _holders(observation)
        self._numbers = {least: self._number_of_holders(least) for least in (1, 2)}

    def find(self, row: int, job: SlurmJob, off: frozenset[str]) -> Relocation | None:
        """Room for the running job of that row off these nodes: empty nodes first; for one on several nodes, then such where all
        others are on one node each, and so do not communicate over the network."""
        usable = self._usable(job)
        if usable is None:
            return None
        off |= self._silent
        kept = usable & np.array([name not in off for name in self._state.nodes.names], dtype=np.bool_)
        for least_nodes in (1, 2) if len(job.allocated) > 1 else (1,):
            found = kept & ~self._others(job.key, least_nodes)
            placement = self._room(row, found)
            if placement is not None:
                return self._relocation(row, placement, usable, found, empty=least_nodes == 1)
        return None

    def take(self, found: Relocation) -> None:
        """It is that job's from now on."""
        self._taken.append((found.row, found.placement))

    def what_if(self, place: Relocation) -> ClusterState:
        """The cluster as it would be, had that job been stopped by now."""
        state = _asking(self._state, place.row, place.among)
        return replace(state, jobs=state.jobs.stopped(place.row))

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
        if np.count_nonzero(nodes & self._state.nodes.available) < self._state.jobs.min_nodes[row]:
            return None
        here = self._row[row]
        capacity = Capacity(_asking(self._few, here, nodes))
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

    def _number_of_holders(self, least_nodes: int) -> IntColumn:
        """By node: the jobs there that hold so many nodes or more."""
        nodes = [nodes for number, nodes in self._holders.values() if number >= least_nodes]
        return np.bincount(np.fromiter(chain.from_iterable(nodes), np.int64), minlength=len(self._state.nodes))

    def _others(self, moving: JobKey, least_nodes: int) -> BoolColumn:
        """Nodes of jobs besides this one that hold so many nodes or more: those that Slurm places and those to come too."""
        number, own = self._holders.get(moving, (0, []))
        holders = self._numbers[least_nodes].copy()
        holders[own] -= number >= least_nodes
        found: BoolColumn = holders > 0
        for _, placement in self._taken:
            if len(placement.nodes) >= least_nodes:
                found[list(placement.nodes)] = True
        return found


def _holders(observation: Observation) -> dict[JobKey, tuple[int, list[int]]]:
    """Of every job that holds nodes, or is about to: how many, and which of the managed ones."""
    index = {name: number for number, name in enumerate(observation.state.nodes.names)}
    found = {
        job.key: (len(job.allocated), [index[share.node] for share in job.allocated if share.node in index])
        for job in observation.snapshot.jobs
        if job.allocated and job.phase.holds_nodes
    }
    for row, placement in held_placements(observation.state, observation.state.running).items():
        found.setdefault(observation.rows[row].key, (len(placement.nodes), list(placement.nodes)))
    return found


def _of_rows(state: ClusterState, rows: IntColumn) -> ClusterState:
    """The state with these jobs only, in ascending order."""
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


def _asking(state: ClusterState, row: int, mask: BoolColumn) -> ClusterState:
    """The state in which the job of that row may only use these nodes."""
    node_set = state.jobs.node_set.copy()
    node_set[row] = len(state.node_sets)
    sets = np.vstack((state.node_sets.reshape(-1, len(mask)), mask[None]))
    return replace(state, jobs=replace(state.jobs, node_set=node_set), node_sets=sets)
