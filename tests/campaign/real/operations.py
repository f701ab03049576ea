"""Operations of users and operators on a real Slurm. Each is the verb of a step; a refusal is no violation."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from controller.admin.protocol import Reason
from controller.cli.client import UNREACHABLE
from tests.campaign.real.model import Expected, Hold, RealPromise
from tests.campaign.real.records import parse_log
from tests.campaign.real.scene import Scene
from tests.campaign.real.story import Submission, submission_of
from tests.campaign.real.world import MANAGED, UNMANAGED, Answer

Operation = Callable[..., None]
_ABLE_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.3
_ATTEMPTS, _AGAIN_AFTER_S = 3, 1.0
_PASSING = (Reason.NOT_PREEMPTIBLE, Reason.NOT_READY)
"""Reasons of a refusal after which an operator tries again: the job runs, but Headway may not know it yet."""


def submit(scene: Scene, **args: Any) -> None:
    """sbatch, by a user."""
    spec = submission_of(args)
    words = _sbatch(scene, spec)
    if words is None:
        return
    begun_s = time.time()
    answer, text = scene.world.user(spec.user, *words, cwd=scene.folder)
    now_s = time.time()
    scene.note(f"submit {spec.label}: {answer.name} {text}")
    if answer is Answer.DONE:
        scene.model.submitted(text.split(";")[0], spec, now_s, begun_s)
    elif now_s > scene.slurm_away_until_s:
        scene.model.broken(RealPromise.SBATCH_WORKS, "", f"{' '.join(words)}: {text}")
    if answer is Answer.UNKNOWN:
        scene.unknown[spec.label] = now_s


def _sbatch(scene: Scene, spec: Submission) -> tuple[str, ...] | None:
    """Return the command line; None if it depends on a job that was not accepted."""
    words = [f"--job-name={scene.job_name(spec.label)}", "--output=/dev/null", "--open-mode=append"]
    words.append(f"--partition={MANAGED if spec.managed else UNMANAGED}")
    if spec.gpus_in_all is None:
        words += [f"--nodes={spec.nodes}", f"--gpus-per-node={spec.gpus_per_node}"]
    else:
        words.append(f"--gpus={spec.gpus_in_all}")
    if spec.array:
        words.append(f"--array=0-{spec.array - 1}" + (f"%{spec.throttle}" if spec.throttle else ""))
    parents = [
        f"{kind}:{ids[0].partition('_')[0]}" for kind, label in spec.after if (ids := scene.model.labels.get(label))
    ]
    if len(parents) < len(spec.after):
        return None
    options = {
        f"--dependency={','.join(parents)}": parents,
        f"--begin=now+{spec.begin_in_s}": spec.begin_in_s,
        "--hold": spec.hold,
        f"--constraint={spec.feature}": spec.feature,
        "--comment=headway=preemptible": spec.saves,
    }
    words += [word for word, wanted in options.items() if wanted]
    words.append("--requeue" if spec.requeue else "--no-requeue")
    yes = {True: "yes", False: "no"}
    job = (str(spec.steps), yes[spec.saves], str(spec.exit_code), yes[spec.ignores_term])
    return ("sbatch", "--parsable", *words, "../job.sh", *job)


def user_hold(scene: Scene, label: int, task: int = 0) -> None:
    """The job's user: scontrol hold."""
    for job in scene.some(label, task):
        answer = _as_user(scene, job, "scontrol", "hold", job.job_id)
        if answer is Answer.DONE and not any(hold.until_s is None for hold in job.holds):
            excused = "the controller stands still" if scene.controller_stands_still else ""
            job.holds.append(Hold(time.time(), late_s=2.0 + 2 * scene.slow_by_s, excused=excused))
        elif answer is Answer.UNKNOWN:
            job.maybe_held = True


def user_release(scene: Scene, label: int, task: int = 0) -> None:
    """The job's user: scontrol release."""
    for job in scene.some(label, task):
        release(scene, job)


