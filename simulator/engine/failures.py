"""The option `--failures`: changes of nodes, from a file or drawn from a seed."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from simulator.cluster.cluster import Cluster
from simulator.engine.node_changes import CHANGES, draw_failures
from simulator.engine.settings import NodeChange
from simulator.errors import SettingError, TraceError
from simulator.traces.trace import NS_PER_S, Trace

_MOST_DIGITS = 10
UNIX_S = 100_000_000
"""Seconds from which a first submission is taken for a Unix time: March 1973, or three years after the begin of a clock."""
HEADER = ["time_s", "node", "change"]
_NUMBER = r"(\d+(?:\.\d+)?(?:[eE]\d+)?)"
_DRAWN = re.compile(f"{_NUMBER}:{_NUMBER}")


def failures_from(text: str, cluster: Cluster, trace: Trace, seed: int, begin_s: float = 0.0) -> tuple[NodeChange, ...]:
    """Draw failures for MTTF:MTTR (mean seconds to failure and repair), or read a file. Raises SettingError, TraceError.

    The trace begins at 0, which its file called `begin_s`.
    """
    drawn = _DRAWN.fullmatch(text)
    if drawn is None:
        return _from_zero(read_failures(Path(text), cluster), Path(text), begin_s)
    to_failure, to_repair = float(drawn[1]), float(drawn[2])
    if to_failure <= 0 or to_repair <= 0:
        raise SettingError(f"--failures {text}: both times must be more than 0 s; give MTTF:MTTR, such as 864000:3600")
    until_s = horizon_s(trace, cluster)
    expected = cluster.num_nodes * until_s / (to_failure + to_repair)
    if expected > 2_000_000:
        raise SettingError(f"--failures {text}: that is some {expected:,.0f} failures; give a longer time to failure")
    return draw_failures(cluster, until_s, to_failure, to_repair, seed)


def horizon_s(trace: Trace, cluster: Cluster) -> float:
    """Return until when failures are drawn: last submission + 3 x (longest job + total work / all GPUs), in seconds.

    Nodes that are down then still come back, and no node fails after it.
    """
    if not len(trace):
        return 0.0
    work_s = float((trace.duration_ns / NS_PER_S * trace.num_gpus).sum()) / cluster.num_gpus
    return float(trace.submit_ns[-1] + 3 * trace.duration_ns.max()) / NS_PER_S + 3 * work_s


def _from_zero(changes: Sequence[NodeChange], path: Path, begin_s: float) -> tuple[NodeChange, ...]:
    """Return the changes at times from the first submission on. In a file they have these, or Unix times if the trace has them too.

    What was before the first submission is then at 0, in the same order. Raises TraceError for times of both kinds, and for Unix
    times where the trace has none: such changes would come years after the last job, without a word.
    """
    unix = [change.time_s >= UNIX_S for change in changes]
    if not any(unix):
        return tuple(changes)
    if not all(unix):
        mend = "write Unix times throughout, or seconds from the trace's first submission throughout"
        raise TraceError(
            "has Unix times beside times from the first submission on", mend=mend, path=path, column="time_s"
        )
    if begin_s < UNIX_S:
        mend = "write seconds from the trace's first submission"
        raise TraceError("has Unix times, and the trace has none", mend=mend, path=path, column="time_s")
    in_order = sorted(changes, key=lambda change: change.time_s)
    return tuple(replace(change, time_s=max(change.time_s - begin_s, 0.0)) for change in in_order)


def read_failures(path: Path, cluster: Cluster) -> tuple[NodeChange, ...]:
    """Read changes from a CSV with the header time_s,node,change; nodes by number or name. Raises TraceError."""
    numbers = {name: node for node, name in enumerate(cluster.names)}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, strict=True)  # an open quote would hide the rows behind it
            header = next(rows, [])
            if [name.strip() for name in header] != HEADER:
                raise TraceError(
                    "has another header", mend=f"write {','.join(HEADER)}", path=path, line=1, text=",".join(header)
                )
            return tuple(_change(row, rows.line_num, path, numbers, len(numbers)) for row in rows if row)
    except OSError as error:
        mend = "give MTTF:MTTR in seconds, or a CSV with the header time_s,node,change"
        raise TraceError(f"cannot be opened ({error.strerror})", mend=mend, path=path) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"is not valid CSV ({error})", mend="write it again as UTF-8 text", path=path) from error


def _change(row: list[str], line: int, path: Path, numbers: dict[str, int], nodes: int) -> NodeChange:
    if len(row) != len(HEADER):
        raise TraceError(
            f"has {len(row)} fields", mend=f"write {len(HEADER)}", path=path, line=line, text=",".join(row)
        )
    time, node, change = (field.strip() for field in row)
    number = numbers.get(node, int(node) if node.isascii() and node.isdigit() and len(node) < _MOST_DIGITS else -1)
    try:
        seconds = float(time)
    except ValueError:
        seconds = -1.0
    for wrong, column, text, mend in (
        (not 0 <= seconds < 4e9, "time_s", time, "give seconds, 0 or more and less than 4e9"),
        (not 0 <= number < nodes, "node", node, f"give a node's name, or its number from 0 to {nodes - 1}"),
        (change not in CHANGES, "change", change, f"give one of {', '.join(CHANGES)}"),
    ):
        if wrong:
            raise TraceError("is not possible", mend=mend, path=path, line=line, column=column, text=text)
    return NodeChange(seconds, number, change)
