"""One preemption: its record, and which stage may follow which. Pure.

A preemption passes ASKED, SAVED, STOPPED, STARTED and RESUMED, or ends in CALLED_OFF or OVER. No job is stopped before it is
SAVED, unless an operator forces it. The journal has the table of preemptions, so that a restarted controller continues them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from controller.slurm.model.job import JobKey, Phase, SlurmJob

_STILL_RUNNING_S = 60.0
"""A job that Slurm shows unchanged this long after its requeue was not requeued, in seconds."""


class Cause(StrEnum):
    """Origin of a preemption."""

    OPERATOR = "operator"
    USER = "user"
    """The job's own user."""
    THRESHOLD = "threshold"
    POLICY = "policy"
    SLURM = "slurm"
    """Slurm's rules of preemption give its place to another job."""


class PreemptionMethod(StrEnum):
    """How the job saves its work and continues."""

    CHECKPOINT = "checkpoint"
    """Its ranks save at the agents' request, and report when they have."""
    SIGNAL = "signal"
    """It saves and requeues itself on SIGUSR1, as its user has declared."""
    NONE = "none"
    """It cannot save, but the operator forces the preemption."""


class Stage(StrEnum):
    """Stage of a preemption."""

    ASKED = "asked"
    """The ranks were asked to save; they train on until they have."""
    SAVED = "saved"
    """All ranks have saved and wait; the job is about to be requeued."""
    STOPPED = "stopped"
    """The job is back in the queue, held, to be placed again."""
    STARTED = "started"
    """It runs again."""
    RESUMED = "resumed"
    """It has made a training step since its start. An end where agents report steps; without agents, STARTED is the end."""
    CALLED_OFF = "called off"
    """The job was left where it is; `problem` says why. An end."""
    OVER = "over"
    """The job ended before it was stopped, or before it ran again; or it ran again and failed before its first step. An end."""

    @property
    def ended(self) -> bool:
        """True when no other stage follows."""
        return self in _ENDS


class EndReason(StrEnum):
    """Reason for which a preemption was called off, or is over: for programs, as `problem` is for users. Never renamed."""

    NOT_NEEDED = "not needed"
    """The job for which it was to be stopped no longer waits. It would have saved."""
    NOT_SAVED = "not saved"
    """It has not saved in time, or cannot."""
    NOT_STOPPED = "not stopped"
    """It may have saved, but Slurm did not stop it."""
    JOB_ENDED = "job ended"
    """The job ended, or is no longer known, before it was stopped or before it ran again and made a step."""


_ENDS = frozenset({Stage.RESUMED, Stage.CALLED_OFF, Stage.OVER})


@dataclass(frozen=True, slots=True)
class RelocationConstraint:
    """Nodes and number of GPUs for the next placement of a job."""

    avoid: frozenset[str] = frozenset()
    """Nodes to avoid, as long as the job fits on the others in an empty cluster."""
    only: frozenset[str] = frozenset()
    """Nodes that it must run on; empty: any."""
    gpus: int | None = None
    """Total number of GPUs; None: as many as before."""
    user: str = field(default="", compare=False)
    """User of the job; empty: not known. slurmctld may give the id of a lost job to another user's."""

    def allows(self, node: str) -> bool:
        """Return whether the job may be placed on that node."""
        return node not in self.avoid and (not self.only or node in self.only)


@dataclass(frozen=True, slots=True)
class Preemption:
    """One row of the table. Times are Unix times on the controller's clock; None: this stage was not reached."""

    number: int
    job_id: str
    """Job id as users know it."""
    raw_id: int
    """Slurm's own job number, which the job's processes know."""
    submit_time_s: int
    """Submit time of the run that is to be stopped; a requeue gives the job another one."""
    restarts: int
    """Restart count of the run that is to be stopped."""
    cause: Cause
    why: str
    """A sentence for users."""
    way: PreemptionMethod
    force: bool
    """Stop the job even if it does not save in time."""
    nodes: tuple[str, ...]
    """Nodes of the run that is to be stopped."""
    constraint: RelocationConstraint
    within_s: float
    """Time to save, in seconds after `asked_s`."""
    stage: Stage
    asked_s: float
    saved_s: float | None = None
    stopped_s: float | None = None
    started_s: float | None = None
    resumed_s: float | None = None
    ended_s: float | None = None
    step: int | None = None
    """Steps done at the checkpoint; None: not reported."""
    attempt: int = 0
    """How often its ranks were asked to save, or its processes signalled."""
    problem: str = ""
    """Why it was called off or is over; after a forced stop, what is lost."""
    cluster: str = ""
    """The job's cluster, as in `JobKey`."""
    reason: EndReason | None = None
    """Set with the stages CALLED_OFF and OVER; None at the others, and for rows of earlier versions."""

    @property
    def key(self) -> JobKey:
        """Key of the run that is to be stopped."""
        return JobKey(self.job_id, self.submit_time_s, self.cluster)

    @property
    def open(self) -> bool:
        """True while another stage may follow. A job whose steps are not reported ends at STARTED."""
        return self.ended_s is None


