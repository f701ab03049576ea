"""One running job that is taken off its nodes to come back: what is recorded of it, and which phase may follow which. Pure.

A preemption goes ASKED, SAVED, STOPPED, STARTED, RESUMED, or ends in CALLED_OFF or OVER. Nothing is stopped before it is SAVED,
unless an operator forces it. The table of preemptions is in the journal, so that a controller that was killed goes on with each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from controller.slurm.client import Phase, SlurmJob

_STILL_RUNNING_S = 60.0
"""A job that Slurm has requeued, as it said, and still shows as it was after so long, was not."""


class Cause(StrEnum):
    """Who wants it."""

    OPERATOR = "operator"
    THRESHOLD = "threshold"
    POLICY = "policy"


class PreemptionMethod(StrEnum):
    """How the job comes back."""

    CHECKPOINT = "checkpoint"
    """Its ranks save when agents ask them, and say when they have."""
    SIGNAL = "signal"
    """It saves and requeues itself on SIGUSR1, as its user has declared."""
    NONE = "none"
    """It cannot, but the operator forces it."""


class Stage(StrEnum):
    """How far a preemption has come."""

    ASKED = "asked"
    """The ranks were asked to save, and train on until they have."""
    SAVED = "saved"
    """All ranks have; they stand still, and the job is about to be requeued."""
    STOPPED = "stopped"
    """Back in the queue, held, to be placed again."""
    STARTED = "started"
    """It runs again."""
    RESUMED = "resumed"
    """It has made a step since. The end, where agents tell of steps; elsewhere STARTED is."""
    CALLED_OFF = "called off"
    """The job was left where it is; `problem` says why. An end."""
    OVER = "over"
    """The job ended before it was stopped, or before it ran again; or it ran again and failed before its first step. An end."""

    @property
    def ended(self) -> bool:
        """Nothing more follows."""
        return self in _ENDS


_ENDS = frozenset({Stage.RESUMED, Stage.CALLED_OFF, Stage.OVER})


@dataclass(frozen=True, slots=True)
class RelocationConstraint:
    """Where and how large a job is to be when it is placed again."""

    avoid: frozenset[str] = frozenset()
    """Nodes that it is kept off, for as long as it can be placed without them in an empty cluster."""
    only: frozenset[str] = frozenset()
    """Nodes that it is to run on; empty: any."""
    gpus: int | None = None
    """GPUs in all; None: as many as before."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """One row of the table. Times in seconds since the Unix epoch, by the controller's clock; None: not come to."""

    number: int
    job_id: str
    """As users name it."""
    raw_id: int
    """As the job's processes know it."""
    submit_time_s: int
    """Of the run that is to be stopped; a requeue gives the job another."""
    restarts: int
    """Of the run that is to be stopped."""
    cause: Cause
    why: str
    """A sentence for people."""
    way: PreemptionMethod
    force: bool
    """Stop it even where it does not save in time."""
    nodes: tuple[str, ...]
    """Of the run that is to be stopped."""
    elsewhere: RelocationConstraint
    within_s: float
    """Seconds from `asked_s` on in which it has to save."""
    stage: Stage
    asked_s: float
    saved_s: float | None = None
    stopped_s: float | None = None
    started_s: float | None = None
    resumed_s: float | None = None
    ended_s: float | None = None
    step: int | None = None
    """Steps done at the checkpoint; None: not told."""
    attempt: int = 0
    """How often its ranks were asked, or its processes signalled."""
    problem: str = ""
    """Why it was called off, or is over; what is lost where it was forced."""

    @property
    def open(self) -> bool:
        """Something may follow. A job of whose steps nobody tells is STARTED in the end."""
        return self.ended_s is None


# --- which phase follows


def moved(preemption: Preemption, stage: Stage, now_s: float, problem: str = "") -> Preemption:
    """The same at another stage, with the time at which it came to it."""
    times = {
        Stage.SAVED: "saved_s",
        Stage.STOPPED: "stopped_s",
        Stage.STARTED: "started_s",
        Stage.RESUMED: "resumed_s",
    }
    changes: dict[str, float] = {times[stage]: now_s} if stage in times else {}
    if stage.ended:
        changes["ended_s"] = now_s
    return replace(preemption, stage=stage, problem=problem or preemption.problem, **changes)  # type: ignore[arg-type]


def left_s(preemption: Preemption, now_s: float) -> float:
    """Seconds that it has left to save (again), by a wall clock that may have been set: never more than it had."""
    since_s = preemption.asked_s if preemption.saved_s is None else preemption.saved_s
    return min(max(since_s + preemption.within_s - now_s, 0.0), preemption.within_s)


def after_look(preemption: Preemption, job: SlurmJob | None, now_s: float) -> Preemption:
    """What has become of it as Slurm shows the job now; None: Slurm knows no such job any more."""
    if job is None or _is_another(preemption, job):
        return _lost(preemption, "Slurm no longer knows the job", now_s)
    if preemption.stage in {Stage.ASKED, Stage.SAVED}:
        preemption = _before_the_stop(preemption, job, now_s)
    elif preemption.stage is Stage.STOPPED:
        since_s = now_s - (preemption.stopped_s or now_s)
        if _runs_on(preemption, job) and since_s > _STILL_RUNNING_S:
            return moved(
                preemption, Stage.CALLED_OFF, now_s, "Slurm shows the job running as if it had not been stopped"
            )
    if preemption.stage is Stage.STOPPED and job.restarts > preemption.restarts and job.phase in _AGAIN:
        return moved(preemption, Stage.STARTED, now_s)
    if preemption.open and preemption.stage in {Stage.STOPPED, Stage.STARTED} and job.phase is Phase.ENDED:
        if preemption.stage is Stage.STARTED and job.state.partition(",")[0] != "COMPLETED":
            problem = f"the job was started again and ended ({job.state}) before its first step"
            return moved(preemption, Stage.OVER, now_s, problem)
        return _lost(preemption, f"the job ended ({job.state})", now_s)
    return preemption


_AGAIN = frozenset({Phase.CONFIGURING, Phase.RUNNING, Phase.SUSPENDED})


def _before_the_stop(preemption: Preemption, job: SlurmJob, now_s: float) -> Preemption:
    """A requeue shows by the count of restarts, whoever ordered it; the end of the run by its state."""
    if job.restarts > preemption.restarts or job.phase is Phase.PENDING:
        return moved(preemption, Stage.STOPPED, now_s)
    if job.phase is not Phase.ENDED:
        return preemption
    instead = (
        "ended instead of coming back" if preemption.way is PreemptionMethod.SIGNAL else "ended before it was stopped"
    )
    return moved(preemption, Stage.OVER, now_s, f"the job {instead} ({job.state})")


def _lost(preemption: Preemption, what: str, now_s: float) -> Preemption:
    """Nothing more will be seen of the job. One that ran again had come back, as far as is known."""
    if preemption.stage is Stage.STARTED:
        return replace(preemption, ended_s=now_s, problem=f"{what} before a step was reported")
    when = "before it ran again" if preemption.stage is Stage.STOPPED else "before it was stopped"
    return moved(preemption, Stage.OVER, now_s, f"{what} {when}")


def _runs_on(preemption: Preemption, job: SlurmJob) -> bool:
    return job.phase is Phase.RUNNING and job.restarts == preemption.restarts


def _is_another(preemption: Preemption, job: SlurmJob) -> bool:
    """Slurm may issue an id again that it has lost. A run keeps its submit time, and a later one counts more restarts."""
    same_run = job.restarts == preemption.restarts and job.key.submit_time_s == preemption.submit_time_s
    return not same_run and job.restarts <= preemption.restarts
