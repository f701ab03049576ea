"""Traces from files: CSV (plain, .gz, .zst) and parquet.

The header is `job_id,submit_time_s,num_gpus,duration_s`, in any order, with any of `user`, `vc`, `status`, `model`,
`batch_size`, `min_gpus`, `max_gpus`, `time_limit_s`, `preemptible`; other columns are kept as text. Packages are
imported only when a file needs them: a plain CSV needs nothing but numpy.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from policies.model import IntColumn
from simulator.errors import TraceError
from simulator.traces.files import PARQUET_MAGIC, first_bytes
from simulator.traces.numbers import counts, flags, times_ns
from simulator.traces.table import Table, read_table
from simulator.traces.trace import Trace

REQUIRED = ("job_id", "submit_time_s", "num_gpus", "duration_s")
TEXTS = ("user", "vc", "status", "model")
OPTIONAL = (*TEXTS, "batch_size", "min_gpus", "max_gpus", "time_limit_s", "preemptible")


def read_trace(path: Path | str, limit: int | None = None) -> Trace:
    """Return the trace in that file; with `limit` only its first rows are read. Raises TraceError."""
    path = Path(path)
    if limit is not None and limit < 1:
        raise TraceError(f"a trace cannot be limited to {limit} rows", mend="give a limit of at least 1", path=path)
    return trace_of(table_of(path, limit))


def table_of(path: Path, limit: int | None = None) -> Table:
    """Return the table of a trace in the common form, as text; with `limit` only its first rows are read. Raises TraceError."""
    if first_bytes(path).startswith(PARQUET_MAGIC):
        from simulator.traces.parquet import read_parquet

        return read_parquet(path, REQUIRED, limit=limit)
    if path.suffix.lower() == ".parquet" and path.stat().st_size:
        raise TraceError("is named .parquet but is not a Parquet file", mend="rename it, or write it again", path=path)
    return read_table(path, REQUIRED, limit=limit)


def trace_of(table: Table) -> Trace:
    """Return the trace in a table whose columns have the names of the common form. Raises TraceError."""
    columns = table.columns
    num_gpus = table.parsed("num_gpus", partial(counts, of="GPUs"))
    min_gpus, max_gpus = _size(table, "min_gpus", num_gpus), _size(table, "max_gpus", num_gpus)
    _check_sizes(table, num_gpus, min_gpus, max_gpus)
    limit = partial(times_ns, zero=False, missing=True)
    samples = partial(counts, of="samples", missing=True, most=2**62)
    return Trace.of(
        name_of(table.path),
        _unique_ids(table),
        table.parsed("submit_time_s", partial(times_ns, zero=True)),
        num_gpus,
        table.parsed("duration_s", partial(times_ns, zero=False)),
        limit_ns=table.parsed("time_limit_s", limit) if "time_limit_s" in columns else None,
        preemptible=table.parsed("preemptible", partial(flags, default=True)) if "preemptible" in columns else None,
        min_gpus=min_gpus,
        max_gpus=max_gpus,
        batch_size=table.parsed("batch_size", samples) if "batch_size" in columns else None,
        user=columns.get("user"),
        vc=columns.get("vc"),
        status=columns.get("status"),
        model=columns.get("model"),
        extra={name: texts for name, texts in columns.items() if name not in {*REQUIRED, *OPTIONAL}},
        ids_are_unique=True,
    )


def name_of(path: Path) -> str:
    """Return a file's name without the suffix of its compression."""
    return path.name.removesuffix(".gz").removesuffix(".zst").removesuffix(".csv").removesuffix(".parquet")


def _size(table: Table, name: str, num_gpus: IntColumn) -> IntColumn:
    """Return a bound on the jobs' sizes; the requested size if the bound is not known."""
    if name not in table.columns:
        return num_gpus
    bound = table.parsed(name, partial(counts, of="GPUs", missing=True))
    return np.where(bound < 0, num_gpus, bound)


def _check_sizes(table: Table, num_gpus: IntColumn, min_gpus: IntColumn, max_gpus: IntColumn) -> None:
    for name, wrong, relation in (("min_gpus", min_gpus > num_gpus, "more"), ("max_gpus", max_gpus < num_gpus, "less")):
        if wrong.any():
            row = int(wrong.argmax())
            raise table.wrong(
                row,
                name,
                table.columns[name][row],
                f"is {relation} than num_gpus, which is {num_gpus[row]}",
                "let min_gpus <= num_gpus <= max_gpus",
            )


def _unique_ids(table: Table) -> list[str]:
    """Return the ids, after checking that none is empty or occurs twice."""
    ids = list(table.columns["job_id"])
    distinct = set(ids)
    if len(distinct) == len(ids) and "" not in distinct:
        return ids
    first: dict[str, int] = {}
    for row, job_id in enumerate(ids):
        if not job_id:
            raise table.wrong(row, "job_id", job_id, "is empty", "give every job an id of its own")
        if job_id in first:
            reason = f"is already the id of line {table.line_of(first[job_id])}"
            raise table.wrong(row, "job_id", job_id, reason, "give every job an id of its own")
        first[job_id] = row
    return ids
