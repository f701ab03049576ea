"""What `headway` shows: tables with colour on a terminal, plain lines elsewhere, one JSON object with --json.

Names of jobs and users and the reasons of policies were written by others: nothing in them reaches the terminal as a control
sequence or as markup.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from controller.words import clock_time, count, duration

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from protos.headway.v1 import admin_pb2

_BAR = 10
_PLAIN_WIDTH = 10_000
_STATE_COLOURS = {
    "waiting": "yellow",
    "starting": "cyan",
    "running": "green",
    "ineligible": "bright_black",
    "yielded": "magenta",
    "unmanaged": "magenta",
}
_EVENT_COLOURS = {"error": "red", "fallback": "yellow", "policy": "magenta", "started": "green", "placed": "cyan"}


def plain(message: Message) -> dict[str, Any]:
    """A message as a dictionary with the names of the .proto file; every field is there, numbers are numbers."""
    found: dict[str, Any] = {}
    for item in message.DESCRIPTOR.fields:
        value = getattr(message, item.name)
        if item.message_type is None:
            found[item.name] = list(value) if item.is_repeated else value
        elif item.message_type.GetOptions().map_entry:
            found[item.name] = dict(value)
        elif item.is_repeated:
            found[item.name] = [plain(entry) for entry in value]
        else:
            found[item.name] = plain(value)
    return found


def write_json(value: Mapping[str, Any]) -> None:
    """One object on one line."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def show_status(status: admin_pb2.Status, limit: int) -> None:
    """Health, policy, queue; at most `limit` nodes (0: all)."""
    console = _console()
    lines = [
        ("controller", f"version {status.version}, up {duration(status.uptime_s)}"),
        ("slurm", _slurm_line(status)),
        ("lease", _lease_line(status)),
        ("partitions", ", ".join(status.partitions)),
        ("policy", policy_line(status.policy)),
        ("decisions", f"{status.decisions}, {status.fallbacks} by the fallback, {status.rejects} refused"),
        ("jobs", _jobs_line(status)),
        (
            "gpus",
            f"{status.gpus_used} of {status.gpus_total} in use, {status.nodes_available} of {status.nodes_total} nodes up",
        ),
    ]
    if status.last_error:
        lines.append(("last error", status.last_error))
    _print(console, _pairs(lines, {"last error": "red", "lease": "red" if status.lease_stale else ""}))
    if status.nodes:
        shown = status.nodes[:limit] if limit else status.nodes
        _print(console, _node_table(shown))
        _tell_rest(console, len(status.nodes) - len(shown))


def _slurm_line(status: admin_pb2.Status) -> str:
    if not status.snapshot_time_s:
        return "not read yet"
    age = duration(time.time() - status.snapshot_time_s)
    took_ms = status.snapshot_read_s * 1000
    read = f"read {age} ago in {took_ms:.0f} ms, {status.slurm_errors} steps refused"
    return f"{status.slurm_version} by {status.slurm_client}, {read}"


def _lease_line(status: admin_pb2.Status) -> str:
    if not status.lease_time_s:
        return "none: Slurm schedules by itself"
    age = duration(time.time() - status.lease_time_s)
    return f"renewed {age} ago" + (", STALE: Slurm schedules by itself" if status.lease_stale else "")


def _jobs_line(status: admin_pb2.Status) -> str:
    parts = [
        (status.jobs_waiting, "waiting"),
        (status.jobs_starting, "starting"),
        (status.jobs_running, "running"),
        (status.jobs_ineligible, "ineligible"),
        (status.jobs_yielded, "given to Slurm"),
    ]
    return ", ".join(f"{number} {word}" for number, word in parts)


def policy_line(policy: admin_pb2.PolicyInfo) -> str:
    """Who decides, in a line."""
    if policy.serving:
        return f"{policy.name} (version {policy.version}) at {policy.address}"
    missed = f"{policy.name} at {policy.address} does not answer as it should" if policy.name else ""
    return f"the fallback {policy.fallback}; {missed or f'nothing heard yet from {policy.address}'}"


def _node_table(nodes: Iterable[admin_pb2.NodeUse]) -> Table:
    table = _table("NODE", "GPUS", "USE", "STATE")
    for node in nodes:
        share = node.gpus_used / node.gpus if node.gpus else 0.0
        colour = "" if node.available else "red"
        table.add_row(
            _text(node.name),
            _text(f"{node.gpus_used}/{node.gpus}"),
            _text(_bar(share), "green"),
            _text(node.state, colour),
        )
    return table


def _bar(share: float) -> str:
    filled = min(max(round(share * _BAR), 0), _BAR)
    full, empty = ("█", "░") if _can_write("█░") else ("#", ".")
    return full * filled + empty * (_BAR - filled)


