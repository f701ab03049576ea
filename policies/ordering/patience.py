"""Starvation protection: the one waiting job that comes first because of its age. It never stops another late job.

A job is *late* when it has waited for `patience_s` seconds and for `stretch` times its estimated duration. Being late changes
nothing in itself: where jobs last for days and queues form, most of those that wait would be late, and serving them by age would
be first in, first out. Only the *head* comes first: of the late jobs that would fit if nothing of ours ran, the one that was
submitted first, and only while no late job that is older than it runs. If the head does not fit now, the nodes on which it can
start soonest are reserved for it; all other jobs are scheduled as usual. A late job for which the nodes that are up have no room
(others are drained or used by foreign jobs) is passed over until they have room: it keeps no job waiting.

How long a job can wait: once it is late, and as long as the nodes that are up have room for it, only late jobs that were
submitted before it come before it, one after the other. They are finitely many, no later job is ever added to them, and each runs
until it ends: a late job is not stopped, and stays late while it runs unless its estimate grows. So the job starts at the latest
when its own patience and the run times of all jobs submitted before it are over; where jobs may not be stopped, each of these also
waits until the running jobs on its reserved nodes have ended. The time for which the nodes have no room for it is added.

Jobs that have waited for `patience_s` without being late may be stopped like all others. Where queues last for weeks most running
jobs are such, and if they could not be stopped, short jobs would wait for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from policies.model import BoolColumn, ClusterState, IntColumn, Placement
from policies.options import number
from policies.placement.best_fit import Capacity
from policies.placement.candidates import candidates
from policies.selection import present_placements

WEEK_S = 604_800.0
STRETCH = 10.0
RESERVED = "has waited longest; the nodes where it fits soonest are kept free for it"


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits from which a job is late. Raises ValueError for values that are out of range."""

    patience_s: float = WEEK_S
    stretch: float = STRETCH

    def __post_init__(self) -> None:
        number("patience_s", self.patience_s, unit="seconds")
        number("stretch", self.stretch, unit="times a job's duration")

    def late(self, state: ClusterState) -> BoolColumn:
        """Return for each job whether it is late. The time that it ran is not waiting; without an estimate `patience_s` decides."""
        jobs = state.jobs
        relative_s = self.stretch * np.nan_to_num(jobs.duration_estimate_s, nan=0.0)
        waited_s = state.time_s - jobs.submit_time_s - jobs.service_s
        return waited_s >= np.maximum(relative_s, self.patience_s)


def head_of(state: ClusterState, late: BoolColumn) -> int | None:
    """Return the row of the job that comes first because of its age; None when there is none.

    Each kind of request is tried once, and none that is younger than a late job that runs.
    """
    waiting = state.pending[late[state.pending]]
    running = state.running[late[state.running]]
    if len(running):
        waiting = waiting[waiting < running[0]]
    if not len(waiting):
        return None
    idle = Capacity(state, staying=state.running[:0])
    keys, failed = idle.requests.keys, set[int]()
    for row in waiting.tolist():
        if keys[row] not in failed:
            if _somewhere(idle, row) is not None:
                return int(row)
            failed.add(keys[row])
    return None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are kept for the head, and the seconds until it can start there, by estimates."""

    nodes: tuple[int, ...] = ()
    wait_s: float = math.inf


def reserve(state: ClusterState, capacity: Capacity, row: int, staying: IntColumn) -> Reservation:
    """Return the nodes on which that job can start soonest when running jobs end; none when it fits now, or never will.

    `capacity` is what the running jobs in `staying` leave. Jobs without an estimate are expected to end last.
    """
    if _somewhere(capacity, row) is not None:
        return Reservation()
    later = capacity.copy()
    own = present_placements(state, staying[np.argsort(state.remaining_s[staying], kind="stable")])
    for other, placement in own.items():
        later.give_back(other, placement)
        if (found := later.place(row)) is not None:
            return Reservation(found.nodes, float(state.remaining_s[other]))
    found = _somewhere(later, row)
    if found is None:
        return Reservation()
    # Best fit never takes it, but its GPUs may be divided otherwise: wait for all jobs on these nodes.
    ends = [state.remaining_s[other] for other, there in own.items() if not set(found.nodes).isdisjoint(there.nodes)]
    return Reservation(found.nodes, float(max(ends, default=math.inf)))


def _somewhere(capacity: Capacity, row: int) -> Placement | None:
    """Return any placement of that job on free GPUs, in any division of its GPUs; None where there is none."""
    return next(candidates(capacity, row, lambda _: 0), None)
