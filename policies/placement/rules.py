"""Placement rules: the nodes of one job, by the free GPUs.

Every policy here that does not say otherwise uses `BEST_FIT`, the consolidated best fit of `policies.placement.best_fit`. The
others let a job start on scattered GPUs, where it runs slower but waits less. They place jobs whose GPUs may be divided
in any way (`Split.ANY`) and that share nodes; where such a rule finds no placement that the job allows, consolidated best fit
decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from policies.model import ClusterState, Placement, Split
from policies.placement.best_fit import Capacity, Fit, explain, placement_of
from policies.placement.dividing import evenly, in_order
from policies.placement.placement_text import nodes_text
from policies.rule import Layout


@dataclass(frozen=True)
class PlacementRule:
    """A placement rule. Invariant: whether a job fits depends only on its class (`Requests.keys`) and on what is free."""

    name: str
    place: Callable[[Capacity, int], Placement | None]
    """Returns where the job of that row would go now; None when it does not fit. Takes nothing."""
    taken: Callable[[int, Placement], None] | None = None
    """Called for every job that starts, where a rule depends on more than free GPUs."""

    def take(self, capacity: Capacity, row: int, placement: Placement) -> Fit:
        """Let the job of that row occupy these GPUs. Returns the fit."""
        fit = capacity.fit(placement)
        capacity.take(row, placement)
        if self.taken is not None:
            self.taken(row, placement)
        return fit

    def claim(self, capacity: Capacity, rows: Iterable[int], *, strict: bool = False) -> dict[int, Fit]:
        """Place these jobs one after the other, each taking what it gets; those that do not fit are left out.

        With `strict`, the first that does not fit is the last that is tried.
        """
        if self is BEST_FIT:
            return capacity.claim(rows, strict=strict)
        keys = capacity.requests.keys
        failed: set[int] = set()
        fits: dict[int, Fit] = {}
        for row in rows:
            placement = None if keys[row] in failed else self.place(capacity, row)
            if placement is not None:
                fits[row] = self.take(capacity, row, placement)
                continue
            failed.add(keys[row])
            if strict:
                break
        return fits

    def explain(self, state: ClusterState, fit: Fit) -> str:
        """Return a short reason for a placement."""
        if self is BEST_FIT or (self is ANYWHERE and len(fit) == 1):
            return explain(state, fit)
        placement = placement_of(fit)
        return f"{self.name}: {placement.num_gpus} GPUs on {nodes_text(state, placement)}"


def _best_fit(capacity: Capacity, row: int) -> Placement | None:
    return capacity.place(row)


def _anywhere(capacity: Capacity, row: int) -> Placement | None:
    placement = capacity.place(row)
    return freest(capacity, row) if placement is None else placement


def freest(capacity: Capacity, row: int) -> Placement | None:
    """Return all that the freest node has, then all of the next, until the job has enough; lowest index on ties.

    As many GPUs are left for later nodes as the job's least number of nodes asks for. A job that wants equal shares takes
    them from the freest nodes, on as few as will do; one of fixed shares is placed by consolidated best fit or not at all.
    """
    jobs = capacity.state.jobs
    gpus, low, high = int(jobs.num_gpus[row]), int(jobs.min_nodes[row]), int(jobs.max_nodes[row])
    split = jobs.split[row]
    if split == Split.FIXED or capacity.total_free() < gpus:
        return None
    if split == Split.EVEN:
        rooms = list(capacity.rooms(row))
        counts = (count for count in range(low, min(high, gpus, len(rooms)) + 1) if gpus % count == 0)
        shares = next(evenly(rooms, gpus, counts), None)
    else:
        shares = in_order(capacity.rooms(row), gpus, low, high)
    return None if shares is None else Placement.of(shares)


BEST_FIT = PlacementRule("best fit", _best_fit)
"""Consolidated best fit; a job waits until it can be placed like this."""
ANYWHERE = PlacementRule("spread", _anywhere)
"""Consolidated best fit; where there is none, the freest nodes."""


def placement_rule(layout: Layout) -> PlacementRule:
    """Return the rule of that layout."""
    return ANYWHERE if layout == Layout.ANYWHERE else BEST_FIT
