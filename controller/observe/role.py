"""Roles of jobs: those that Headway schedules, and those that may be placed now. Pure functions of one job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from controller.slurm.configuration.requeue_delay import DEFAULT_S
from controller.slurm.model.job import IMPOSSIBLE, Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from controller.state.ledger import Ledger, Refusal


class Role(Enum):
    """Treatment of a job by Headway."""

    FOREIGN = "foreign"
    """A job that Headway does not schedule: it only occupies nodes."""
    ADOPT = "adopt"
    """A job of ours that is pending and that Slurm may start: it is held first."""
    WAITING = "waiting"
    """Held by Headway, to be placed by the policy."""
    INELIGIBLE = "ineligible"
    """A job of ours that may not be placed yet: a dependency, a begin time, a user's hold, a refusal."""
    YIELDED = "yielded"
    """Given to Slurm to place."""
    STARTING = "starting"
    """Placed and released: Slurm is about to start it."""
    RUNNING = "running"
    """Has an allocation."""
    STRAY = "stray"
    """Held or pinned by Headway, but no longer to be placed by Headway: given back to Slurm at once."""
    ENDED = "ended"


class Obstacle(Enum):
    """Obstacle to placing an ineligible job. What depends on it compares these, and not `Standing.why`, which is for users."""

    OTHER = "other"
    """No obstacle, or one of which only `Standing.why` says more: Slurm has to place the job."""
    REFUSAL = "refusal"
    """It was placed, or would have been, and Slurm refused it: it is tried again later."""
    BEGIN_TIME = "begin time"
    """Its user wants it to start later."""
    DEPENDENCY = "dependency"
    """It waits for other jobs."""
    USER_HOLD = "user hold"
    OPERATOR_HOLD = "operator hold"
    OTHER_HOLD = "other hold"
    """Held by neither of the two, nor by Headway: by Slurm itself, or since a requeue."""
    ARRAY_THROTTLE = "array throttle"
    """As many tasks of its array run, or may be placed now, as its user allows at once."""
    SETTLING = "settling"
    """It was requeued less than a second ago."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Role of a job now, and the reason as text for users."""

    role: Role
    why: str = ""
    obstacle: Obstacle = Obstacle.OTHER


_FOREIGN = Standing(Role.FOREIGN)
_ENDED = Standing(Role.ENDED)
_RUNNING = Standing(Role.RUNNING)
WAITING = Standing(Role.WAITING)
"""Standing of a job with no obstacle."""
_HELD_BY_USER = Standing(
    Role.INELIGIBLE, "held by its user; `scontrol release` gives it back to the queue", Obstacle.USER_HOLD
)
_LOST_RESERVATION = Standing(
    Role.INELIGIBLE,
    "held by Slurm since its reservation has ended (RESV_DEL_HOLD); `scontrol release` gives it back to the queue, without the "
    "reservation",
    Obstacle.OTHER_HOLD,
)
_STARTING = Standing(Role.STARTING)
_ADOPT = Standing(Role.ADOPT)
_STRAY = Standing(Role.STRAY, "is no longer among the jobs that Headway schedules")
_REFUSED = Standing(Role.STRAY, f"Slurm cannot run it on the nodes that Headway chose ({IMPOSSIBLE})")
_IMPOSSIBLE = Standing(Role.YIELDED, f"Slurm says that no nodes can run it with its request ({IMPOSSIBLE})")
_EXPEDITED = Standing(Role.YIELDED, "Slurm starts it again at once (--requeue=expedite)")
_EXPEDITED_OURS = Standing(Role.STRAY, _EXPEDITED.why)
"""The same, while it still has the nodes that Headway chose for its last run, one of which may have failed."""
_TOO_LATE = Standing(Role.STRAY, "could not end before its deadline (--deadline) any more, so Slurm ends it")
_SLURM_SEES_S = 2.0
"""Time after the latest start at which a job is given to Slurm, seconds: slurmctld then ends the job, and does not start it."""

