"""Jobs that were sent to certain nodes, or away from some, and can no longer be placed like that. Pure.

A job that is sent somewhere waits there for room, like any other. But it is not to wait for nodes that are gone: when an empty
cluster of the nodes that take jobs now could not hold it where it is sent, and could hold it elsewhere, it may go anywhere.
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
    """Waiting jobs that are to be let go anywhere, each with the words for it."""
    if not observation.sent:
        return {}
    state = observation.state
    there = Requests(state)
    # A job that is kept off silent nodes is so for a bounded time: it may go there when that is over.
    sent = [row for row in observation.sent if observation.rows[row].key not in ledger.kept_off]
    stuck = [row for row in sent if not there.of(row).parts]
    if not stuck:
        return {}
    node_set = state.jobs.node_set.copy()
    node_set[list(observation.sent)] = list(observation.sent.values())
    anywhere = Requests(replace(state, jobs=replace(state.jobs, node_set=node_set)))
    keys = {row: observation.rows[row].key for row in stuck}
    return {
        key: f"may go anywhere again: {_words(ledger.elsewhere[key])}"
        for row, key in keys.items()
        if anywhere.of(row).parts
    }


def _words(sent: RelocationConstraint) -> str:
    if sent.only:
        return f"it was to run on {_few(sent.only)} only; these cannot hold it now"
    return f"it was to keep off {_few(sent.avoid)}; no others can hold it now"


def _few(names: frozenset[str]) -> str:
    listed = sorted(names)
    more = len(listed) - _NAMED
    return ",".join(listed[:_NAMED]) + (f" and {more} more" if more > 0 else "")
