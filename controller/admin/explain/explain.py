"""Explains the state of a job: a sentence that a user understands, and the numbers behind it.

Pure functions of one finished cycle (a `CycleView`) and of the journal's record of the job. Nothing here calls Slurm.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.admin.explain.contention_text import contention_facts, pace_text
from controller.admin.explain.cycle_view import CycleView
from controller.admin.explain.waiting import beyond_text, fit_text, need_text, order_text, policy_text, waiting_facts
from controller.base.text import capitalized, clock_time, count, duration, gpu_hours, listed
from controller.cycle.changes import uncounted_run_s
from controller.observe.role import Obstacle, Role, Standing
from controller.observe.user_options import read_user_options, unknown_options_text
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.journal import RunRecord
from controller.state.ledger import UNFIT_S, Refusal

_NO_REASON = frozenset({"", "None"})
_NOT_HELD_YET = (
    "is in Slurm's queue and not held yet; Headway takes it into its own queue next, unless Slurm starts it first"
)
_GPU_MINUTE_S = 60.0
_THROTTLED = "JobArrayTaskLimit"


@dataclass(frozen=True, slots=True)
class Explained:
    """Answer of `headway why`. `facts` has the numbers by name, all as text; the names have the units."""

    job_id: str
    state: str
    sentence: str
    facts: Mapping[str, str] = field(default_factory=dict)
    key: JobKey | None = None
    """The job that the answer is about; None for a whole array."""


@dataclass(frozen=True, slots=True)
class Past:
    """Record of a job in the journal."""

    run: RunRecord | None = None
    """Record of the job's end; None when the journal has none."""
    given_to_slurm: str = ""
    """Why the job was given to Slurm to place; empty when it was not."""


NOTHING_PAST = Past()


def explain(view: CycleView, job_id: str, now_s: float, past: Past = NOTHING_PAST) -> Explained | None:
    """Explain a job, an array task, or a whole array. Returns None for an unknown id."""
    job = view.find(job_id)
    if job is not None:
        return _of_job(view, job, now_s, past)
    tasks = view.tasks(job_id)
    if tasks:
        return _of_array(view, job_id, tasks, now_s)
    return None if past.run is None else of_past_run(past.run, now_s, past.given_to_slurm)


def of_past_run(run: RunRecord, now_s: float, given_to_slurm: str = "") -> Explained:
    """Explain a job that Slurm has forgotten. `given_to_slurm`: why Slurm placed it; empty when Headway did."""
    # Slurm's start of a job that is cancelled while it waits is its end; earlier runs, before a requeue, are in `service_s`
    has_run = run.start_time_s is not None and run.end_time_s > run.start_time_s
    ran = f"after running for {duration(run.service_s)}" if has_run or run.service_s else "without having run"
    on = _resized_place(run) if _is_resized(run) else _past_place(run)
    facts = {
        "user": run.user,
        "name": run.name,
        "slurm_state": run.state,
        "submit_time_s": str(run.key.submit_time_s),
        "end_time_s": f"{run.end_time_s:.12g}",
        "service_s": f"{run.service_s:.0f}",
        "num_gpus": str(run.num_gpus),
        "num_nodes": str(run.num_nodes),
    }
    if run.gpu_s is not None:
        facts["gpu_s"] = f"{run.gpu_s:.0f}"
    ago = duration(now_s - run.end_time_s)
    by = _slurm_placed(given_to_slurm) if has_run else ""
    sentence = f"Ended ({run.state}) {ago} ago {ran}{on}.{by}"
    return Explained(run.key.job_id, "ended", sentence, facts, run.key)


def state_word(role: Role) -> str:
    """Return a role as the Admin service names it."""
    match role:
        case Role.FOREIGN:
            return "unmanaged"
        case Role.ADOPT:
            return Role.YIELDED.value
        case _:
            return str(role.value)


def brief(view: CycleView, job: SlurmJob, found: Standing, now_s: float) -> str:
    """Return one short sentence for a line of the queue. `found` is the job's standing now."""
    match found.role:
        case Role.WAITING:
            row = view.rows[job.key]
            return f"{need_text(view, row)}; {fit_text(view, row)}"
        case Role.STARTING:
            return f"placed by {_by(view, job)}; Slurm starts it"
        case Role.RUNNING:
            return _running_brief(view, job)
        case Role.INELIGIBLE:
            return _obstacle(view, job, found, now_s)
        case Role.ADOPT:
            return f"{_NOT_HELD_YET}{_slurm_says(job)}"
        case _:
            return f"{'no nodes can run it' if job.is_impossible else 'Slurm places it'}{_slurm_says(job)}"