SETTLING = Standing(
    Role.INELIGIBLE, "was put back into the queue just now; Slurm would not let it start again yet", Obstacle.SETTLING
)
"""Standing of a job that was just requeued; it may be placed in a second."""
SETTLING_S = 1.0
"""Seconds after a requeue within which the job is not placed again.

Nodes refuse a run whose credential was made in the same second in which Slurm ended the run before, and the job then FAILS for
good ("Job credential revoked"). On 22.05, five of six jobs that were released at once had failed by their third requeue, and none
of 150 that waited for the second to end. Both seconds are of slurmctld's clock, which is ours.
"""
_BEYOND_REQUEUE_S = 60.0
"""Time from the latest begin time that a requeue sets to the earliest that counts as a user's, seconds. In between, it may be
Slurm's: it sets the two times of a requeued job in separate steps."""
_CLOCKS_DIFFER_S = 60.0
_ROUNDED_S = 1.0

LAST_RETRY_S = 300.0
"""Longest pause before another attempt to start a job, seconds."""


def in_scope(job: SlurmJob, partitions: frozenset[str]) -> bool:
    """Return whether Headway schedules the job: a batch job with GPUs, all of whose partitions are managed.

    Het jobs, salloc and srun pass through untouched.
    """
    return (
        job.request.has_gpus
        and job.batch
        and job.het_job_id is None
        and (job.partition in partitions or all(name in partitions for name in job.partition.split(",")))
    )


def lasting_standing(job: SlurmJob, partitions: frozenset[str]) -> Standing | None:
    """Return the standing that a job has while Slurm shows it unchanged, without refusals; None if it depends on more."""
    if job.phase is Phase.ENDED:
        return _ENDED
    if not in_scope(job, partitions):
        return None if job.phase is Phase.PENDING else _FOREIGN
    if job.phase.occupies_nodes:
        return _RUNNING
    if not job.held or job.is_impossible:
        return None
    return _held(job, may_begin=job.eligible_time_s is None and job.restarts == 0 and job.latest_start_s is None)


def standing(
    job: SlurmJob, partitions: frozenset[str], ledger: Ledger, now_s: float, requeue_delay_s: float = DEFAULT_S
) -> Standing:
    """Return the standing of the job now. The jobs on which it depends are not considered: `Dependencies` checks them.

    `requeue_delay_s`: longest time by which Slurm delays the begin of a requeued job.
    """
    lasting = lasting_standing(job, partitions)
    if lasting is not None and lasting.role is not Role.WAITING:
        return lasting
    if not in_scope(job, partitions):
        return _outside(job, ledger)
    if job.held:
        return _impossible(job, ledger) if job.is_impossible else _waiting(job, ledger, now_s, requeue_delay_s)
    return _released(job, ledger)


def _released(job: SlurmJob, ledger: Ledger) -> Standing:
    """Return the standing of a pending job that Slurm may start."""
    pin = ledger.pins.get(job.key)
    if pin is not None and pin.restarts == job.restarts:
        return _STARTING
    if job.is_restarted_by_slurm:
        return _EXPEDITED_OURS if _lacks_own_request(job, ledger) else _EXPEDITED
    if ledger.yielded.get(job.key) == job.restarts:
        return Standing(Role.YIELDED, "given to Slurm to place")
    return _ADOPT


def _outside(job: SlurmJob, ledger: Ledger) -> Standing:
    """Return the standing of a pending job that Headway does not schedule, or no longer since a change of the job or a reload."""
    if job.held:
        refused = job.is_impossible and _is_ours(job, ledger)
        return _STRAY if refused or job.marks == {HOLD_MARK} else _FOREIGN
    return _ADOPT if _lacks_own_request(job, ledger) else _FOREIGN


def _held(job: SlurmJob, *, may_begin: bool) -> Standing | None:
    if job.has_lost_reservation:
        return _LOST_RESERVATION
    if USER_HOLD_MARK in job.marks:
        return _HELD_BY_USER
    if HOLD_MARK not in job.marks:
        return _held_by_others(job)
    return WAITING if may_begin else None


