"""Output of `headway report`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.base.text import count, duration, gpu_hours, shortened, three_digits
from controller.cli.render.terminal import is_narrow, open_console, pairs_of, put, safe_text, table_of, time_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from protos.headway.v1 import admin_pb2

_BESIDE = 3
"""Maximum number of jobs beside it that the line names."""


def show_report(found: admin_pb2.JobSummary) -> None:
    """Print what became of the job: a line for each fact, then its runs and its stops."""
    console = open_console()
    put(console, pairs_of(_lines(console, found), {"hint": "yellow"}))
    if found.runs:
        put(console, safe_text(""), _runs(console, found))
    if found.stops:
        put(console, safe_text(""), _stops(console, found))
    for sentence in found.missing:
        put(console, safe_text(f"note: {sentence}", "bright_black"))


def _lines(console: Console, found: admin_pb2.JobSummary) -> list[tuple[str, str]]:
    ended = f", ended {time_text(console, found.end_time_s)}" if found.HasField("end_time_s") else ""
    state = f"{found.state} ({found.slurm_state})" if found.slurm_state else found.state
    lines = [
        ("job", f"{found.job_id} {found.name} of {found.user}"),
        ("state", f"{state}, submitted {time_text(console, found.submit_time_s)}{ended}"),
        ("waited", _waited(found)),
        ("ran", _ran(found) if _has_run(found) else "not yet"),
    ]
    if _has_run(found) and (found.HasField("steps") or found.HasField("steps_per_s")):
        lines.append(("trained", _trained(found)))
    if found.HasField("contention_loss"):
        lines.append(("contention", _contention(found)))
    if found.HasField("idle_gpu_hours"):
        lines.append(("idle", f"{gpu_hours(found.idle_gpu_hours)} without a process of it on the GPU"))
    if found.HasField("energy_kwh"):
        lines.append(("energy", f"{three_digits(found.energy_kwh)} kWh of its GPUs"))
    if found.hint:
        lines.append(("hint", found.hint))
    return lines


def _has_run(found: admin_pb2.JobSummary) -> bool:
    """Return whether the job has run, or has ended without a run."""
    return found.service_s > 0 or found.HasField("end_time_s")


def _waited(found: admin_pb2.JobSummary) -> str:
    waits = [wait for wait in found.waits if wait.wait_s >= 1]
    if len(waits) == 1:
        return f"{duration(found.wait_s)} {waits[0].why}"
    parts = ", ".join(f"{duration(wait.wait_s)} {wait.why}" for wait in waits)
    return duration(found.wait_s) + (f": {parts}" if parts else "")


def _ran(found: admin_pb2.JobSummary) -> str:
    hours = f", {gpu_hours(found.gpu_hours)}" if found.HasField("gpu_hours") else ""
    stops = sum(stop.HasField("cost_s") for stop in found.stops)
    cost_s = sum(stop.cost_s for stop in found.stops)
    stopped = f"; {count(stops, 'stop')} cost {duration(cost_s)}" if stops else ""
    return f"{duration(found.service_s)}{hours}{stopped}"


def _trained(found: admin_pb2.JobSummary) -> str:
    parts = [f"at least {count(found.steps, 'step')}"] if found.HasField("steps") else []
    if found.HasField("steps_per_s"):
        parts.append(f"{three_digits(found.steps_per_s)} steps/s on average")
    return ", ".join(parts)


def _contention(found: admin_pb2.JobSummary) -> str:
    text = f"it lost {found.contention_loss:.0%} of its speed to jobs beside it"
    named = [
        f"{other.loss:.0%} beside job {other.job_id}" for other in found.beside if other.job_id and other.loss >= 0.01
    ]
    return f"{text} ({', '.join(named[:_BESIDE])})" if named else text


def _runs(console: Console, found: admin_pb2.JobSummary) -> Table:
    table = table_of("STARTED", "RAN", "END", "ON", "BY", "REASON", whole={"STARTED", "RAN", "BY", "END"})
    for run in found.runs:
        ran = ""
        if run.HasField("start_s") and run.HasField("end_s"):
            ran = duration(run.end_s - run.start_s)
            ran = shortened(ran) if is_narrow(console) else ran
        cells = (
            time_text(console, run.start_s) if run.HasField("start_s") else "", ran,
            run.slurm_state or ("" if run.HasField("end_s") else "runs"), run.placement, run.policy, run.reason,
        )  # fmt: skip
        table.add_row(*(safe_text(cell) for cell in cells))
    return table


def _stops(console: Console, found: admin_pb2.JobSummary) -> Table:
    table = table_of("STOPPED", "BY", "STEP", "COST", "WHY", whole={"STOPPED", "BY", "STEP", "COST"})
    for stop in found.stops:
        cells = (
            time_text(console, stop.time_s), stop.cause, str(stop.step) if stop.HasField("step") else "",
            duration(stop.cost_s) if stop.HasField("cost_s") else "",
            f"{stop.why}; {stop.problem}" if stop.problem else stop.why,
        )  # fmt: skip
        table.add_row(*(safe_text(cell) for cell in cells))
    return table
