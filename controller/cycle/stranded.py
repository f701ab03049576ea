"""Jobs with a relocation constraint under which they can no longer be placed. Pure functions.

A job that is bound to certain nodes waits for room there, like any other. But it must not wait for nodes that are gone: when the
available nodes, all empty, could not run it under its constraint, and could run it without, its constraint is cleared.
"""

from __future__ import annotations

from dataclasses import replace

from controller.observe.observer import Observation
from controller.slurm.client import JobKey
from controller.state.ledger import Ledger
from controller.state.preemption import RelocationConstraint
from policies.placement.requests import Requests

_NAMED = 5


def stranded(observation: Observation, ledger: Ledger) -> dict[JobKey, str]:
    """Return the waiting jobs whose constraints are to be cleared, each with the text for its event."""
    if not observation.sent:
        return {}
    state = observation.state
    there = Requests(state)
    # A job is kept off silent nodes for a limited time only: then it may go there.
    sent = [row for row in observation.sent if observation.rows[row].key not in ledger.kept_off]
    stuck = [row for row in sent if not there.of(row).parts]
    if not stuck:
        return {}
    node_set = state.jobs.node_set.copy()
    node_set[list(observation.sent)] = list(observation.sent.values())
    anywhere = Requests(replace(state, jobs=replace(state.jobs, node_set=node_set)))
    keys = {row: observation.rows[row].key for row in stuck}
    return {
        key: f"may go anywhere again: {_text(ledger.relocations[key])}"
        for row, key in keys.items()
        if anywhere.of(row).parts
    }


def _text(sent: RelocationConstraint) -> str:
    if sent.only:
        return f"it was to run on {_few(sent.only)} only; it does not fit there now"
    return f"it was to keep off {_few(sent.avoid)}; it fits on no others now"


def _few(names: frozenset[str]) -> str:
    listed = sorted(names)
    more = len(listed) - _NAMED
    return ",".join(listed[:_NAMED]) + (f" and {more} more" if more > 0 else "")