def release(scene: Scene, job: Expected) -> None:
    """Release a job as its user does."""
    now_s = time.time()
    answer = _as_user(scene, job, "scontrol", "release", job.job_id)
    if answer is Answer.REFUSED:
        return
    for hold in job.holds:
        hold.until_s = now_s if hold.until_s is None else hold.until_s
    job.maybe_held = answer is Answer.UNKNOWN


def cancel(scene: Scene, label: int, task: int = 0) -> None:
    """The job's user: scancel."""
    for job in scene.some(label, task):
        asked_s = time.time()
        answer = _as_user(scene, job, "scancel", job.job_id)
        if answer is Answer.DONE and job.cancelled_s is None:
            job.cancel_asked_s, job.cancelled_s = asked_s, time.time()
        job.maybe_cancelled |= answer is Answer.UNKNOWN


def requeue(scene: Scene, label: int, task: int = 0) -> None:
    """The job's user: scontrol requeue, of a job that runs."""
    for job in scene.some(label, task):
        if (
            job.job_id in running(scene)
            and _as_user(scene, job, "scontrol", "requeue", job.job_id) is not Answer.REFUSED
        ):
            job.requeues_s.append(time.time())


def preempt(scene: Scene, pick: int, action: str, gpus: int = 0, *, force: bool = False) -> None:
    """Headway preempt, move and resize, of one of the jobs that run, if possible one that has taken steps."""
    able = _wait_for_able(scene, force)
    if not able:
        scene.refuse("not requested: no job runs that can be preempted")
        return
    job = able[pick % len(able)]
    words = [
        action,
        job.job_id,
        *(["--gpus", str(gpus)] if action == "resize" else []),
        *(["--force"] if force else []),
    ]
    for attempt in range(_ATTEMPTS):
        time.sleep(_AGAIN_AFTER_S if attempt else 0.0)
        now_s = time.time()
        done, text = scene.world.operator(*words, "--json")
        refusal, passes = ("", False) if done else refusal_of(text)
        scene.note(f"headway {' '.join(words)}: {done} {text}")
        job.preempted_s.append(now_s)  # also without an answer, it may have been carried out
        if force:
            job.requeues_s.append(now_s)
        if not passes:
            break
    scene.preemptions += done
    if not done:
        scene.refuse(refusal)
    if gpus:
        job.gpus.add(gpus)
        job.resized = True


def refusal_of(output: str) -> tuple[str, bool]:
    """Return the text of a refusal, in the output of a command with --json, and whether another try may succeed."""
    try:
        found, _ = json.JSONDecoder().raw_decode(output[max(output.find("{"), 0) :])
    except ValueError:  # the command has failed without an answer
        return output, False
    return found.get("error", output), found.get("reason") in _PASSING or found.get("exit_code") == UNREACHABLE


def _wait_for_able(scene: Scene, force: bool) -> list[Expected]:
    """Return the jobs that can be preempted, once one has taken a step and the controller answers, or after a few seconds.

    While no job runs or waits that could be preempted, there is nothing to wait for.
    """
    deadline = time.monotonic() + _ABLE_WITHIN_S
    while True:
        states = _queue(scene)
        known = [job for job_id in states or () if (job := scene.model.jobs.get(job_id)) and (force or job.spec.saves)]
        able = [job for job in known if states and states[job.job_id] == "RUNNING"]
        ready = [job for job in able if _has_taken_steps(scene, job)]
        if ready and scene.world.headway.try_ask("status") is not None:
            return ready
        if time.monotonic() > deadline or (states is not None and not able and all(job.held for job in known)):
            return ready or able
        time.sleep(_LOOK_EVERY_S)


def _queue(scene: Scene) -> dict[str, str] | None:
    """Return the state of each job that runs or waits; None while Slurm does not answer."""
    answer, text = scene.world.user(
        None, "squeue", "--noheader", "--array", "--states=RUNNING,PENDING", "--format=%i %T"
    )
    return dict(line.split(" ", 1) for line in text.splitlines()) if answer is Answer.DONE else None


