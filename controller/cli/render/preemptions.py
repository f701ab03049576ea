"""Output of `headway preempt` and `headway preemptions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from controller.base.text import clock_time, count
from controller.cli.render.terminal import open_console, put, safe_text, table_of, table_of_lines, time_text

if TYPE_CHECKING:
    from protos.headway.v1 import admin_pb2

_ALL_COLUMNS = 140
"""Width of a terminal, in columns, from which all columns have room."""
_NOT_IF_SHORT = frozenset({"WAY", "STEP", "OFF", "TO"})
_WIDTHS = {"OFF": 16, "TO": 16}
"""Maximum widths on a terminal."""
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
    """Print one line for each preemption. On a terminal, long texts are cut to its width; a narrow one has fewer columns."""
    console = open_console()
    if not found.preemptions:
        put(console, safe_text("No preemptions."))
        return
    short = console.is_terminal and console.width < _ALL_COLUMNS
    columns = [name for name in _CELLS if name not in _NOT_IF_SHORT] if short else list(_CELLS)
    table = table_of_lines(*columns, widths=_WIDTHS) if console.is_terminal else table_of(*columns)
    for one in found.preemptions:
        cells = {name: _CELLS[name](one) for name in columns} | {"ASKED": time_text(console, one.asked_s)}
        if short and one.problem:
            cells["WHY"] = one.problem  # the line has no room for both, and this one says how it ended
        table.add_row(
            *(safe_text(cell, _COLOURS.get(cell, "") if name == "STAGE" else "") for name, cell in cells.items())
        )
    put(console, table)
    if found.more:
        put(console, safe_text("There are more; --limit 0 shows all"))


def _to(one: admin_pb2.PreemptionRecord) -> str:
    """Return where the job may go, and its GPUs from then on; empty without a restriction."""
    to = ",".join(one.only) or (f"not {','.join(one.avoid)}" if one.avoid else "")
    return " ".join(filter(None, (to, count(one.gpus, "GPU") if one.HasField("gpus") else "")))


def _took(one: admin_pb2.PreemptionRecord) -> str:
    """Return the time from the request to the first step of the new run."""
    return f"{one.resumed_s - one.asked_s:.1f} s" if one.HasField("resumed_s") else ""


_CELLS: dict[str, Callable[[admin_pb2.PreemptionRecord], str]] = {
    "NUMBER": lambda one: str(one.number),
    "JOB": lambda one: one.job_id,
    "ASKED": lambda one: clock_time(one.asked_s),
    "BY": lambda one: one.cause,
    "WAY": lambda one: one.way,
    "STAGE": lambda one: one.stage,
    "STEP": lambda one: str(one.step) if one.HasField("step") else "",
    "TOOK": _took,
    "OFF": lambda one: ",".join(one.nodes),
    "TO": _to,
    "WHY": lambda one: f"{one.why}; {one.problem}" if one.problem else one.why,
}
"""Heading → text of each column."""
