"""Parquet files as tables of text, and traces as parquet files. The only module of traces that needs pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.errors import TraceError
from simulator.traces.table import Table, check_header

MOST_ROWS = 8_000_000
"""Maximum number of jobs: as many as in the largest text file."""


def read_parquet(path: Path, required: Sequence[str], *, limit: int | None = None) -> Table:
    """Read the file's columns as text, exactly as in a CSV; lines count rows."""
    arrow, parquet = _pyarrow(path)
    try:
        with parquet.ParquetFile(path) as file:
            rows = file.metadata.num_rows
            names = check_header(path, list(file.schema_arrow.names), required)
            if limit is None and rows > MOST_ROWS:
                raise TraceError(
                    f"too large for memory ({rows:,} rows)", mend="take its first rows with --limit N", path=path
                )
            columns: list[list[str]] = [[] for _ in names]
            left = rows if limit is None else min(limit, rows)
            for batch in file.iter_batches(batch_size=min(max(left, 1), 1 << 16)):
                for column, values in zip(columns, batch.columns, strict=True):
                    column.extend(_texts(values.slice(0, left)))
                left -= batch.num_rows
                if left <= 0:
                    break
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = f"the parquet data are damaged ({str(error).splitlines()[0]})"
        raise TraceError(reason, mend="copy, download or write the file again", path=path) from error
    if not rows:
        raise TraceError("has a header and no rows", mend="give at least one job", path=path)
    return Table(path, dict(zip(names, columns, strict=True)), len(columns[0]), lambda row: row + 1)


def write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    """Write columns to a file: arrays as they are, times (tuples of whole nanoseconds' text) as decimals, texts as texts."""
    arrow, parquet = _pyarrow(path)
    parquet.write_table(arrow.table(dict(columns)), path, compression="zstd")


def seconds_column(nanoseconds: Sequence[int]) -> Any:
    """Return times as exact decimals with nine places, or as whole seconds if all are whole."""
    arrow, _ = _pyarrow(None)
    if all(not time % 1_000_000_000 for time in nanoseconds):
        return arrow.array([time // 1_000_000_000 for time in nanoseconds], type=arrow.int64())
    from decimal import Decimal

    return arrow.array([Decimal(time).scaleb(-9) for time in nanoseconds], type=arrow.decimal128(28, 9))


def _texts(values: Any) -> list[str]:
    """Return one column of a batch as text; missing values are empty."""
    return ["" if value is None else value if isinstance(value, str) else str(value) for value in values.to_pylist()]


def _pyarrow(path: Path | None) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        mend = "pip install 'headway-scheduler[sim]', or convert the file to CSV"
        raise TraceError("needs the package pyarrow", mend=mend, path=path) from None
    return pyarrow, pyarrow.parquet
