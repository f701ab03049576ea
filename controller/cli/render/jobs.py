"""Output of `headway queue` and `headway why`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.base.text import clock_time, duration
from controller.cli.render.terminal import open_console, pairs_of, put, safe_text, show_rest, table_of

if TYPE_CHECKING:
    from protos.headway.v1 import admin_pb2

_STATE_COLOURS = {
    "waiting": "yellow",
    "starting": "cyan",
    "running": "green",
    "ineligible": "bright_black",
    "yielded": "magenta",
    "unmanaged": "magenta",
}


def show_queue(queue: admin_pb2.Queue, limit: int) -> None:
    """Print one line for each job; at most `limit` of them (0: all)."""
    console = open_console()
    if not queue.entries:
        put(console, safe_text("No jobs."))
        return
    table = table_of("JOB", "USER", "NAME", "STATE", "GPUS", "WAIT", "PLACEMENT", "WHY")
    shown = queue.entries[:limit] if limit else queue.entries
    for entry in shown:
        table.add_row(
            safe_text(entry.job_id),
            safe_text(entry.user),
            safe_text(entry.name[:24]),
            safe_text(entry.state, _STATE_COLOURS.get(entry.state, "")),
            safe_text(str(entry.num_gpus)),
            safe_text(duration(entry.wait_s)),
            safe_text(entry.placement),
            safe_text(entry.why),
        )
    put(console, table)
    show_rest(console, len(queue.entries) - len(shown))


def show_explanation(found: admin_pb2.Explanation) -> None:
    """Print the explanation, the numbers, and the decisions on the job."""
    console = open_console()
    put(console, safe_text(f"Job {found.job_id} ({found.state}): {found.sentence}"))
    if found.facts:
        put(console, safe_text(""), pairs_of([(name, found.facts[name]) for name in sorted(found.facts)], {}))
    if found.decisions:
        table = table_of("DECIDED", "BY", "PLACEMENT", "REASON", "SNAPSHOT")
        for record in found.decisions:
            digest = f"{record.sequence} {record.snapshot_digest[:12]}"
            cells = (clock_time(record.time_s), record.policy, record.placement, record.reason, digest)
            table.add_row(*(safe_text(cell) for cell in cells))
        put(console, safe_text(""), table)
