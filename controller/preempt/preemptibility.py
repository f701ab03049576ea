"""Preemptibility: whether a job can continue after a stop, and by which method. Pure functions.

A job can continue if all its ranks save on request and confirm it; or if its user has declared that it saves and requeues itself
on SIGUSR1, and no agent reports that the signal would end it, or that no process would catch it. No other job is preempted,
unless an operator forces it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain, filterfalse, islice

from controller.base.text import listed
from controller.observe.user_options import read_user_options
from controller.preempt.reports.job_reports import NodeReport
from controller.slurm.model.job import Phase, SlurmJob
from controller.slurm.updates.changes import NO_HOLD_AT_REQUEUE
from controller.state.preemption import Preemption, PreemptionMethod, Stage

_NAMED = 5
"""Maximum number of nodes or ranks that a sentence names."""
_NOT_RUNNING = {
    Phase.PENDING: "does not run",
    Phase.CONFIGURING: "is still starting",
    Phase.COMPLETING: "is ending",
    Phase.SUSPENDED: "is suspended; `scontrol resume` lets it continue",
}


@dataclass(frozen=True, slots=True)
class Preemptibility:
    """Answer for one job: whether it may be preempted, and by which method."""

    way: PreemptionMethod
    """Method by which it would continue; NONE: it cannot."""
    why_not: str = ""
    """Reason against it, as a text that continues "job 12 "; empty: it may be preempted."""
    final: bool = False
    """True if it cannot be preempted by force either."""

    @property
    def may(self) -> bool:
        """True if it may be preempted."""
        return not self.why_not


def preemptibility(
    job: SlurmJob,
    reports: Mapping[str, NodeReport],
    connected: Collection[str],
    under_way: Preemption | None,
    watching: Collection[str] = (),
) -> Preemptibility:
    """Return the preemptibility of a job.

    `reports`: reports about its present run, by node; `connected`: nodes whose agents are connected; `watching`: nodes whose
    agents report the effect of signals.
    """
    final = _never(job, under_way)
    if final:
        return Preemptibility(PreemptionMethod.NONE, final, final=True)
    nodes = [share.node for share in job.allocated]
    silent = [node for node in nodes if node not in connected]
    lacking = _lacking_ranks(reports)
    if not lacking and not silent:
        return Preemptibility(PreemptionMethod.CHECKPOINT)
    if read_user_options(job.comment).preemptible:
        usr1_fails = _why_usr1_fails(reports, nodes, connected, watching)
        return (
            Preemptibility(PreemptionMethod.NONE, usr1_fails) if usr1_fails else Preemptibility(PreemptionMethod.SIGNAL)
        )
    if not lacking:
        return Preemptibility(PreemptionMethod.CHECKPOINT, f"could save, but {_agents(silent)} not connected")
    return Preemptibility(PreemptionMethod.NONE, _no_way(reports, silent, lacking))


def _never(job: SlurmJob, under_way: Preemption | None) -> str:
    """Return the obstacle that also force cannot overcome; empty: there is none."""
    if under_way is not None and under_way.stage in {Stage.ASKED, Stage.SAVED, Stage.STOPPED}:
        return f"is being preempted already ({under_way.stage.value}, by {under_way.cause.value})"
    if job.phase is Phase.ENDED:
        return f"has ended ({job.state})"
    if job.phase is not Phase.RUNNING:
        return _NOT_RUNNING[job.phase]
    return _not_requeued(job)


def _not_requeued(job: SlurmJob) -> str:
    """Return why Slurm would not let the running job wait in the queue; empty: it would."""
    if not job.requeue:
        return "was submitted with --no-requeue: Slurm would not start it again"
    if job.expedited:
        return NO_HOLD_AT_REQUEUE
    if not job.batch or job.het_job_id is not None:
        return "is interactive, or part of a heterogeneous job: Slurm does not requeue it"
    return "has no job number in Slurm by which agents could recognise it" if job.raw_id is None else ""


def _lacking_ranks(reports: Mapping[str, NodeReport]) -> str:
    """Return why the ranks cannot be asked to save; empty: all of them save on request."""
    ranks = {rank for node in reports.values() for rank in node.ranks}
    saving = [rank for node in reports.values() for rank in node.saving]
    sizes = {node.world_size for node in reports.values() if node.world_size is not None}
    if not saving:
        return "no rank has called headway_job.checkpoint"
    if len(sizes) > 1 or len(set(saving)) < len(saving):
        return "several programs train in it, and only one can be asked to save"
    return _missing(ranks, frozenset(saving), max(sizes, default=max(saving) + 1))


def _missing(ranks: Collection[int], saving: Collection[int], size: int) -> str:
    """Return which ranks do not save. `size` is the job's own claim, and may be huge: the ranks up to it are not enumerated."""
    beyond = sorted(rank for rank in ranks if rank >= size and rank not in saving)
    number = size - sum(rank < size for rank in saving) + len(beyond)
    if number == 0:
        return ""
    named = map(str, islice(chain(filterfalse(saving.__contains__, range(size)), beyond), _NAMED))
    ranks_text = f"{'ranks' if number > 1 else 'rank'} {listed(named, _NAMED, number)} of {size}"
    return f"{ranks_text} {'have' if number > 1 else 'has'} not called headway_job.checkpoint"


def _why_usr1_fails(
    reports: Mapping[str, NodeReport], nodes: list[str], connected: Collection[str], watching: Collection[str]
) -> str:
    """Return why USR1 would not requeue it; empty: it would, or agents do not know, and its user has declared it."""
    there = [node for node in nodes if node in connected]
    shown = {node: reports[node].usr1 for node in there if node in reports}
    fatal = [node for node, usr1 in shown.items() if usr1 is not None and usr1.fatal]
    if fatal:
        return (
            f"would be ended by USR1: on {listed(sorted(fatal))}, a process that Slurm started neither catches nor ignores it yet; "
            "put `trap '' USR1` at the top of the batch script, and `env --ignore-signal=USR1` before what srun starts"
        )
    if not shown and there and all(node in watching for node in there):
        return "cannot be sent USR1 yet: its agents have not reported yet whether that would end it; try again in some seconds"
    if len(there) < len(nodes) or not shown or any(usr1 is None or usr1.caught for usr1 in shown.values()):
        return ""
    return "would not react to USR1: no process in it catches the signal (yet), though its comment says headway=preemptible"


def _no_way(reports: Mapping[str, NodeReport], silent: list[str], lacking: str) -> str:
    declared = "and its comment does not contain headway=preemptible"
    if silent and not reports:
        return f"cannot continue after a stop: {_agents(silent)} not connected, so it is not known whether it saves, {declared}"
    if not reports:
        return f"cannot continue after a stop: no process of it has reported to the agent of its node, {declared}"
    also = f" ({_agents(silent)} not connected)" if silent else ""
    return f"cannot continue after a stop: {lacking}{also}, {declared}"


def _agents(nodes: list[str]) -> str:
    return f"the agent{'s' if len(nodes) > 1 else ''} of {listed(sorted(nodes))} {'are' if len(nodes) > 1 else 'is'}"