# --- one job


def _of_job(view: CycleView, job: SlurmJob, now_s: float, past: Past) -> Explained:
    found = view.standing(job)
    facts = _common_facts(view, job, now_s)
    match found.role:
        case Role.WAITING:
            sentence = _waiting(view, job, facts)
        case Role.STARTING:
            sentence = _starting(view, job, now_s)
        case Role.RUNNING:
            sentence = _running(view, job, now_s, past.given_to_slurm)
        case Role.INELIGIBLE:
            sentence = f"Cannot be placed yet: {_obstacle(view, job, found, now_s)}."
        case Role.ENDED:
            sentence = _ended(view, job, now_s, past)
        case Role.FOREIGN:
            sentence = f"Slurm schedules it, not Headway: {_out_of_scope(view, job)}{_slurm_says(job)}."
        case Role.ADOPT:
            sentence = f"{capitalized(_NOT_HELD_YET)}{_slurm_says(job)}."
        case _:
            because = f": {past.given_to_slurm}" if past.given_to_slurm else ""
            if job.is_impossible:
                return Explained(job.key.job_id, state_word(found.role), _impossible(job, because), facts, job.key)
            sentence = f"Slurm places it, not Headway{because}{_slurm_says(job)}."
    if found.role not in {Role.FOREIGN, Role.ENDED} and (
        unknown := unknown_options_text(read_user_options(job.comment))
    ):
        sentence = f"{sentence} {unknown}"
    return Explained(job.key.job_id, state_word(found.role), sentence, facts, job.key)


def _waiting(view: CycleView, job: SlurmJob, facts: dict[str, str]) -> str:
    row = view.rows[job.key]
    facts.update(waiting_facts(view, row))
    sentence = f"{capitalized(need_text(view, row))}; {fit_text(view, row)}. {order_text(view, row)}"
    refusal = view.ledger.refusals.get(job.key)
    if refusal is not None and (away := _kept_off(refusal, view.state.time_s)):
        sentence = f"{sentence} It was refused {count(refusal.count, 'time')}{away}."
    decided = view.result.decided
    reason = "" if decided is None else decided.plan.reasons.get(row, "")
    if decided is not None and (room := decided.plan.making_room.get(row)):
        sentence = f"{sentence} {capitalized(room)}."
    elif reason:
        sentence = f"{sentence} The policy's reason: {reason}."
    else:
        sentence = f"{sentence}{beyond_text(view, row)}"
    if decided is not None and (outside := decided.plan.outside):
        facts["outside_trained_range"] = outside
        sentence = f"{sentence} The policy's weights were not trained on such a state: {outside}."
    return sentence


def _starting(view: CycleView, job: SlurmJob, now_s: float) -> str:
    pin = view.pin(job)
    ago = "" if pin is None else f" {duration(now_s - pin.pinned_at_s)} ago"
    because = f" ({pin.reason})" if pin is not None and pin.reason else ""
    says = "" if job.held else _slurm_says(job)
    return f"Placed on {view.placement(job)} by {_by(view, job)}{ago}{because}; Slurm is starting it{says}."


def _running(view: CycleView, job: SlurmJob, now_s: float, given_to_slurm: str) -> str:
    where = view.placement(job)
    match job.phase:
        case Phase.CONFIGURING:
            return (
                f"Starting: Slurm {_prepares(view, job)} {where} for it; placed by {_by(view, job)}"
                f"{_because(view, job, given_to_slurm)}."
            )
        case Phase.COMPLETING:
            again = "; then it is placed again" if _is_requeued(view, job) else ""
            return f"Ending: it still occupies {where}{again}."
        case Phase.SUSPENDED:
            return f"Suspended by Slurm; it keeps its GPUs on {where}."
    since = ""
    if job.start_time_s is not None:
        since = f" since {clock_time(job.start_time_s)} (for {duration(now_s - job.start_time_s)})"
    because = _because(view, job, given_to_slurm)
    return f"Runs on {where}{since}, placed by {_by(view, job)}{because}.{pace_text(view, job)}"


def _prepares(view: CycleView, job: SlurmJob) -> str:
    """Return "boots" while power saving has off, or boots, one of the job's nodes."""
    asleep = {node.name for node in view.result.observation.snapshot.nodes if node.is_asleep}
    return "prepares" if asleep.isdisjoint(share.node for share in job.allocated) else "boots (power saving)"


