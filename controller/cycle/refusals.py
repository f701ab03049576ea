"""Released jobs that Slurm does not start: the meaning of Slurm's reason, and the next step. Pure functions.

A refused job is held again and waits, for longer after every refusal. If the nodes may be the reason, it is placed on other
nodes for a while, and after some refusals of that kind Slurm places it, so that no job waits for ever for nodes that only look
free. Refusals are counted by their kind: a job that waited long for a limit does not have to wait as long for nodes.

Behind a job that waits for nodes, Slurm gives every job of the same partition the reason Priority, whatever its nodes are like
(observed on 22.05: also a job that is bound to a node without free cores has it). Only backfill looks further, at the first jobs
of the queue, and it starts those that do not delay the jobs before them. So Priority says nothing about the nodes. The next
attempt is made on other nodes, because Slurm may keep these for the job before, but they are not blamed. Slurm places the job
after more than an hour of such attempts: each of them puts it at the end of Slurm's queue, where it might wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from controller.base.apart import apart
from controller.base.text import listed
from controller.observe.observer import Observation
from controller.observe.role import LAST_RETRY_S, Role
from controller.slurm.model.cluster import SlurmNode
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.ledger import NODES_AWAY, NOT_BOOTED, Ledger, PinRecord, Refusal
from policies.serving.runtime.tasks.backoff import Backoff

MOST_PLACES = 4
"""Number of refusals on nodes that looked free after which Slurm places the job."""
_RETRY = Backoff(first_s=5.0, longest_s=LAST_RETRY_S)
"""Pause before a refused job is placed again."""
MOST_BEHIND = 12
"""Number of refusals behind other jobs of Slurm's queue after which Slurm places the job."""
FREE_SHORT_RUNS = 2
"""Number of runs in a row that may be requeued right after their start before the job has to wait: its user may ask for that."""
_NOT_TRIED = frozenset({"", "None", "Priority"})
"""Reasons of a job that Slurm has not considered yet, or that comes after others: they say nothing about the nodes."""
_NO_ROOM = "Resources"
_STILL_DECIDING = _NOT_TRIED | {_NO_ROOM, "BeginTime", "JobHeldAdmin", "JobHeldUser", "Cleaning"}
"""Reasons of a released job that Slurm may still start; with every other reason Slurm does not start it for now."""
_NEVER = frozenset({"DependencyNeverSatisfied"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """Assessment of a released job that has not started."""

    why: str
    """Reason, as text for users."""
    blames_nodes: bool = False
    """True if the nodes may be the reason, so that the job may start on others."""
    behind: bool = False
    """True if other jobs of Slurm's queue come first, which says nothing about the nodes."""
    never: bool = False
    """True if it will start on no nodes."""
    slurm_reason: str = ""
    """Slurm's own word for the reason; empty when the job only waits."""


def overdue(observation: Observation, ledger: Ledger, grace_s: float) -> dict[JobKey, Verdict]:
    """Return the released jobs that Slurm does not start: refused outright, or waiting for longer than the grace."""
    late = {}
    for job in observation.with_role(Role.STARTING):
        pin = ledger.pins.get(job.key)
        if pin is None:
            continue  # its pin was undone in this cycle, because its user holds it
        with apart("placed jobs", job.key.job_id):
            verdict = _verdict(job, pin, ledger.refusals.get(job.key), observation.snapshot.time_s, grace_s)
            if verdict is not None:
                late[job.key] = verdict
    return late


def _verdict(job: SlurmJob, pin: PinRecord, refusal: Refusal | None, now_s: float, grace_s: float) -> Verdict | None:
    """Return the assessment of a released job that Slurm does not start; None while it may still start it."""
    waited_s = now_s - pin.pinned_at_s
    reason = job.reason.split(",")[0]
    # With a long queue Slurm may consider a job seldom, so each attempt that it did not consider in time makes the next one
    # wait longer, unless Slurm has considered this one by now. A wait below zero: the clock was set back.
    unseen = 0 if refusal is None or reason == _NO_ROOM else refusal.behind
    patience_s = Backoff(grace_s, LAST_RETRY_S).pause_s(refusal.places + unseen if refusal else 0) + pin.frees_s
    # Slurm shows this reason while it has tried only those partitions of the job that do not have these nodes, and while it
    # stops other jobs there.
    may_be_free = (pin.frees_s > 0 or "," in job.partition) and reason.startswith(NODES_AWAY)
    still_deciding = reason in _STILL_DECIDING or may_be_free
    why, slurm_reason = "", ""
    if waited_s > patience_s or waited_s < -grace_s:
        why = f"Slurm did not start it within {patience_s:g} s ({job.reason or 'no reason given'})"
    elif not still_deciding and waited_s > 0.5:
        why, slurm_reason = f"Slurm refuses it: {job.reason}", job.reason
    if not why:
        return None
    return Verdict(
        why,
        blames_nodes=waited_s >= 0 and (reason == _NO_ROOM or reason.startswith(NODES_AWAY)),
        behind=waited_s >= 0 and reason in _NOT_TRIED,
        never=reason in _NEVER,
        slurm_reason=slurm_reason,
    )


def refused_again(before: Refusal | None, verdict: Verdict, now_s: float, nodes: tuple[str, ...]) -> Refusal:
    """Return the refusal of a job that Slurm has refused once more on these nodes; `nodes` is empty if they are not known."""
    count, places, behind, woken, tried, known = 1, 0, 0, 0, frozenset[str](), frozenset[str]()
    if before is not None:
        count, places, behind, woken = before.count + 1, before.places, before.behind, before.woken
        known = before.unfit_nodes(now_s)
        tried = frozenset(before.tried.split(",")) - {""}
    here = frozenset(nodes)
    places += verdict.blames_nodes and bool(nodes)
    behind += verdict.behind
    of_its_kind = places if verdict.blames_nodes else behind if verdict.behind else count - woken
    if verdict.behind:
        # On nodes that were tried before, the job was placed again because there were no others.
        tried = here if here & tried else here | tried
    return Refusal(
        reason=verdict.why,
        refused_at_s=now_s,
        retry_at_s=now_s + _RETRY.pause_s(of_its_kind - 1),
        count=count,
        unfit=",".join(sorted(known | here if verdict.blames_nodes else known)),
        places=places,
        slurm_reason=verdict.slurm_reason,
        behind=behind,
        tried=",".join(sorted(tried)),
        woken=woken,
    )


def requeued_at_once(short_runs: int, now_s: float) -> Refusal | None:
    """Return a pause for a job that Slurm puts back into the queue right after each start; None for the first few times.

    Such a job would otherwise start every second for ever, where Slurm itself would let it wait for two minutes after each requeue.
    """
    more = short_runs - FREE_SHORT_RUNS
    if more <= 0:
        return None
    return Refusal(
        reason=f"Slurm requeued it right after its start, {short_runs} times in a row; PrologSlurmctld or Prolog may fail, see "
        "the logs of slurmctld and of its nodes",
        refused_at_s=now_s,
        retry_at_s=now_s + _RETRY.pause_s(more - 1),
        count=more,
    )


def nodes_not_booted(former: SlurmJob, nodes: Iterable[SlurmNode]) -> dict[str, str]:
    """Return the nodes that Slurm tried to boot for the job before its requeue, and that are down or off now, each with Slurm's
    reason."""
    if former.phase is not Phase.CONFIGURING:
        return {}
    down = {node.name: node.reason for node in nodes if not node.available or node.is_off}
    return {share.node: down[share.node] for share in former.allocated if share.node in down}


def after_requeue(
    pause: Refusal | None, before: Refusal | None, not_booted: Mapping[str, str], now_s: float
) -> Refusal | None:
    """Return the refusal of a job that Slurm has requeued; None if there is none.

    It keeps the job off the nodes that have not booted for it, where it fits on others: the site may set such a node to power down
    at once, and it would be the first choice again. `pause`: for a job whose runs end at their start, again and again. `before`:
    refusal of the job until now.
    """
    known = set(before.unfit.split(",")) if before is not None and before.is_for_boot else set[str]()
    if not not_booted:
        # A requeue may be seen in two steps. The first one has seen the nodes.
        return before if before is not None and known and before.unfit_nodes(now_s) else pause
    names = listed(sorted(not_booted))
    why = next(filter(None, not_booted.values()), "")
    return Refusal(
        reason=f"{names} did not boot for it{f' (Slurm: {why})' if why else ''}",
        refused_at_s=now_s,
        retry_at_s=now_s if pause is None else pause.retry_at_s,
        count=1 if before is None else before.count + 1,
        unfit=",".join(sorted(known | not_booted.keys())),
        slurm_reason=NOT_BOOTED,
    )


def retry_now(refusal: Refusal, now_s: float) -> Refusal:
    """Return the refusal of a job that is tried again at once, because another job has ended whose limit it may share.

    Slurm may still count the ended job, or give its share to another one. So the pause after this attempt is short again:
    otherwise every end that does not help would double it, and the job would wait for minutes after the end that does.
    """
    return replace(refusal, retry_at_s=now_s, woken=refusal.count)


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
        elif refusal.behind >= MOST_BEHIND:
            found[key] = (
                f"{refusal.behind} times other jobs of Slurm's queue came before it; the last time: {verdict.why}"
            )
    return found
