"""Output of `headway status`, `policy` and `events`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from controller.base.text import clock_time, count, duration, left_out_text, listed
from controller.cli.render.terminal import open_console, pairs_of, put, safe_text, show_rest, table_of, time_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from protos.headway.v1 import admin_pb2

_BAR = 10
_NAMED = 5
"""Maximum number of nodes that a line names."""
_EVENT_COLOURS = {
    "error": "red",
    "fallback": "yellow",
    "policy": "magenta",
    "started": "green",
    "placed": "cyan",
    "preempt": "cyan",
}


def show_status(status: admin_pb2.Status, limit: int) -> None:
    """Print health, policy and queue; at most `limit` nodes (0: all)."""
    console = open_console()
    put(console, pairs_of(status_lines(status), status_colours(status)))
    if status.nodes:
        shown = status.nodes[:limit] if limit else status.nodes
        put(console, _node_table(shown))
        show_rest(console, len(status.nodes) - len(shown))


def status_lines(status: admin_pb2.Status) -> list[tuple[str, str]]:
    """Return names and values; a name may occur more than once."""
    lines = [
        ("controller", f"version {status.version}, up {duration(status.uptime_s)}"),
        ("slurm", _slurm_line(status)),
        ("lease", _lease_line(status)),
        *([("watchdog", line)] if (line := _watchdog_line(status)) else []),
        ("partitions", ", ".join(status.partitions)),
        ("policy", policy_line(status.policy)),
        *learning_lines(status.policy.learning),
        ("decisions", _decisions_line(status)),
        *([("guard", f"a rule decides in the policy's place: {status.guard}")] if status.guard else []),
        *(
            [("trained range", f"the policy's weights were not trained on such a state: {status.outside}")]
            if status.outside
            else []
        ),
        ("jobs", _jobs_line(status)),
        ("gpus", _gpus_line(status)),
    ]
    if status.preemptions_open:
        lines.append(("preemptions", _preemptions_line(status)))
    if status.agents.served:
        lines.append(("agents", agents_line(status.agents)))
    lines += [("advice", _advice_line(advice)) for advice in status.advice[:_NAMED]]
    if len(status.advice) > _NAMED:
        lines.append(("advice", f"and {len(status.advice) - _NAMED} more"))
    lines += [("trouble", text) for text in (*status.troubles, *status.agents.troubles[:_NAMED])]
    if left_out := left_out_text((one.part, one.errors) for one in status.left_out):
        lines.append(("left out", f"{left_out}; the controller's log has each kind once, as left_out"))
    if status.last_error:
        lines.append(("last error", status.last_error))
    return lines


def status_colours(status: admin_pb2.Status) -> dict[str, str]:
    """Return the colours of lines by their name."""
    lease, watchdog = ("red" if bad else "" for bad in (status.lease_stale, status.watchdog_silent))
    return {"last error": "red", "trouble": "red", "left out": "red", "lease": lease, "watchdog": watchdog}


def _gpus_line(status: admin_pb2.Status) -> str:
    nodes = f"{status.nodes_available} of {status.nodes_total} nodes up"
    return f"{status.gpus_used} of {status.gpus_total} in use, {nodes}"


def _advice_line(advice: admin_pb2.MoveAdvice) -> str:
    return f"move job {advice.job_id} to {','.join(advice.nodes)}: {advice.why}"


def _slurm_line(status: admin_pb2.Status) -> str:
    if not status.snapshot_time_s:
        return "not read yet"
    age = duration(time.time() - status.snapshot_time_s)
    took_ms = status.snapshot_read_s * 1000
    read = f"read {age} ago in {took_ms:.0f} ms, {count(status.slurm_errors, 'step')} failed"
    return f"{status.slurm_version} by {status.slurm_client}, {read}"


def _lease_line(status: admin_pb2.Status) -> str:
    if not status.lease_time_s:
        return "none: Slurm schedules without Headway"
    age = duration(time.time() - status.lease_time_s)
    return f"renewed {age} ago" + (", STALE: Slurm schedules without Headway" if status.lease_stale else "")


def _watchdog_line(status: admin_pb2.Status) -> str:
    """Return the line on the watchdog; empty where none is needed, in the first minutes, and for an older controller."""
    checked_s = status.watchdog_time_s
    text = f"checked {duration(time.time() - checked_s)} ago" if checked_s else "has not checked"
    if status.watchdog_silent:
        return f"{text}, SILENT: held jobs stay held if the controller fails (systemctl status headway-watchdog.timer)"
    return text if checked_s else ""


def _decisions_line(status: admin_pb2.Status) -> str:
    guarded = f", {status.guarded} by the policy's guard" if status.guarded else ""
    cycle_ms = (status.snapshot_read_s + status.plan_s) * 1000
    last = f"; last cycle {cycle_ms:.0f} ms" if status.plan_s else ""
    return f"{status.decisions}, {status.fallbacks} by the fallback, {status.rejects} rejected{guarded}{last}"


def _jobs_line(status: admin_pb2.Status) -> str:
    parts = [
        (status.jobs_waiting, "waiting"),
        (status.jobs_starting, "starting"),
        (status.jobs_running, "running"),
        (status.jobs_ineligible, "ineligible"),
        (status.jobs_yielded, "given to Slurm"),
    ]
    return ", ".join(f"{number} {word}" for number, word in parts)


def _preemptions_line(status: admin_pb2.Status) -> str:
    again = status.preemptions_started
    under_way = f"{status.preemptions_open} under way"
    return f"{under_way}, {again} of them running again" if again else under_way


def policy_line(policy: admin_pb2.PolicyInfo) -> str:
    """Return one line on the policy that decides."""
    if policy.serving:
        return f"{policy.name} (version {policy.version}) at {policy.address}"
    missed = f"{policy.name} at {policy.address} fails or does not answer" if policy.name else ""
    return f"the fallback {policy.fallback}; {missed or f'{policy.address} has not answered yet'}"


def learning_lines(learning: admin_pb2.PolicyLearning) -> list[tuple[str, str]]:
    """Return lines on the policy's continued learning; none if it does not learn."""
    if not learning.enabled:
        return []
    since_s = learning.weights_since_s
    weights = f"weights {learning.weights_sha256[:12]}, " + (
        f"promoted {duration(time.time() - since_s)} ago" if since_s else "those that it began with"
    )
    history = f"history of {count(learning.history_jobs, 'job')} ({learning.history_bytes / 2**20:.1f} MiB)"
    if learning.feedback_samples or learning.feedback_left_out:
        history += f"; {count(learning.feedback_samples, 'sample')} of live decisions ({learning.feedback_left_out} left out), "
        history += f"{count(learning.feedback_updates, 'update')} of a copy"
    last = f"{learning.promotions} of {count(learning.attempts, 'attempt')} promoted"
    if learning.attempts:
        last += f", the last {duration(time.time() - learning.last_attempt_s)} ago: {_attempt_text(learning)}"
    now = "; training now" if learning.training else ""
    lines = [("learning", f"{weights}; {history}; {last}{now}")]
    if learning.problem:
        lines.append(("learning", f"PROBLEM: {learning.problem}"))
    return lines


