"""Jobs with a relocation constraint that no longer holds: under which they can no longer be placed, or in a size that their users
no longer allow. Pure functions.

A job that is bound to certain nodes waits until they are free. But it must not wait for nodes that are gone: when the
available nodes, all empty, could not run it under its constraint, and could run it without, its constraint is cleared.
"""

from __future__ import annotations

from dataclasses import replace

from controller.base.apart import apart
from controller.base.text import listed
from controller.observe.observer import Observation
from controller.observe.resize import ResizeError, resized
from controller.observe.role import Role
from controller.observe.user_options import UserOptions, read_user_options
from controller.slurm.model.job import JobKey, ResourceRequest
from controller.state.ledger import Ledger
from controller.state.preemption import RelocationConstraint
from policies.placement.requests import Requests

_WAIT = frozenset({Role.ADOPT, Role.WAITING, Role.INELIGIBLE})
"""Roles of jobs that wait: not of those that were placed and have not started, which may show the size already."""


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
    # A constraint may be gone since the observation: a preemption was called off, or a resize has ended it.
    return {
        key: f"may go anywhere again: {_text(ledger.relocations[key])}"
        for row, key in keys.items()
        if key in ledger.relocations and anywhere.of(row).parts
    }


def beyond_limits(observation: Observation, ledger: Ledger) -> dict[JobKey, int | None]:
    """Return the waiting jobs that were given a number of GPUs which their users have ruled out since, each with the nearest number
    that is possible now; None: its own."""
    found: dict[JobKey, int | None] = {}
    for key, given in ledger.relocations.items():
        job = observation.jobs.get(key)
        if given.gpus is None or job is None or observation.standings[key].role not in _WAIT:
            continue
        with apart("sizes of jobs", key.job_id):
            options = read_user_options(job.comment)
            if not options.allows(given.gpus):
                found[key] = _nearest(ledger.originals.get(key, job.request), given.gpus, options, observation)
    return found


def _nearest(own: ResourceRequest, gpus: int, options: UserOptions, observation: Observation) -> int | None:
    nearest = max(gpus, options.min_gpus or gpus)
    nearest = min(nearest, options.max_gpus or nearest)
    nodes = observation.state.nodes.gpus
    try:
        resized(own, nearest, node_gpus=int(nodes.max(initial=0)), all_gpus=int(nodes.sum()), options=options)
    except ResizeError:
        return None
    return nearest


def _text(sent: RelocationConstraint) -> str:
    if sent.only:
        return f"it had to run only on {listed(sorted(sent.only))}, where it does not fit now"
    return f"it had to avoid {listed(sorted(sent.avoid))}, and fits on no other nodes now"
