"""Output of `headway queue` and `headway why`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from controller.base.fact_text import shown_fact
from controller.base.start_text import past_of_all, start_range
from controller.base.step_text import steps_phrase, steps_short
from controller.base.text import clock_time, duration, shortened
from controller.cli.render.terminal import (
    is_narrow,
    open_console,
    pairs_of,
    put,
    safe_text,
    show_rest,
    table_of,
    table_of_lines,
    time_text,
)  # fmt: skip

if TYPE_CHECKING:
    from protos.headway.v1 import admin_pb2

STATE_COLOURS = {
    "waiting": "yellow",
    "starting": "cyan",
    "running": "green",
    "ineligible": "bright_black",
    "yielded": "magenta",
    "unmanaged": "magenta",
}


_WIDTHS = {"USER": 8, "NAME": 12, "PLACEMENT": 20}
_NARROW_WIDTHS = {"USER": 8, "NAME": 8}
"""Maximum widths on a terminal."""


def show_queue(queue: admin_pb2.Queue, limit: int, now_s: float) -> None:
    """Print one line for each job; at most `limit` of them (0: all). On a terminal, long texts are cut to its width.

    Estimates of starts have a column where there are any, and a line below the table on how many earlier ones held. On a narrow
    terminal they are in the last column.
    """
    console = open_console()
    if not queue.entries:
        put(console, safe_text("No jobs."))
        return
    narrow = is_narrow(console)
    shown = queue.entries[:limit] if limit else queue.entries
    starts = [entry.start for entry in shown if entry.HasField("start")]
    estimated = bool(starts) and not narrow
    last = ("WHERE OR WHY",) if narrow else ("PLACEMENT", "WHY")
    columns = ("JOB", "USER", "NAME", "STATE", "GPUS", "WAIT", *(("STARTS IN",) if estimated else ()), *last)
    table = (
        table_of_lines(*columns, widths=_NARROW_WIDTHS if narrow else _WIDTHS)
        if console.is_terminal
        else table_of(*columns)
    )
    for entry in shown:
        wait = duration(entry.wait_s)
        table.add_row(
            safe_text(entry.job_id),
            safe_text(entry.user),
            safe_text(entry.name[:24]),
            safe_text(entry.state, STATE_COLOURS.get(entry.state, "")),
            safe_text(str(entry.num_gpus)),
            safe_text(shortened(wait) if narrow else wait),
            *((safe_text(starts_in(entry, now_s)),) if estimated else ()),
            *map(safe_text, (where_or_why(entry, now_s),) if narrow else (entry.placement, _with_steps(entry))),
        )
    put(console, table)
    show_rest(console, len(queue.entries) - len(shown))
    if past := past_of_all((start.held, start.known, start.stand_in) for start in starts):
        put(console, safe_text(past, "bright_black"))


def where_or_why(entry: admin_pb2.QueueEntry, now_s: float) -> str:
    """Return the placement of a job, behind what it has done of its steps where that is known.

    Without a placement: its estimated start, and the phrase, not the sentence, on what it waits for.
    """
    if entry.placement:
        return f"{steps_short(*_steps(entry))}; {entry.placement}" if entry.HasField("steps") else entry.placement
    why = entry.waits_for or entry.why
    return f"starts in {shortened(starts_in(entry, now_s))}; {why}" if entry.HasField("start") else why


def place_and_steps(entry: admin_pb2.QueueEntry) -> str:
    """Return the placement of a job, behind its steps where these are known; without a placement, why it has none."""
    if entry.placement and entry.HasField("steps"):
        return f"{steps_phrase(*_steps(entry))}; {entry.placement}"
    return entry.placement or entry.why


def _with_steps(entry: admin_pb2.QueueEntry) -> str:
    """Return the sentence on the job, behind its steps where these are known."""
    return f"{steps_phrase(*_steps(entry))}; {entry.why}" if entry.HasField("steps") else entry.why


def _steps(entry: admin_pb2.QueueEntry) -> tuple[int, int | None]:
    return entry.steps, entry.steps_in_all if entry.HasField("steps_in_all") else None


def starts_in(entry: admin_pb2.QueueEntry, now_s: float) -> str:
    """Return when a waiting job will start, as a range of time from now: "12 min - 2 h 5 min"; empty without an estimate."""
    return start_range(entry.start.earliest_s, entry.start.latest_s, now_s) if entry.HasField("start") else ""


def show_explanation(found: admin_pb2.Explanation) -> None:
    """Print the explanation, the numbers, and the decisions on the job."""
    console = open_console()
    put(console, safe_text(f"Job {found.job_id} ({found.state}): {found.sentence}"))
    facts = shown_facts(found.facts)
    if facts:
        put(console, safe_text(""), pairs_of(facts, {}))
    if found.decisions:
        table = table_of("DECIDED", "BY", "PLACEMENT", "REASON", whole={"DECIDED", "BY"})
        for record in found.decisions:
            cells = (time_text(console, record.time_s), record.policy, record.placement, record.reason)
            table.add_row(*(safe_text(cell) for cell in cells))
        put(console, safe_text(""), table)


def shown_facts(facts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names and values of `why` as people read them: times of day, durations in words. JSON has the numbers."""
    found = (shown_fact(name, facts[name]) for name in sorted(facts))
    return [(fact.label, fact.text if fact.time_s is None else _clock(fact.time_s)) for fact in found if fact]


def _clock(time_s: float) -> str:
    try:
        return clock_time(time_s)
    except (ValueError, OverflowError, OSError):
        return f"{time_s:g}"  # no year of the calendar