def _has_taken_steps(scene: Scene, job: Expected) -> bool:
    """Return whether the last thing that the job did was a step."""
    log = scene.folder / f"{job.job_id}.log"
    lines = parse_log(log.read_text()) if log.exists() else []
    return bool(lines) and lines[-1].what == "step"


def suspend(scene: Scene, pick: int, seconds: float) -> None:
    """root: scontrol suspend of one of the jobs that run, and `scontrol resume` after a while."""
    found = [job_id for job_id in running(scene) if job_id in scene.model.jobs]
    if found:
        job_id = found[pick % len(found)]
        scene.suspended[job_id] = time.monotonic() + seconds
        _as_root(scene, "scontrol", "suspend", job_id)


def resume_due(scene: Scene, at_s: float) -> None:
    """root: scontrol resume, of the jobs whose time of being suspended is over by then.

    The story does that between its steps: the healer must not wait for slurmctld.
    """
    for job_id in [job_id for job_id, until_s in scene.suspended.items() if until_s <= at_s]:
        del scene.suspended[job_id]
        resume(scene, job_id)


def resume(scene: Scene, job_id: str) -> None:
    """root: scontrol resume."""
    answer = _as_root(scene, "scontrol", "resume", job_id)
    if answer is not Answer.REFUSED:
        scene.model.jobs[job_id].resumed(time.time(), certain=answer is Answer.DONE)


def policy_use(scene: Scene, other: bool) -> None:
    """Headway policy use."""
    address = scene.world.other_address if other else scene.world.headway.policy_address
    scene.note(f"policy use {address}: {scene.world.operator('policy', 'use', address)}")


def reload_settings(scene: Scene, **changes: Any) -> None:
    """systemctl reload headway-controller."""
    scene.world.reload(**changes)


def drain(scene: Scene, node: str) -> None:
    """scontrol update nodename=NODE state=drain."""
    _as_root(scene, "scontrol", "update", f"nodename={node}", "state=drain", "reason=story")


def undrain(scene: Scene, node: str) -> None:
    """scontrol update nodename=NODE state=resume."""
    _as_root(scene, "scontrol", "update", f"nodename={node}", "state=resume")


def partition_down(scene: Scene) -> None:
    """scontrol update partitionname=dl state=down."""
    _as_root(scene, "scontrol", "update", f"partitionname={MANAGED}", "state=down")


def partition_up(scene: Scene) -> None:
    """scontrol update partitionname=dl state=up."""
    _as_root(scene, "scontrol", "update", f"partitionname={MANAGED}", "state=up")


def reconfigure(scene: Scene) -> None:
    """scontrol reconfigure."""
    _as_root(scene, "scontrol", "reconfigure")


def restart_controller(scene: Scene) -> None:
    """systemctl restart headway-controller: it ends with status 0."""
    scene.note("restart the controller")
    with scene.world.healer.lock:
        status = scene.world.end_politely("controller")
        if status not in {None, 0}:
            scene.model.broken(
                RealPromise.NO_BUG,
                "",
                f"the controller ended with status {status} after SIGTERM: {scene.world.last_log('controller')}",
            )
        scene.world.start("controller")


def running(scene: Scene) -> list[str]:
    """Return the jobs that Slurm runs now; empty while it does not answer."""
    answer, text = scene.world.user(None, "squeue", "--noheader", "--states=RUNNING", "--format=%i")
    return text.split() if answer is Answer.DONE else []


def _as_user(scene: Scene, job: Expected, *words: str) -> Answer:
    answer, text = scene.world.user(job.spec.user, *words)
    scene.note(f"{job.spec.user}: {' '.join(words)}: {answer.name} {text}")
    return answer


def _as_root(scene: Scene, *words: str) -> Answer:
    answer, text = scene.world.user(None, *words)
    scene.note(f"root: {' '.join(words)}: {answer.name} {text}")
    return answer


OPERATIONS: dict[str, Operation] = {
    call.__name__: call
    for call in (
        submit, user_hold, user_release, cancel, requeue, suspend, preempt, policy_use, reload_settings, drain, undrain,
        partition_down, partition_up, reconfigure, restart_controller,
    )
}  # fmt: skip
