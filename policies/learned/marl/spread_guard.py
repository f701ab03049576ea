"""A guard against scattered jobs: one that the agents put on more nodes than best fit does, or on emptier ones, is placed by it.

The agents were trained where a job has four GPUs at most and a node has four. On other clusters they scatter jobs that one node
could have, and these run slowly. And they spread small jobs over empty nodes; where such jobs last for days, jobs of whole nodes
wait for as long, and no rule can help them then, because running jobs go on. No job waits at first, so the guard of waiting jobs
does not see it. This guard acts outside of the range of the training alone. It has no memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from policies.api import Decision
from policies.model import ClusterState, Placement
from policies.placement.best_fit import Capacity

_WAITS = "waits for a place on fewer nodes, because the agents would divide it"


def consolidated(state: ClusterState, decision: Decision, started: Iterable[int]) -> Decision:
    """Return the decision without scattered jobs; `started` are the rows that start, in the order of their placing.

    A job stays where the agents placed it if best fit has a place for it now on as many nodes, and on none that are fuller. Jobs
    with parameter servers always stay; a job whose GPUs another one got by best fit is placed by it too.
    """
    capacity = Capacity(state)
    allocation, reasons, first = dict(decision.allocation), dict(decision.reasons), ""
    for row in started:
        chosen = allocation.pop(row)
        best = None if chosen.servers else capacity.place(row)
        is_free = capacity.can_place_again(row, chosen)
        stays = is_free and (bool(chosen.servers) or (best is not None and _is_as_full(capacity, chosen, best)))
        if not stays:
            first = first or _text(state, row, chosen, best)
            reasons[row] = _WAITS if best is None else _text(state, row, chosen, best)
        placed = chosen if stays else best
        if placed is not None:
            capacity.take(row, placed)
            allocation[row] = placed
    return replace(decision, allocation=allocation, reasons=reasons, guard=first) if first else decision


def _is_as_full(capacity: Capacity, chosen: Placement, best: Placement) -> bool:
    """Return whether the chosen nodes are as few, and leave as few other GPUs free, as those of best fit."""
    free = [sum(map(capacity.free_gpus, placement.nodes)) for placement in (chosen, best)]
    return len(chosen.nodes) <= len(best.nodes) and free[0] <= free[1]


def _text(state: ClusterState, row: int, chosen: Placement, best: Placement | None) -> str:
    name, count = state.jobs.ids[row], len(chosen.nodes)
    if best is None or len(best.nodes) < count:
        return f"the agents would divide job {name} among {count} nodes: best fit"
    return f"the agents would take emptier nodes for job {name} than it needs: best fit"
