"""Write traces to files: CSV (plain, .gz, .zst) or parquet, by the name. Reading the file gives an equal trace."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from policies.model import IntColumn
from simulator.errors import TraceError
from simulator.traces.read import TEXTS
from simulator.traces.trace import NS_PER_S, Trace

_ROWS_AT_ONCE = 1 << 16


def write_trace(trace: Trace, path: Path | str) -> None:
    """Write the trace to that path, completely or not at all; columns without any known entry are left out. Raises TraceError."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.suffix.lower() == ".parquet":
            _write_parquet(trace, part)
        else:
            with _text_file(part, path.suffix.lower()) as file:
                _write_csv(trace, file)
        part.replace(path)
    except OSError as error:
        mend = "give a path in a folder that exists and that you may write to"
        raise TraceError(f"cannot be written: {error.strerror}", mend=mend, path=path) from error
    finally:
        part.unlink(missing_ok=True)


def write_trace_to(trace: Trace, file: IO[str]) -> None:
    """Write the trace as CSV into an open text file."""
    _write_csv(trace, file)


def seconds_text(nanoseconds: int) -> str:
    """Return nanoseconds as exact decimal seconds, without trailing zeros."""
    whole, part = divmod(nanoseconds, NS_PER_S)
    return f"{whole}.{part:09d}".rstrip("0") if part else str(whole)


def _write_csv(trace: Trace, file: IO[str]) -> None:
    columns = _columns(trace)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for start in range(0, len(trace), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        writer.writerows(zip(*(_texts(name, column[rows]) for name, column in columns.items()), strict=True))


def _write_parquet(trace: Trace, path: Path) -> None:
    from simulator.traces.parquet import seconds_column, write_parquet

    columns = {
        name: seconds_column(column.tolist())
        if name.endswith("_s") and isinstance(column, np.ndarray)
        else list(column)
        for name, column in _columns(trace).items()
    }
    if "time_limit_s" in columns:
        columns["time_limit_s"] = [text or None for text in _texts("time_limit_s", trace.limit_ns)]
    if "batch_size" in columns:
        columns["batch_size"] = [int(text) if text else None for text in _texts("batch_size", trace.batch_size)]
    write_parquet(path, columns)


def _columns(trace: Trace) -> dict[str, IntColumn | Sequence[str]]:
    """Return the columns to write by name, in the order of the file."""
    columns: dict[str, IntColumn | Sequence[str]] = {
        "job_id": trace.job_ids,
        "submit_time_s": trace.submit_ns,
        "num_gpus": trace.num_gpus,
        "duration_s": trace.duration_ns,
    }
    columns |= {name: texts for name in TEXTS if any(texts := getattr(trace, name))}
    if (trace.batch_size > 0).any():
        columns["batch_size"] = trace.batch_size
    if (trace.min_gpus < trace.num_gpus).any():
        columns["min_gpus"] = trace.min_gpus
    if (trace.max_gpus > trace.num_gpus).any():
        columns["max_gpus"] = trace.max_gpus
    if (trace.limit_ns > 0).any():
        columns["time_limit_s"] = trace.limit_ns
    if not trace.preemptible.all():
        columns["preemptible"] = trace.preemptible.astype(np.int64)
    return columns | dict(trace.extra)


def _texts(name: str, column: IntColumn | Sequence[str]) -> Sequence[str]:
    """Return one column as texts for a CSV."""
    if not isinstance(column, np.ndarray):
        return column
    if name.endswith("_s"):
        whole, part = np.divmod(column, NS_PER_S)
        if not part.any():
            return list(map(str, whole.tolist()))
        return [seconds_text(time) if time >= 0 else "" for time in column.tolist()]
    return [str(number) if number >= 0 else "" for number in column.tolist()]


@contextmanager
def _text_file(path: Path, suffix: str) -> Iterator[IO[str]]:
    """Open a text file for writing, compressed by its suffix; equal traces give equal bytes."""
    with path.open("wb") as raw:
        if suffix == ".gz":
            packed: Any = gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0)
        elif suffix == ".zst":
            packed = _zstd_writer(raw, path)
        else:
            packed = raw
        with packed, io.TextIOWrapper(packed, encoding="utf-8", newline="") as text:
            yield text


def _zstd_writer(raw: IO[bytes], path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        mend = "pip install 'headway-scheduler[sim]', or write .gz"
        raise TraceError("needs the package zstandard", mend=mend, path=path) from None
    return zstandard.ZstdCompressor().stream_writer(raw, closefd=False)
