"""Common parts of the loaders of logs: rows are dropped and counted by reason, the rest becomes a trace in the common form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from policies.model import BoolColumn, FloatColumn, IntColumn
from simulator.errors import TraceError
from simulator.traces.numbers import amounts, instants_ns
from simulator.traces.read import name_of, trace_of
from simulator.traces.table import Table
from simulator.traces.trace import Trace
from simulator.traces.write import seconds_text

Column = Sequence[str] | IntColumn | str
NO_GPUS = "jobs without GPUs"
NO_RUN_TIME = "jobs that never ran, or for no time at all"
UNFINISHED = "jobs that had not ended when the log did"
SLURM_UNFINISHED = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING")
"""Slurm's states of jobs that have not ended."""


@dataclass(frozen=True)
class Options:
    """Options of loaders."""

    speeds: Path | None = None
    """Measured steps per second, for logs that give the work of a job instead of its duration (gavel)."""
    gpu: str = "v100"
    """Kind of GPU of those speeds."""
    since: str = "now-90days"
    """Begin of the period for which sacct lists jobs."""
    gpu_shares: int = 1
    """Shares of a GPU in which a log counts whose jobs request parts of one; 1: parts are rounded up."""


@dataclass(frozen=True)
class Loaded:
    """A log as a trace, on the log's own clock."""

    trace: Trace
    skipped: Mapping[str, int]
    """Number of dropped rows by reason, without zeros."""


class Log:
    """The table of a log while it is converted: the kept rows, and the reasons for dropping the others."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.kept = np.ones(table.rows, dtype=np.bool_)
        self.skipped: dict[str, int] = {}

    def texts(self, column: str) -> Sequence[str]:
        """Return that column; empty texts if the log does not have it."""
        return self.table.columns.get(column) or [""] * self.table.rows

    def numbers(self, column: str) -> FloatColumn:
        """Return that column as floats, for comparisons; NaN for texts that are not numbers. Kept rows are parsed exactly later."""
        return amounts(self.table.columns[column])

    def instants(self, column: str) -> IntColumn:
        """Return dates and times as nanoseconds since 1970; -1 if there is none."""
        return self.table.parsed(column, instants_ns)

    def drop(self, rows: BoolColumn, why: str) -> None:
        """Drop these rows; a row counts for the first reason only."""
        newly = int((rows & self.kept).sum())
        if newly:
            self.skipped[why] = self.skipped.get(why, 0) + newly
        self.kept &= ~rows

    def loaded(self, /, **columns: Column) -> Loaded:
        """Return the trace of the kept rows. A column is a name in the log, or entries for all rows (arrays: nanoseconds)."""
        rows = np.flatnonzero(self.kept).tolist()
        if not rows:
            reasons = ", ".join(f"{count} {why}" for why, count in self.skipped.items())
            raise TraceError(
                f"contains no job to keep ({reasons})", mend="give a log of GPU jobs", path=self.table.path
            )
        texts = {name: self._kept(column, rows) for name, column in columns.items()}
        called = {name: column for name, column in columns.items() if isinstance(column, str)}
        source, of = self.table.file_of, self.table.line_of
        file_of = (lambda row: source(rows[row])) if source else None
        table = Table(self.table.path, texts, len(rows), lambda row: of(rows[row]), called, file_of)
        return Loaded(trace_of(table), self.skipped)

    def _kept(self, column: Column, rows: list[int]) -> Sequence[str]:
        """Return the entries of a column in these rows, as text."""
        if isinstance(column, np.ndarray):
            return [seconds_text(time) if time >= 0 else "" for time in column[rows].tolist()]
        entries = self.texts(column) if isinstance(column, str) else column
        return list(map(entries.__getitem__, rows))


def joined(loaded: Sequence[Loaded], paths: Sequence[Path]) -> Loaded:
    """Join several logs with one clock into one trace. Ids that occur in several logs get the file's name as a prefix."""
    if len(loaded) == 1:
        return loaded[0]
    traces = [each.trace for each in loaded]
    ids = [job_id for trace in traces for job_id in trace.job_ids]
    if len(set(ids)) < len(ids):
        labels = [name_of(path) for path in paths]
        labels = labels if len(set(labels)) == len(labels) else [str(path) for path in paths]
        ids = [f"{label}/{job_id}" for label, trace in zip(labels, traces, strict=True) for job_id in trace.job_ids]
    names = {name: None for trace in traces for name in trace.extra}
    skipped: dict[str, int] = {}
    for each in loaded:
        for why, count in each.skipped.items():
            skipped[why] = skipped.get(why, 0) + count
    trace = Trace.of(
        "+".join(dict.fromkeys(trace.name for trace in traces)),
        ids,
        np.concatenate([trace.submit_ns for trace in traces]),
        np.concatenate([trace.num_gpus for trace in traces]),
        np.concatenate([trace.duration_ns for trace in traces]),
        limit_ns=np.concatenate([trace.limit_ns for trace in traces]),
        preemptible=np.concatenate([trace.preemptible for trace in traces]),
        min_gpus=np.concatenate([trace.min_gpus for trace in traces]),
        max_gpus=np.concatenate([trace.max_gpus for trace in traces]),
        batch_size=np.concatenate([trace.batch_size for trace in traces]),
        user=[text for trace in traces for text in trace.user],
        vc=[text for trace in traces for text in trace.vc],
        status=[text for trace in traces for text in trace.status],
        model=[text for trace in traces for text in trace.model],
        extra={
            name: [text for trace in traces for text in trace.extra.get(name, ("",) * len(trace))] for name in names
        },
    )
    return Loaded(trace, skipped)
