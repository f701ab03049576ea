"""Released jobs that Slurm does not start: the meaning of Slurm's reason, and the next step. Pure functions.

A refused job is held again and waits, for longer after every refusal. If the nodes may be the reason, it is placed on other
nodes for a while, and after some refusals of that kind Slurm places it, so that no job waits for ever for nodes that only look
free. These refusals are counted by themselves: a job that waited long for a limit does not have to wait as long for nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.base.text import listed
from controller.observe.observer import Observation
from controller.observe.role import LAST_RETRY_S, Role
from controller.slurm.client import JobKey
from controller.state.ledger import Ledger, Refusal
from policies.serving.runtime.tasks.backoff import Backoff

MOST_PLACES = 4
"""Number of refusals on nodes that looked free after which Slurm places the job."""
_RETRY = Backoff(first_s=5.0, longest_s=LAST_RETRY_S)
"""Pause before a refused job is placed again."""
_NO_ROOM = frozenset({"", "None", "Priority", "Resources"})
_NODES_AWAY = ("ReqNodeNotAvail", "Nodes required", "Nodes_required")
_STILL_DECIDING = _NO_ROOM | {"BeginTime", "JobHeldAdmin", "JobHeldUser", "Cleaning"}
"""Reasons of a released job that Slurm may still start; with every other reason Slurm does not start it for now."""
_NEVER = frozenset({"DependencyNeverSatisfied"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """Assessment of a released job that has not started."""

    why: str
    """Reason, as text for users."""
    blames_nodes: bool = False
    """True if the nodes may be the reason, so that the job may start on others."""
    never: bool = False
    """True if it will start on no nodes."""
    slurm_reason: str = ""
    """Slurm's own word for the reason; empty when the job only waits."""


def overdue(observation: Observation, ledger: Ledger, grace_s: float) -> dict[JobKey, Verdict]:
    """Return the released jobs that Slurm does not start: refused outright, or waiting for longer than the grace."""
    late = {}
    now_s = observation.snapshot.time_s
    patience = Backoff(grace_s, LAST_RETRY_S)
    for job in observation.with_role(Role.STARTING):
        pin = ledger.pins.get(job.key)
        if pin is None:
            continue  # its pin was undone in this cycle, because its user holds it
        waited_s = now_s - pin.pinned_at_s
        refusal = ledger.refusals.get(job.key)
        # With a long queue Slurm may consider a job seldom, so each attempt that it did not consider in time makes the next one
        # wait longer. A wait below zero: the clock was set back.
        patience_s = patience.pause_s(refusal.places if refusal else 0)
        reason = job.reason.split(",")[0]
        why, slurm_reason = "", ""
        if waited_s > patience_s or waited_s < -grace_s:
            why = f"Slurm did not start it within {patience_s:g} s ({job.reason or 'no reason given'})"
        elif reason not in _STILL_DECIDING and waited_s > 0.5:
            why, slurm_reason = f"Slurm refuses it: {job.reason}", job.reason
        if why:
            blames_nodes = reason in _NO_ROOM or reason.startswith(_NODES_AWAY)
            late[job.key] = Verdict(why, blames_nodes and waited_s >= 0, reason in _NEVER, slurm_reason)
    return late


def refused_again(
    before: Refusal | None,
    why: str,
    now_s: float,
    unfit: tuple[str, ...] = (),
    *,
    blames_nodes: bool = False,
    slurm_reason: str = "",
) -> Refusal:
    """Return the refusal of a job that Slurm has refused once more; `unfit`: the nodes, if they may be the reason."""
    count = before.count + 1 if before else 1
    places = (before.places if before else 0) + blames_nodes
    known = before.unfit_nodes(now_s) if before else frozenset()
    return Refusal(
        reason=why,
        refused_at_s=now_s,
        retry_at_s=now_s + _RETRY.pause_s((places if blames_nodes else count) - 1),
        count=count,
        unfit=",".join(sorted(known | set(unfit))),
        places=places,
        slurm_reason=slurm_reason,
    )


def hopeless(verdicts: Mapping[JobKey, Verdict], ledger: Ledger) -> dict[JobKey, str]:
    """Return the jobs that Slurm is to place, of those that were refused in this cycle and are held again, and why."""
    found = {}
    for key, verdict in verdicts.items():
        refusal = ledger.refusals.get(key)
        if refusal is None or key in ledger.pins:
            continue  # it could not be held: the next cycle considers it again
        if verdict.never:
            found[key] = verdict.why
        elif refusal.places >= MOST_PLACES:
            found[key] = (
                f"it was placed {refusal.places} times on nodes that looked free ({listed(refusal.unfit.split(','))}), "
                f"and Slurm did not start it; the last time: {verdict.why}"
            )
    return found
