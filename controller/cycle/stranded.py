"""Jobs with a relocation constraint under which they can no longer be placed. Pure functions.

A job that is bound to certain nodes waits until they are free. But it must not wait for nodes that are gone: when the
available nodes, all empty, could not run it under its constraint, and could run it without, its constraint is cleared.
"""

from __future__ import annotations

from dataclasses import replace

from controller.base.text import listed
from controller.observe.observer import Observation
from controller.slurm.client import JobKey
from controller.state.ledger import Ledger
from controller.state.preemption import RelocationConstraint
from policies.placement.requests import Requests


def stranded(observation: Observation, ledger: Ledger) -> dict[JobKey, str]:
    """Return the waiting jobs whose constraints are to be cleared, each with the text for its event."""
    if not observation.node_sets_without_constraint:
        return {}
    state = observation.state
    there = Requests(state)
    # A job avoids silent nodes only for a limited time.
    sent = [row for row in observation.node_sets_without_constraint if observation.rows[row].key not in ledger.kept_off]
    stuck = [row for row in sent if not there.of(row).parts]
    if not stuck:
        return {}
    node_set = state.jobs.node_set.copy()
    node_set[list(observation.node_sets_without_constraint)] = list(observation.node_sets_without_constraint.values())
    anywhere = Requests(replace(state, jobs=replace(state.jobs, node_set=node_set)))
    keys = {row: observation.rows[row].key for row in stuck}
    return {
        key: f"may go anywhere again: {_text(ledger.relocations[key])}"
        for row, key in keys.items()
        if anywhere.of(row).parts
    }


def _text(sent: RelocationConstraint) -> str:
    if sent.only:
        return f"it had to run only on {listed(sorted(sent.only))}, where it does not fit now"
    return f"it had to avoid {listed(sorted(sent.avoid))}, and fits on no other nodes now"
