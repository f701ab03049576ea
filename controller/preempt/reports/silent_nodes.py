"""Nodes whose agents are silent, and the stopped jobs that are kept off them. Pure functions.

A job that goes on from a checkpoint needs on its new nodes what it had on the old ones, and an agent that has gone is often the
first sign of a node that is not well. So no job is moved to a node whose agent is silent, while agents are in use. A job
waits no longer than KEPT_OFF_S for that: then it may be placed on any node. An ordinary start does not depend on agents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from controller.slurm.client import JobKey, Phase, SlurmJob
from controller.state.preemption import Preemption, PreemptionMethod, Stage

KEPT_OFF_S = 300.0
"""Time after its stop for which a job is kept off nodes whose agents are silent."""
_NAMED = 5


def silent_nodes(nodes: Iterable[str], connected: Collection[str]) -> frozenset[str]:
    """Return the nodes without a connected agent; none if no agent at all is connected: then agents are not in use."""
    names = frozenset(nodes)
    return names.difference(connected) if names.intersection(connected) else frozenset()


def kept_off(
    jobs: Iterable[SlurmJob], stopped: Mapping[int, Preemption], silent: frozenset[str], now_s: float
) -> dict[JobKey, frozenset[str]]:
    """Return the nodes that each waiting job is kept off, of those that were stopped to go on from a checkpoint.

    `stopped`: open preemptions by Slurm's own number of the job.
    """
    due = {number for number, row in stopped.items() if _is_due(row, now_s)} if silent else set()
    if not due:
        return {}
    return {job.key: silent for job in jobs if job.raw_id in due and job.phase is Phase.PENDING}


def _is_due(row: Preemption, now_s: float) -> bool:
    if row.way is not PreemptionMethod.CHECKPOINT or row.stage is not Stage.STOPPED:
        return False
    return row.stopped_s is None or 0 <= now_s - row.stopped_s < KEPT_OFF_S


def kept_off_text(nodes: Collection[str]) -> str:
    """Return a sentence for `headway why`, without a full stop."""
    names = sorted(nodes)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    agents = "the agent there is silent" if len(names) == 1 else "the agents there are silent"
    return (
        f"it continues from a checkpoint and is kept off {', '.join(names[:_NAMED])}{more} because {agents}; "
        f"{KEPT_OFF_S / 60:g} minutes after its stop it may go there too"
    )
