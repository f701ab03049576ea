"""The report on a job as a message. Pure functions of what `sources` has gathered."""

from __future__ import annotations

from collections.abc import Callable

from controller.admin.explain.cycle_view import CycleView
from controller.admin.explain.explain import state_word
from controller.admin.report.hint import hint_of
from controller.admin.report.runs import runs_of
from controller.admin.report.sources import Sources
from controller.cycle.changes import uncounted_run_s
from controller.observe.role import Role
from controller.slurm.model.job import Phase
from controller.state.preemption import Preemption, Stage
from protos.headway.v1 import admin_pb2

_MOST_STOPS = 50
_JOULES_PER_KWH = 3.6e6

IdOf = Callable[[int], str]
"""Returns the id of the job with that number as the caller may see it; empty where the caller may not."""


def job_report(found: Sources, view: CycleView, id_of: IdOf) -> admin_pb2.JobSummary:
    """Return the report."""
    job, record = found.job, found.run
    message = admin_pb2.JobSummary(
        job_id=found.job_id,
        user=found.user,
        name=job.name if job is not None else record.name if record is not None else "",
        state=_state(found, view),
        slurm_state=job.state if job is not None else record.state if record is not None else "",
        submit_time_s=found.first_submit_s,
        end_time_s=_end_s(found),
        steps=found.steps,
        missing=_missing(found),
    )
    service_s, gpu_s = _usage(found, view)
    message.service_s = service_s
    until_s = message.end_time_s if message.HasField("end_time_s") else found.now_s
    message.wait_s = max(until_s - found.first_submit_s - service_s, 0.0)
    if gpu_s is not None:
        message.gpu_hours = gpu_s / 3600
    if found.energy_j is not None:
        message.energy_kwh = found.energy_j / _JOULES_PER_KWH
    for why, wait_s in sorted(found.waits_s.items(), key=lambda item: -item[1]):
        message.waits.add(why=why, wait_s=wait_s)
    message.runs.extend(runs_of(found, view))
    message.stops.extend(_stop(row) for row in found.stops[-_MOST_STOPS:])
    _add_speed(message, found, id_of)
    message.hint = hint_of(message, found)
    return message


def _state(found: Sources, view: CycleView) -> str:
    if found.job is None:
        return "ended"
    role = view.standing(found.job).role
    return "ended" if found.job.phase is Phase.ENDED and role is Role.FOREIGN else state_word(role)


def _end_s(found: Sources) -> float | None:
    if found.run is not None:
        return found.run.end_time_s
    return found.job.end_time_s if found.job is not None and found.job.phase is Phase.ENDED else None


def _usage(found: Sources, view: CycleView) -> tuple[float, float | None]:
    """Return the time in which the job has run, and the same times its GPUs (None: not known), both in seconds."""
    if found.accounted:
        gpu_s = sum(run.elapsed_s * run.gpus for run in found.accounted)
        return sum(run.elapsed_s for run in found.accounted), gpu_s
    record, job = found.run, found.job
    if record is not None and record.gpu_s is not None:
        return record.service_s, record.gpu_s if record.service_s else None
    if record is not None:
        # A row of an earlier version. An ended job that was resized has had other numbers of GPUs too.
        resized = any(row.constraint.gpus is not None for row in found.stops)
        return record.service_s, None if resized or not record.num_gpus else record.service_s * record.num_gpus
    if job is None:
        return 0.0, None
    served = view.ledger.served.get(job.key)
    ran = job.phase.occupies_nodes or job.phase is Phase.ENDED
    now_s = uncounted_run_s(job, served, found.now_s) if ran else 0.0
    gpu_s = now_s * sum(share.gpus for share in job.allocated)
    if served is None:
        return now_s, gpu_s
    return served.service_s + now_s, served.gpu_s + gpu_s


def _stop(row: Preemption) -> admin_pb2.ReportedStop:
    ready_s = row.saved_s if row.saved_s is not None else row.stopped_s
    again_s = row.resumed_s if row.resumed_s is not None else row.started_s
    cost_s = None if ready_s is None or again_s is None else max(again_s - ready_s, 0.0)
    called_off = "called off: " if row.stage is Stage.CALLED_OFF else ""
    return admin_pb2.ReportedStop(
        number=row.number, cause=row.cause.value, why=row.why, time_s=row.asked_s, step=row.step, cost_s=cost_s,
        problem=f"{called_off}{row.problem}" if row.problem or called_off else "",
    )  # fmt: skip


def _add_speed(message: admin_pb2.JobSummary, found: Sources, id_of: IdOf) -> None:
    speed = found.speed
    if speed is None:
        return
    message.steps_per_s = speed.steps_per_s
    if speed.loss is not None:
        message.contention_loss = speed.loss
    for other in speed.beside:
        message.beside.add(job_id=id_of(other.raw_id), windows=other.windows, loss=other.loss)
    if message.HasField("gpu_hours"):
        message.idle_gpu_hours = speed.idle_share * message.gpu_hours


def _missing(found: Sources) -> list[str]:
    missing = list(found.missing)
    if not found.waits_s:
        missing.append(
            "why it waited is not known: it did not wait while this controller ran, or the notes are too old"
        )
    restarts = 0 if found.job is None else found.job.restarts
    if not found.accounted and restarts > sum(row.stopped_s is not None for row in found.stops):
        missing.append("runs before a requeue by Slurm are not listed: Slurm keeps no accounting that Headway can read")
    return missing