def _because(view: CycleView, job: SlurmJob, given_to_slurm: str) -> str:
    """Return why this run was placed where it runs: the policy's reason, or why Headway gave it to Slurm; ": ..." or empty."""
    pin = view.pin(job)
    why = given_to_slurm if pin is None else pin.reason
    return f": {why}" if why else ""


def _slurm_placed(given_to_slurm: str) -> str:
    """Return a further sentence on a job that has run where Slurm placed it; empty when Headway did."""
    return f" Slurm placed it, not Headway: {given_to_slurm}." if given_to_slurm else ""


def _impossible(job: SlurmJob, because: str) -> str:
    return (
        "Slurm has put it on hold, because no nodes can ever run it with its present request "
        f"(Slurm: {job.state}, {job.reason}){because}. "
        f"What to do: `scancel {job.key.job_id}`, and submit it with a request that fits the nodes."
    )


def _running_brief(view: CycleView, job: SlurmJob) -> str:
    if job.phase is Phase.COMPLETING:
        return "its run is ending; then it is placed again" if _is_requeued(view, job) else "its run is ending"
    return f"placed by {_by(view, job)}{_because(view, job, '')}"


def _is_requeued(view: CycleView, job: SlurmJob) -> bool:
    """Return whether Slurm has requeued the job while the run that Headway placed is still ending."""
    pin = view.ledger.pins.get(job.key)
    return pin is not None and pin.restarts < job.restarts


def _ended(view: CycleView, job: SlurmJob, now_s: float, past: Past) -> str:
    end_s = now_s if job.end_time_s is None else job.end_time_s
    ended = f"Ended ({job.state}) {duration(now_s - end_s)} ago"
    served = view.ledger.served.get(job.key)
    earlier_s = 0.0 if served is None else served.service_s
    has_run = job.start_time_s is not None and end_s > job.start_time_s
    if not has_run:  # it was cancelled in the queue
        ran = f"after running for {duration(earlier_s)}" if earlier_s else "without having run"
        return f"{ended} {ran}."
    where = view.placement(job)
    on = f" on {where}" if where else _past_place(past.run)
    last = ", last" if on and earlier_s else ""
    ran = f"{ended} after running for {duration(earlier_s + uncounted_run_s(job, served, end_s))}{last}{on}."
    return f"{ran}{_slurm_placed(past.given_to_slurm)}"


def _past_place(run: RunRecord | None) -> str:
    if run is None or not run.num_gpus:
        return ""
    return f" on {count(run.num_gpus, 'GPU')} of {count(run.num_nodes, 'node')}"


def _is_resized(run: RunRecord) -> bool:
    """Return whether the job has run on other numbers of GPUs than that of its last run, by a GPU minute or more."""
    return run.gpu_s is not None and abs(run.gpu_s - run.service_s * run.num_gpus) >= _GPU_MINUTE_S


def _resized_place(run: RunRecord) -> str:
    hours = f" ({gpu_hours((run.gpu_s or 0.0) / 3600.0)})"
    return f"{hours}, last{_past_place(run)}" if run.num_gpus else hours


def _obstacle(view: CycleView, job: SlurmJob, found: Standing, now_s: float) -> str:
    """Return why a job of ours may not be placed yet. Durations count from now, not from the last reading of Slurm."""
    refusal = view.ledger.refusals.get(job.key)
    if refusal is not None and found.obstacle is Obstacle.REFUSAL:
        left_s = refusal.retry_at_s - now_s
        again = f"next attempt in {duration(left_s)}" if left_s > 0 else "the next decision tries again"
        if refusal.like:
            limit = refusal.slurm_reason or refusal.reason
            return f"Slurm would refuse it as it refused job {refusal.like} ({limit}); {again}"
        if refusal.slurm_reason == _THROTTLED:
            return f"as many tasks of its array run as its user allows at once (Slurm: {_THROTTLED}); {again}"
        tries = f", {refusal.count} times so far" if refusal.count > 1 else ""
        return f"it was placed, but not started{tries}: {refusal.reason}; {again}{_kept_off(refusal, now_s)}"
    begin_s = job.eligible_time_s
    if found.obstacle is Obstacle.BEGIN_TIME and begin_s is not None:
        return f"its begin time is {clock_time(begin_s)} (in {duration(begin_s - now_s)})"
    return found.why


