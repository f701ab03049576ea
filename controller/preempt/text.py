"""Preemptions as text, for events, `headway why` and the log. Pure functions."""

from __future__ import annotations

from controller.base.text import count, duration, without_job_ids
from controller.preempt.preemptibility import Preemptibility
from controller.state.preemption import Cause, EndReason, Preemption, PreemptionMethod, RelocationConstraint, Stage

_BY = {
    Cause.OPERATOR: "an operator",
    Cause.USER: "its user",
    Cause.THRESHOLD: "the contention threshold",
    Cause.POLICY: "the policy",
    Cause.SLURM: "Slurm's rules of preemption",
}


def end_text(reason: EndReason) -> str:
    """Return the text of a reason about which nothing more is known."""
    return {
        EndReason.NOT_NEEDED: "the job for which it was to be stopped no longer waits",
        EndReason.NOT_SAVED: "it did not save",
        EndReason.NOT_STOPPED: "Slurm did not stop it",
        EndReason.JOB_ENDED: "the job ended",
    }[reason]


def event_text(preemption: Preemption) -> str:
    """Return the text for the stage that the preemption has just reached."""
    stage, but = preemption.stage, _but(preemption)
    at, where = at_step(preemption), constraint_text(preemption.constraint)
    again = f" again (attempt {preemption.attempt})" if preemption.attempt > 1 else ""
    texts = {
        Stage.ASKED: f"{_asked(preemption)}{again}, for {_BY[preemption.cause]}: {preemption.why}",
        Stage.SAVED: f"saved{at} and paused; it is requeued next",
        Stage.STOPPED: f"stopped{at}, to be placed again{where}{but}",
        Stage.STARTED: f"runs again{but}" if preemption.open else f"runs again, and is no longer watched{but}",
        Stage.RESUMED: f"trains again{at}, {_took(preemption)} after the request to save{but}",
        Stage.CALLED_OFF: f"called off, so it stays on its nodes: {preemption.problem}",
        Stage.OVER: f"ended: {preemption.problem}",
    }
    return texts[stage]


def stop_text(preemption: Preemption) -> str:
    """Return why the job is stopped, for the job's own log. It names no other job: Slurm may keep jobs private."""
    return f"{_BY[preemption.cause]} ({without_job_ids(preemption.why)}){constraint_text(preemption.constraint)}"


def why_text(preemption: Preemption, now_s: float) -> str:
    """Return a sentence about the newest preemption of a job, with a blank before it."""
    by = f"{_BY[preemption.cause]} ({preemption.why})"
    ago = duration(max(now_s - (preemption.ended_s or preemption.asked_s), 0.0))
    match preemption.stage:
        case Stage.ASKED:
            return f" It is being preempted by {by}: {_asked(preemption)} {ago} ago."
        case Stage.SAVED:
            return f" It is being preempted by {by}: saved{at_step(preemption)}, about to be requeued."
        case Stage.STOPPED:
            return f" It was stopped{at_step(preemption)} by {by}, and is placed again{constraint_text(preemption.constraint)}."
        case Stage.STARTED | Stage.RESUMED:
            took = f"; it took {_took(preemption)} to its next step" if preemption.resumed_s else ""
            return f" It was preempted {ago} ago by {by} and continued{at_step(preemption)}{took}{_but(preemption)}."
        case Stage.CALLED_OFF | Stage.OVER:
            what = "was called off" if preemption.stage is Stage.CALLED_OFF else "ended"
            return f" A preemption by {by} {what} {ago} ago: {preemption.problem}."


def facts_of(preemption: Preemption) -> dict[str, str]:
    """Return the numbers behind that sentence, by name."""
    times = {
        "asked": preemption.asked_s,
        "saved": preemption.saved_s,
        "stopped": preemption.stopped_s,
        "started": preemption.started_s,
        "resumed": preemption.resumed_s,
    }
    return {
        "preemption": str(preemption.number),
        "preemption_stage": preemption.stage.value,
        "preemption_cause": preemption.cause.value,
        "preemption_way": preemption.way.value,
        **({} if preemption.step is None else {"preemption_step": str(preemption.step)}),
        **{f"preemption_{name}_s": f"{time_s:.3f}" for name, time_s in times.items() if time_s is not None},
    }


def forced_text(found: Preemptibility, step: int | None) -> str:
    """Return the text for a job that is stopped although it cannot continue; `step`: steps at its newest checkpoint."""
    return f"by force, although it {found.why_not}: {lost_text(step)}"


def lost_text(step: int | None) -> str:
    """Return the text that says what a job loses when it is stopped before it has saved."""
    return "all work that it has not saved itself is lost" if step is None else f"all work after step {step} is lost"


def at_step(preemption: Preemption) -> str:
    """Return " at step 41"; empty where no step is known."""
    return "" if preemption.step is None else f" at step {preemption.step}"


def constraint_text(constraint: RelocationConstraint) -> str:
    """Return " on n1,n2 with 4 GPUs"; empty without a constraint."""
    only = f" on {','.join(sorted(constraint.only))}" if constraint.only else ""
    avoid = f" on other nodes than {','.join(sorted(constraint.avoid))}" if constraint.avoid else ""
    return f"{only}{avoid}" + (f" with {count(constraint.gpus, 'GPU')}" if constraint.gpus is not None else "")


def _asked(preemption: Preemption) -> str:
    if preemption.way is PreemptionMethod.CHECKPOINT:
        return f"asked to save within {preemption.within_s:g} s"
    if preemption.way is PreemptionMethod.SIGNAL:
        return f"sent USR1, to requeue itself within {preemption.within_s:g} s"
    return "about to be stopped by force"


def _took(preemption: Preemption) -> str:
    return f"{max((preemption.resumed_s or 0.0) - preemption.asked_s, 0.0):.1f} s"


def _but(preemption: Preemption) -> str:
    return f" ({preemption.problem})" if preemption.problem else ""