# --- which phase follows


def moved(
    preemption: Preemption, stage: Stage, now_s: float, problem: str = "", reason: EndReason | None = None
) -> Preemption:
    """Return the preemption at another stage, with the time at which it reached it."""
    times = {
        Stage.SAVED: "saved_s",
        Stage.STOPPED: "stopped_s",
        Stage.STARTED: "started_s",
        Stage.RESUMED: "resumed_s",
    }
    changes: dict[str, float] = {times[stage]: now_s} if stage in times else {}
    if stage.ended:
        changes["ended_s"] = now_s
    problem = problem or preemption.problem
    return replace(preemption, stage=stage, problem=problem, reason=reason, **changes)  # type: ignore[arg-type]


def left_s(preemption: Preemption, now_s: float) -> float:
    """Return the seconds left for saving: never below 0, and never more than it had, even when a clock was set."""
    since_s = preemption.asked_s if preemption.saved_s is None else preemption.saved_s
    return min(max(since_s + preemption.within_s - now_s, 0.0), preemption.within_s)


def after_snapshot(preemption: Preemption, job: SlurmJob | None, now_s: float) -> Preemption:
    """Return the preemption as Slurm shows the job now; None: Slurm does not know the job any more."""
    if job is None or _is_another(preemption, job):
        return _lost(preemption, "Slurm no longer knows the job", now_s)
    if preemption.stage in {Stage.ASKED, Stage.SAVED}:
        preemption = _before_the_stop(preemption, job, now_s)
    elif preemption.stage is Stage.STOPPED:
        since_s = now_s - (preemption.stopped_s or now_s)
        if _runs_on(preemption, job) and since_s > _STILL_RUNNING_S:
            problem = "Slurm shows the job running as if it had not been stopped"
            return moved(preemption, Stage.CALLED_OFF, now_s, problem, EndReason.NOT_STOPPED)
    again = preemption.stage is Stage.STOPPED and job.restarts > preemption.restarts
    if again and job.phase in _AGAIN:
        return moved(preemption, Stage.STARTED, now_s)
    if again and _has_run(job):  # it was started again, and ended, between two snapshots
        preemption = moved(preemption, Stage.STARTED, now_s)
    if preemption.open and preemption.stage in {Stage.STOPPED, Stage.STARTED} and job.phase is Phase.ENDED:
        if preemption.stage is Stage.STARTED and job.state.partition(",")[0] != "COMPLETED":
            problem = f"the job was started again and ended ({job.state}) before its first step"
            return moved(preemption, Stage.OVER, now_s, problem, EndReason.JOB_ENDED)
        return _lost(preemption, f"the job ended ({job.state})", now_s)
    return preemption


_AGAIN = frozenset({Phase.CONFIGURING, Phase.RUNNING, Phase.SUSPENDED})


def _has_run(job: SlurmJob) -> bool:
    """Return whether a requeued job has ended after another run. One cancelled in the queue has no nodes, and no run time."""
    if job.phase is not Phase.ENDED:
        return False
    start_s, end_s = job.start_time_s, job.end_time_s
    return bool(job.allocated) or (start_s is not None and end_s is not None and start_s < end_s)


def _before_the_stop(preemption: Preemption, job: SlurmJob, now_s: float) -> Preemption:
    """Return the preemption as seen before its stop. A requeue shows by the restart count, the end of the run by its state."""
    if job.restarts > preemption.restarts or job.phase is Phase.PENDING:
        return moved(preemption, Stage.STOPPED, now_s)
    if job.phase is not Phase.ENDED:
        return preemption
    instead = (
        "ended instead of continuing" if preemption.way is PreemptionMethod.SIGNAL else "ended before it was stopped"
    )
    return moved(preemption, Stage.OVER, now_s, f"the job {instead} ({job.state})", EndReason.JOB_ENDED)


def _lost(preemption: Preemption, what: str, now_s: float) -> Preemption:
    """End a preemption whose job is gone. A job that ran again counts as having continued."""
    if preemption.stage is Stage.STARTED:
        return replace(preemption, ended_s=now_s, problem=f"{what} before a step was reported")
    when = "before it ran again" if preemption.stage is Stage.STOPPED else "before it was stopped"
    return moved(preemption, Stage.OVER, now_s, f"{what} {when}", EndReason.JOB_ENDED)


def _runs_on(preemption: Preemption, job: SlurmJob) -> bool:
    return job.phase is Phase.RUNNING and job.restarts == preemption.restarts


def _is_another(preemption: Preemption, job: SlurmJob) -> bool:
    """Return whether Slurm has given the id to another job. A run keeps its submit time; later runs count more restarts."""
    same_run = job.restarts == preemption.restarts and job.key.submit_time_s == preemption.submit_time_s
    return not same_run and job.restarts <= preemption.restarts
