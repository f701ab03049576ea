"""Which running jobs are stopped for a waiting one, as Slurm chooses them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from controller.cycle.room.capacity import Capacity, Departures, Leaving, Need, OnNode
from controller.slurm.model.job import SlurmJob
from policies.model import Placement


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running job that Slurm's rules let others take the place of."""

    job: SlurmJob
    shares: tuple[OnNode, ...]
    """Its resources on managed nodes."""

    @property
    def leaves(self) -> Leaving:
        """Its resources, and whether it is exclusive."""
        return self.shares, self.job.exclusive


@dataclass(frozen=True, slots=True)
class Room:
    """A place for a waiting job, and the jobs that have to be stopped before it can start there; none: only time is needed."""

    placement: Placement
    stops: tuple[Candidate, ...]


def room_for(need: Need, free: Capacity, candidates: Sequence[Candidate]) -> Room | None:
    """Return the room that the fewest of the first candidates make; None: not even all of them make room for the whole job.

    `candidates` come in the order in which Slurm stops them. As in Slurm, they are added one by one until the job fits, and of
    these only those on its nodes are stopped. Beyond that, none is stopped without which the job fits on these nodes.
    """
    before = free.usable(need)
    if (placement := free.place(need, before)) is not None:
        return Room(placement, ())
    here = [one for one in candidates if any(need.nodes[share.node] for share in one.shares)]

    departures = Departures.of(one.leaves for one in here)

    def place(number: int) -> Placement | None:
        return departures.after(free, number).place(need, before)

    if place(len(here)) is None:
        return None
    enough = bisect_left(range(len(here) + 1), True, key=lambda number: place(number) is not None)
    placement = place(enough)
    assert placement is not None, "the search ends at a number of stops that makes room"
    nodes = set(placement.nodes)
    stops = [one for one in here[:enough] if any(share.node in nodes for share in one.shares)]
    for one in reversed(list(stops)):
        others = [other for other in stops if other is not one]
        if free.without(other.leaves for other in others).holds(need, placement):
            stops = others
    return Room(placement, tuple(stops))
