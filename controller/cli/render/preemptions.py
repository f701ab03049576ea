"""Output of `headway preempt` and `headway preemptions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.base.text import clock_time, count
from controller.cli.render.terminal import open_console, put, safe_text, table_of

if TYPE_CHECKING:
    from protos.headway.v1 import admin_pb2

_COLOURS = {
    "asked": "yellow",
    "saved": "cyan",
    "stopped": "cyan",
    "started": "green",
    "resumed": "green",
    "called off": "red",
    "over": "magenta",
}


def show_stage(found: admin_pb2.PreemptionRecord) -> None:
    """Print one line about the present stage."""
    line = safe_text(f"Preemption {found.number} of job {found.job_id}: ")
    line.append_text(safe_text(found.stage, _COLOURS.get(found.stage, "")))
    line.append_text(safe_text(_detail(found)))
    put(open_console(), line)


def show_budget(found: admin_pb2.PreemptionRecord) -> None:
    """Print how many more changes the caller may request; nothing for callers without a limit."""
    if found.HasField("user_changes_left"):
        left = count(found.user_changes_left, "more change")
        put(open_console(), safe_text(f"You may request {left} of your own jobs within this hour."))


def _detail(found: admin_pb2.PreemptionRecord) -> str:
    step = f" at step {found.step}" if found.HasField("step") else ""
    problem = f" ({found.problem})" if found.problem else ""
    match found.stage:
        case "asked" if found.way == "checkpoint":
            return f" to save, within {found.within_s:g} s{problem}"
        case "asked" if found.way == "signal":
            return f" by USR1 to requeue itself, within {found.within_s:g} s{problem}"
        case "resumed":
            return f"{step}, {found.resumed_s - found.asked_s:.1f} s after the request to save{problem}"
        case "called off":
            return f": {found.problem}; the job stays on its nodes"
        case _:
            return f"{step}{problem}"


def show_preemptions(found: admin_pb2.PreemptionList) -> None:
    """Print one line for each preemption."""
    console = open_console()
    if not found.preemptions:
        put(console, safe_text("No preemptions."))
        return
    table = table_of("NUMBER", "JOB", "ASKED", "BY", "WAY", "STAGE", "STEP", "TOOK", "OFF", "TO", "WHY")
    for one in found.preemptions:
        to = ",".join(one.only) or (f"not {','.join(one.avoid)}" if one.avoid else "")
        gpus = count(one.gpus, "GPU") if one.HasField("gpus") else ""
        cells = (
            str(one.number), one.job_id, clock_time(one.asked_s), one.cause, one.way, one.stage,
            str(one.step) if one.HasField("step") else "", _took(one), ",".join(one.nodes), " ".join(filter(None, (to, gpus))),
            f"{one.why}; {one.problem}" if one.problem else one.why,
        )  # fmt: skip
        table.add_row(*(safe_text(cell, _COLOURS.get(cell, "") if cell == one.stage else "") for cell in cells))
    put(console, table)
    if found.more:
        put(console, safe_text("There are more; --limit 0 shows all"))


def _took(one: admin_pb2.PreemptionRecord) -> str:
    """Return the time from the request to the first step of the new run."""
    return f"{one.resumed_s - one.asked_s:.1f} s" if one.HasField("resumed_s") else ""