def _held_by_others(job: SlurmJob) -> Standing:
    match job.reason:
        case "JobHeldUser":
            return _HELD_BY_USER
        case "JobHeldAdmin":
            why = "held by an operator (JobHeldAdmin), not by Headway; an operator can release it"
            return Standing(Role.INELIGIBLE, why, Obstacle.OPERATOR_HOLD)
        case "job_requeued_in_held_state":
            why = f"held since it was requeued ({job.reason}), not by Headway; `scontrol release` gives it back to the queue"
        case _:
            why = f"held outside Headway ({job.reason}); `scontrol release` gives it back to the queue"
    return Standing(Role.INELIGIBLE, why, Obstacle.OTHER_HOLD)


def _impossible(job: SlurmJob, ledger: Ledger) -> Standing:
    """Return the standing of a job that Slurm itself has put on hold. While it has a request by Headway, its own is restored
    first.

    Slurm does not consider a job that is held. One with the mark of a user's hold was released by its user since, and refused
    before Headway saw it, with the request that Headway wrote.
    """
    if USER_HOLD_MARK in job.marks:
        return _ADOPT if _lacks_own_request(job, ledger) else _HELD_BY_USER
    return _REFUSED if _is_ours(job, ledger) else _IMPOSSIBLE


def _is_ours(job: SlurmJob, ledger: Ledger) -> bool:
    """Return whether a job on hold has a request that Headway wrote, or a mark of ours that is not from its user."""
    if USER_HOLD_MARK in job.marks:
        return False
    return job.has_pin_mark or HOLD_MARK in job.marks or _lacks_own_request(job, ledger)


def _lacks_own_request(job: SlurmJob, ledger: Ledger) -> bool:
    """Return whether Slurm may have a request by Headway. A job that was given to Slurm has its own."""
    return job.key in ledger.originals and ledger.yielded.get(job.key) != job.restarts


def _is_true(refusal: Refusal, now_s: float) -> bool:
    """Return whether the times of a refusal are plausible; `now_s` may be some seconds before it, from the start of the cycle.

    A refusal further in the future is from before the clock was set back, and a pause above the maximum is not ours.
    """
    pause_s = refusal.retry_at_s - refusal.refused_at_s
    return refusal.refused_at_s <= now_s + _CLOCKS_DIFFER_S and pause_s <= LAST_RETRY_S + _ROUNDED_S


def _begin_time_s(job: SlurmJob, requeue_delay_s: float) -> float | None:
    """Return the begin time that the job's user wants, or wanted; None when there is none.

    A requeue sets the begin time too, some minutes after the end of the run, which is then the submit time. A later time is the
    user's, given since.
    """
    begin_s = job.eligible_time_s
    if begin_s is None or job.restarts == 0:
        return begin_s
    return begin_s if begin_s > job.key.submit_time_s + requeue_delay_s + _BEYOND_REQUEUE_S else None


def _waiting(job: SlurmJob, ledger: Ledger, now_s: float, requeue_delay_s: float) -> Standing:
    # The submit time of a requeued job is the time at which its last task ended.
    if job.restarts > 0 and -_CLOCKS_DIFFER_S < now_s - job.key.submit_time_s < SETTLING_S:
        return SETTLING
    if job.latest_start_s is not None and now_s > job.latest_start_s + _SLURM_SEES_S:
        return _TOO_LATE
    begin_s = _begin_time_s(job, requeue_delay_s)
    if begin_s is not None and begin_s > now_s:
        why = f"its begin time is in {begin_s - now_s:.0f} s"
        return Standing(Role.INELIGIBLE, why, Obstacle.BEGIN_TIME)
    refusal = ledger.refusals.get(job.key)
    if refusal is not None and now_s < refusal.retry_at_s and _is_true(refusal, now_s):
        why = f"was not started: {refusal.reason}; next attempt in {refusal.retry_at_s - now_s:.0f} s"
        return Standing(Role.INELIGIBLE, why, Obstacle.REFUSAL)
    return WAITING
