"""Nodes whose agents are silent, and the stopped jobs that avoid them. Pure functions.

A job that continues from a checkpoint needs the same environment on its new nodes as on the old ones, and a silent agent is often
the first sign of a fault of a node. So no job is moved to a node whose agent is silent, while agents are in use. A job
avoids these nodes for at most KEPT_OFF_S; then it may be placed on any node. An ordinary start does not depend on agents. Nodes
that power saving has off are silent without a fault: no running job is moved there, but a stopped job may boot them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from controller.base.text import listed
from controller.slurm.model.job import JobKey, Phase, SlurmJob

KEPT_OFF_S = 300.0
"""Time after its stop for which a job avoids nodes whose agents are silent, seconds."""


def silent_nodes(nodes: Iterable[str], connected: Collection[str]) -> frozenset[str]:
    """Return the nodes without a connected agent; none if no agent at all is connected, because agents are then not in use."""
    names = frozenset(nodes)
    return names.difference(connected) if names.intersection(connected) else frozenset()


def kept_off(
    jobs: Iterable[SlurmJob], just_stopped: Collection[int], silent: frozenset[str]
) -> dict[JobKey, frozenset[str]]:
    """Return the nodes to avoid for each waiting job that was just stopped and continues from a checkpoint.

    `just_stopped`: these jobs by Slurm's own number.
    """
    if not silent or not just_stopped:
        return {}
    return {job.key: silent for job in jobs if job.raw_id in just_stopped and job.phase is Phase.PENDING}


def kept_off_text(nodes: Collection[str]) -> str:
    """Return a sentence for `headway why`, without a full stop."""
    names = sorted(nodes)
    agents = "the agent there is not connected" if len(names) == 1 else "the agents there are not connected"
    return (
        f"it continues from a checkpoint and is not placed on {listed(names)} because {agents}; "
        f"{KEPT_OFF_S / 60:g} minutes after its stop it may be placed there too"
    )