def _kept_off(refusal: Refusal, now_s: float) -> str:
    """Return the nodes that the job avoids for now: ", and is not placed on n1 for another 9 min"; empty when there are none."""
    away = sorted(refusal.unfit_nodes(now_s))
    if not away:
        return ""
    return f", and is not placed on {listed(away)} for another {duration(refusal.refused_at_s + UNFIT_S - now_s)}"


def _out_of_scope(view: CycleView, job: SlurmJob) -> str:
    managed = view.partitions
    if not all(name in managed for name in job.partition.split(",")):
        return f"Headway does not manage partition {job.partition} (it manages {', '.join(sorted(managed))})"
    if job.het_job_id is not None:
        return "it is part of a heterogeneous job"
    if not job.batch:
        return "it is interactive (salloc or srun)"
    if job.request.gpus_per_socket and not job.request.has_gpus:
        return "it asks for GPUs by socket (--gpus-per-socket), which only Slurm places"
    if not job.request.has_gpus:
        return "it asks for no GPUs"
    return "it is not among the jobs that Headway schedules"


def _slurm_says(job: SlurmJob) -> str:
    if job.phase is not Phase.PENDING:
        return f" (Slurm: {job.state})"
    return "" if job.reason in _NO_REASON else f" (Slurm: {job.state}, {job.reason})"


def _by(view: CycleView, job: SlurmJob) -> str:
    pin = view.pin(job)
    return "Slurm itself" if pin is None else policy_text(pin.policy)


# --- numbers


def _common_facts(view: CycleView, job: SlurmJob, now_s: float) -> dict[str, str]:
    facts = {
        "user": job.user,
        "name": job.name,
        "partition": job.partition,
        "slurm_state": job.state,
        "slurm_reason": job.reason,
        "submit_time_s": f"{view.first_submit_s(job):.0f}",
        "restarts": str(job.restarts),
        "num_gpus": str(view.num_gpus(job)),
        "snapshot_time_s": f"{view.state.time_s:.3f}",
        "snapshot_sequence": str(view.state.sequence),
        "snapshot_digest": view.digest,
    }
    if job.phase is not Phase.ENDED:
        facts["wait_s"] = f"{view.wait_s(job, now_s):.0f}"
    if job.time_limit_s is not None:
        facts["time_limit_s"] = f"{job.time_limit_s:.0f}"
    if job.start_time_s is not None and job.phase.occupies_nodes:
        facts["start_time_s"] = f"{job.start_time_s:.12g}"
    if job.end_time_s is not None and job.phase is Phase.ENDED:
        facts["end_time_s"] = f"{job.end_time_s:.12g}"
    if placement := view.placement(job):
        facts["placement"] = placement
    pin = view.pin(job)
    if pin is not None:
        facts |= {"placed_by": pin.policy, "placed_time_s": f"{pin.pinned_at_s:.3f}"}
    if job.phase is Phase.RUNNING:
        facts |= contention_facts(view, job)
    refusal = view.ledger.refusals.get(job.key)
    if refusal is not None and job.phase is Phase.PENDING:
        facts |= {
            "refusals": str(refusal.count),
            "refusal_reason": refusal.reason,
            "next_try_in_s": f"{max(refusal.retry_at_s - now_s, 0.0):.0f}",
        }
    return facts


# --- a whole array


def _of_array(view: CycleView, array_id: str, tasks: list[SlurmJob], now_s: float) -> Explained:
    words = Counter(state_word(view.standing(job).role) for job in tasks)
    order = ("running", "starting", "waiting", "yielded", "ineligible", "unmanaged", "ended")
    parts = ", ".join(f"{words[word]} {word}" for word in order if words[word])
    facts = {"tasks": str(len(tasks)), **{f"tasks_{word}": str(words[word]) for word in order if words[word]}}
    sentence = f"An array of {count(len(tasks), 'task')}: {parts}."
    following = _next_task(view, tasks)
    if following is not None:
        facts["next_task"] = following.key.job_id
        detail = _of_job(view, following, now_s, NOTHING_PAST)
        sentence = f"{sentence} Next is {following.key.job_id}: {detail.sentence[:1].lower()}{detail.sentence[1:]}"
    return Explained(array_id, "array", sentence, facts)


def _next_task(view: CycleView, tasks: list[SlurmJob]) -> SlurmJob | None:
    """Return the waiting task that is first in the order, or else the first task that may not be placed yet."""
    waiting = [job for job in tasks if view.standing(job).role is Role.WAITING]
    if waiting:
        return min(waiting, key=lambda job: view.positions.get(view.rows[job.key], math.inf))
    return next((job for job in tasks if view.standing(job).role is Role.INELIGIBLE), None)
