"""Rows to fit from, read from CSV (plain or .gz) or parquet: a column for each field of a dataclass; others are ignored."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any, TextIO, TypeVar, get_type_hints

from simulator.errors import SlowdownError

Row = TypeVar("Row")
_KINDS = {str: "text", int: "whole number", float: "finite number"}


def read_rows(path: Path | str, kind: type[Row], called: Mapping[str, str] | None = None) -> list[Row]:
    """Read the rows of a file; `called` gives the columns of fields whose column has another name. Raises SlowdownError."""
    path = Path(path)
    types = {item.name: get_type_hints(kind)[item.name] for item in fields(kind)}  # type: ignore[arg-type]
    columns = {name: (called or {}).get(name, name) for name in types}
    rows: list[Row] = []
    for line, record in read_records(path, columns.values()):
        values = {}
        for name, column in columns.items():
            values[name] = _value(record[column], types[name])
            if values[name] is None:
                raise SlowdownError(
                    f"line {line}, column {column}: {record[column]!r} is not a {_KINDS[types[name]]}",
                    mend="correct or delete it",
                    path=path,
                )
        rows.append(kind(**values))
    return rows


def read_records(path: Path, columns: Iterable[str] = ()) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield line number and cells by column. Raises SlowdownError if a column is missing or the file cannot be read."""
    wanted = set(columns)
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            records: Iterable[Mapping[str, Any]] = parquet.read_table(path).to_pylist()
            yield from ((at + 1, _complete(record, wanted, path)) for at, record in enumerate(records))
            return
        with _opened(path) as file:
            reader = csv.DictReader(file, strict=True)  # an open quote would hide the rows behind it
            for record in reader:
                yield reader.line_num, _complete(record, wanted, path)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise SlowdownError(f"cannot be read ({error})", mend="give a CSV or parquet file", path=path) from error


def _opened(path: Path) -> TextIO:
    """Open the file as text, decompressed."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _complete(record: Mapping[str, Any], wanted: set[str], path: Path) -> Mapping[str, Any]:
    missing = sorted(column for column in wanted if record.get(column) is None)
    if missing:
        raise SlowdownError(f"has no column {missing[0]}", mend=f"give columns {', '.join(sorted(wanted))}", path=path)
    return record


def _value(cell: object, kind: type) -> Any:
    """Return the cell as that type; None if it is not of it."""
    if kind is str:
        return str(cell)
    with suppress(ValueError, TypeError):
        number = float(str(cell))
        if isfinite(number) and (kind is float or number == int(number)):
            return kind(number)
    return None
