"""A guard against scattered jobs: one that the agents divide among more nodes than best fit needs is placed by it, or waits.

The agents were trained where a job has four GPUs at most and a node has four. On other clusters they scatter jobs that one node
could have, and these run slowly. No such job waits, so the guard of waiting jobs does not see it. This guard acts outside of the
range of the training alone. It has no memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from policies.api import Decision
from policies.model import ClusterState
from policies.placement.best_fit import Capacity

_REASON = "best fit, because the agents would divide it among more nodes"
_WAITS = "waits for a place on fewer nodes, because the agents would divide it"


def consolidated(state: ClusterState, decision: Decision, started: Iterable[int]) -> Decision:
    """Return the decision without scattered jobs; `started` are the rows that start, in the order of their placing.

    A job stays where the agents placed it if best fit has a place for it now on as many nodes. Jobs with parameter servers always
    stay; a job whose GPUs another one got by best fit is placed by it too.
    """
    capacity = Capacity(state)
    allocation, reasons, first = dict(decision.allocation), dict(decision.reasons), ""
    for row in started:
        chosen = allocation.pop(row)
        best = None if chosen.servers else capacity.place(row)
        is_free = capacity.can_place_again(row, chosen)
        stays = is_free and (bool(chosen.servers) or (best is not None and len(best.nodes) >= len(chosen.nodes)))
        if not stays:
            first = (
                first or f"the agents would divide job {state.jobs.ids[row]} among {len(chosen.nodes)} nodes: best fit"
            )
            reasons[row] = _WAITS if best is None else _REASON
        placed = chosen if stays else best
        if placed is not None:
            capacity.take(row, placed)
            allocation[row] = placed
    return replace(decision, allocation=allocation, reasons=reasons, guard=first) if first else decision