def _attempt_text(learning: admin_pb2.PolicyLearning) -> str:
    if learning.HasField("change") and learning.HasField("ci95"):
        return f"{learning.last_result}, average JCT {learning.change:+.1%} ± {learning.ci95:.1%}"
    return f"{learning.last_result}: {learning.last_reason}" if learning.last_reason else learning.last_result


def agents_line(agents: admin_pb2.AgentsStatus) -> str:
    """Return one line on the agents; it names the first few nodes without one."""
    parts = [f"{agents.connected} of {count(agents.nodes, 'node')} connected"]
    if agents.silent:
        named = listed((f"{node.name} ({_silence(node.since_s)})" for node in agents.silent), _NAMED)
        parts.append(f"silent: {named}")
    if agents.skewed:
        named = ", ".join(f"{node.name} {-node.behind_s:+.1f} s" for node in agents.skewed[:_NAMED])
        parts.append(f"clocks differ: {named}")
    return "; ".join(parts)


def _silence(since_s: float) -> str:
    return f"for {duration(time.time() - since_s)}" if since_s else "never connected"


def _node_table(nodes: Iterable[admin_pb2.NodeUse]) -> Table:
    table = table_of("NODE", "GPUS", "USE", "STATE")
    for node in nodes:
        share = node.gpus_used / node.gpus if node.gpus else 0.0
        colour = "" if node.available else "red"
        table.add_row(
            safe_text(node.name),
            safe_text(f"{node.gpus_used}/{node.gpus}"),
            safe_text(_bar(share), "green"),
            safe_text(node.state, colour),
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


def show_policy(policy: admin_pb2.PolicyInfo) -> None:
    """Print everything about the policy that decides."""
    lines = [
        ("policy", policy.name or "not known yet"),
        ("version", policy.version),
        ("source", policy.source),
        ("address", policy.address),
        ("serving", "yes" if policy.serving else "no: the fallback decides"),
        ("fallback", policy.fallback),
        *learning_lines(policy.learning),
    ]
    if policy.last_error:
        lines.append(("last error", policy.last_error))
    put(open_console(), pairs_of(lines, {"last error": "red"}))


def show_event(event: admin_pb2.Event) -> None:
    """Print one line; on a terminal, what does not fit on it follows below the beginning of the text."""
    console = open_console()
    kind = safe_text(f"{event.kind:<8}", _EVENT_COLOURS.get(event.kind, ""))
    if console.is_terminal:
        put(console, _event_row(event, kind, time_text(console, event.time_s)))
        return
    line = safe_text(f"{clock_time(event.time_s)}  ")
    line.append_text(kind)
    line.append_text(safe_text(f"  {event.job_id:<8}  {event.user:<8}  {event.text}".rstrip()))
    put(console, line)


def _event_row(event: admin_pb2.Event, kind: Text, time_of_event: str) -> Table:
    """Return a table of one row: each event is printed when it comes, so the columns have widths of their own."""
    from rich.table import Table

    row = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(4):
        row.add_column(no_wrap=True, min_width=8)
    row.add_column(overflow="fold")
    row.add_row(safe_text(time_of_event), kind, safe_text(event.job_id), safe_text(event.user), safe_text(event.text))
    return row