def _can_write(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def show_queue(queue: admin_pb2.Queue, limit: int) -> None:
    """One line a job; at most `limit` of them (0: all)."""
    console = _console()
    if not queue.entries:
        _print(console, _text("No jobs."))
        return
    table = _table("JOB", "USER", "NAME", "STATE", "GPUS", "WAIT", "PLACEMENT", "WHY")
    shown = queue.entries[:limit] if limit else queue.entries
    for entry in shown:
        table.add_row(
            _text(entry.job_id),
            _text(entry.user),
            _text(entry.name[:24]),
            _text(entry.state, _STATE_COLOURS.get(entry.state, "")),
            _text(str(entry.num_gpus)),
            _text(duration(entry.wait_s)),
            _text(entry.placement),
            _text(entry.why),
        )
    _print(console, table)
    _tell_rest(console, len(queue.entries) - len(shown))


def _tell_rest(console: Console, left: int) -> None:
    if left:
        _print(console, _text(f"{left} more; --limit 0 shows all"))


def show_explanation(found: admin_pb2.Explanation) -> None:
    """The sentence, the numbers, and what was decided."""
    console = _console()
    _print(console, _text(f"Job {found.job_id} ({found.state}): {found.sentence}"))
    if found.facts:
        _print(console, _text(""), _pairs([(name, found.facts[name]) for name in sorted(found.facts)], {}))
    if found.decisions:
        table = _table("DECIDED", "BY", "PLACEMENT", "REASON", "SNAPSHOT")
        for record in found.decisions:
            digest = f"{record.sequence} {record.snapshot_digest[:12]}"
            cells = (clock_time(record.time_s), record.policy, record.placement, record.reason, digest)
            table.add_row(*(_text(cell) for cell in cells))
        _print(console, _text(""), table)


def show_policy(policy: admin_pb2.PolicyInfo) -> None:
    """Who decides, in full."""
    lines = [
        ("policy", policy.name or "not heard of yet"),
        ("version", policy.version),
        ("source", policy.source),
        ("address", policy.address),
        ("serving", "yes" if policy.serving else "no: the fallback decides"),
        ("fallback", policy.fallback),
    ]
    if policy.last_error:
        lines.append(("last error", policy.last_error))
    _print(_console(), _pairs(lines, {"last error": "red"}))


def show_event(event: admin_pb2.Event) -> None:
    """One line."""
    line = _text(f"{clock_time(event.time_s)}  ")
    line.append_text(_text(f"{event.kind:<8}", _EVENT_COLOURS.get(event.kind, "")))
    line.append_text(_text(f"  {event.job_id:<8}  {event.text}".rstrip()))
    _print(_console(), line)


def show_findings(findings: Sequence[Mapping[str, Any]]) -> None:
    """What `headway doctor` found, with the mends."""
    console = _console()
    colours = {"ok": "green", "warning": "yellow", "error": "bold red", "skipped": "bright_black"}
    table = _table("", "CHECK", "FOUND")
    for finding in findings:
        level = str(finding["level"])
        cells = (_text(level, colours.get(level, "")), _text(str(finding["check"])), _text(str(finding["what"])))
        table.add_row(*cells)
        if finding["mend"]:
            table.add_row("", "", _text(f"mend: {finding['mend']}", "bold"))
    _print(console, table)
    tally = Counter(str(finding["level"]) for finding in findings)
    numbers = (f"{tally['ok']} ok", count(tally["warning"], "warning"), count(tally["error"], "error"))
    _print(console, _text(", ".join((*numbers, f"{tally['skipped']} skipped"))))


# --- the pieces


def _console() -> Console:
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names may hold letters that this terminal cannot show
    if sys.stdout.isatty():
        return Console(file=sys.stdout, highlight=False)
    return Console(file=sys.stdout, highlight=False, no_color=True, force_terminal=False, width=_PLAIN_WIDTH)


def _print(console: Console, *things: Table | Text) -> None:
    """On a terminal as rich does it; elsewhere without the blanks that fill up lines."""
    if console.is_terminal:
        console.print(*things, sep="\n")
        return
    with console.capture() as captured:
        console.print(*things, sep="\n")
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    sys.stdout.flush()


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in {"GPUS", "WAIT"} else "left", overflow="fold")
    return table


def _pairs(lines: Iterable[tuple[str, str]], colours: Mapping[str, str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(_text(name), _text(value, colours.get(name, "")))
    return table


def _text(value: str, colour: str = "") -> Text:
    """Text with nothing in it but what can be seen, and no markup."""
    from rich.text import Text

    return Text("".join(sign if sign.isprintable() else "?" for sign in value), style=colour)
