"""Tables of text (CSV and similar) as columns, and the line of a row for error messages."""

from __future__ import annotations

import csv
import io
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from simulator.errors import TraceError
from simulator.traces.files import blocks
from simulator.traces.numbers import BadCellError

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

T = TypeVar("T")
MOST_LINE_BYTES = 1 << 20
"""Maximum length of a line; a file with a longer line is not a table."""
_ROWS_AT_ONCE = 1 << 11
"""Rows per piece: few, so that the garbage collector does not scan all rows repeatedly."""
_FEW = 1 << 14
"""A column with fewer different texts stores each of them once: a million jobs have few users."""


@dataclass(frozen=True)
class Table:
    """The columns of a file as text, with one entry per row; blank lines are not rows."""

    path: Path
    columns: Mapping[str, Sequence[str]]
    rows: int
    line_of: Callable[[int], int]
    """Returns the line (from 1) on which a row (from 0) begins; slow, it reads the file again."""
    called: Mapping[str, str] = field(default_factory=dict)
    """Names of columns in the file, where they differ from those here."""
    file_of: Callable[[int], Path] | None = None
    """Returns the file of a row, where rows come from several files."""

    def parsed(self, column: str, parse: Callable[[Sequence[str]], T]) -> T:
        """Parse that column with `parse`; an error names line and column."""
        try:
            return parse(self.columns[column])
        except BadCellError as bad:
            raise self.wrong(bad.row, column, bad.text, bad.reason, bad.mend) from None

    def wrong(self, row: int, column: str | None, text: str | None, reason: str, mend: str) -> TraceError:
        """Return the error about that row."""
        column = self.called.get(column, column) if column else None
        path = self.file_of(row) if self.file_of else self.path
        return TraceError(reason, mend=mend, path=path, line=self.line_of(row), column=column, text=text)


def stacked(tables: Sequence[Table], path: Path) -> Table:
    """Return the rows of all tables, one table after the other, in the columns that all have; errors name the file of a row."""
    if len(tables) == 1:
        return tables[0]
    ends = list(accumulate(table.rows for table in tables))

    def table_of(row: int) -> tuple[Table, int]:
        at = bisect_right(ends, row)
        return tables[at], row - (ends[at] - tables[at].rows)

    def line_of(row: int) -> int:
        table, at = table_of(row)
        return table.line_of(at)

    shared = [name for name in tables[0].columns if all(name in table.columns for table in tables)]
    columns = {name: [text for table in tables for text in table.columns[name]] for name in shared}
    return Table(path, columns, ends[-1], line_of, file_of=lambda row: table_of(row)[0].path)


@dataclass(frozen=True)
class Dialect:
    """The form of a delimited file."""

    delimiter: str = ","
    names: tuple[str, ...] | None = None
    """The columns, if the file has no header line."""
    quoting: bool = True
    """True if a field in double quotes may contain delimiters and line ends."""
    open_end: bool = False
    """True if the last field may contain delimiters: it is the rest of the line."""
    aliases: Mapping[str, str] | None = None
    """Other names of columns, with the names used here."""

    def rows(self, lines: Iterable[str]) -> CsvReader:
        """Return a csv reader over these lines. A quote that is never closed raises csv.Error; it would hide all rows behind it."""
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quoting=csv.QUOTE_MINIMAL if self.quoting else csv.QUOTE_NONE,
            strict=self.quoting,
        )


def read_table(
    path: Path, required: Sequence[str], *, limit: int | None = None, dialect: Dialect | None = None
) -> Table:
    """Read the file's columns, which must include the required ones; with `limit` only its first rows."""
    dialect = dialect or Dialect()
    pieces = _texts(path, limited=limit is not None)
    first = io.StringIO(next(pieces, ""), newline="")
    try:
        names = _header(path, dialect.rows(first), required, dialect)
        columns = Columns(len(names), limit)
        _fill(path, columns, chain([first.read()], pieces), dialect)
    except csv.Error as error:
        raise TraceError(
            f"is not valid CSV ({error})",
            mend="close each quote, double those within a field, and quote fields that contain commas or quotes",
            path=path,
            line=_line_of_error(path, dialect),
        ) from error
    if not columns.rows:
        raise TraceError("has a header and no rows", mend="give at least one job", path=path)
    texts = dict(zip(names, columns.texts, strict=True))
    return Table(path, texts, columns.rows, lambda row: _line_of(path, row, dialect))


class Columns:
    """Columns of text that grow to at most `limit` rows; a column with few different texts stores each once."""

    def __init__(self, width: int, limit: int | None) -> None:
        self.texts: list[list[str]] = [[] for _ in range(width)]
        self.rows = 0
        self.left = limit
        self._known: list[dict[str, str]] = [{} for _ in range(width)]

    def extend(self, columns: Iterable[Sequence[str]], rows: int) -> bool:
        """Add rows; return whether more are needed."""
        taken = rows if self.left is None else min(rows, self.left)
        for mine, known, more in zip(self.texts, self._known, columns, strict=True):
            texts = more[:taken] if taken < rows else more
            mine.extend(map(known.setdefault, texts, texts) if len(known) < _FEW else texts)
        self.rows += taken
        if self.left is not None:
            self.left -= taken
        return self.left is None or self.left > 0


def _fill(path: Path, columns: Columns, pieces: Iterator[str], dialect: Dialect) -> None:
    """Read all rows: split whole pieces as long as nothing is quoted and rows are regular, then row by row."""
    width = len(columns.texts)
    for piece in pieces:
        plain = piece.replace("\r\n", "\n") if "\r" in piece else piece
        flat = _split(plain, dialect.delimiter, width)
        if flat is None:
            _fill_slowly(path, columns, dialect.rows(_lines(chain([piece], pieces))), dialect)
            return
        if flat and not columns.extend([flat[at::width] for at in range(width)], len(flat) // width):
            return


def _split(piece: str, delimiter: str, width: int) -> list[str] | None:
    """Return the fields of whole lines, row after row; None if splitting is not enough."""
    if '"' in piece or "\r" in piece:
        return None
    if piece and not piece.endswith("\n"):
        piece += "\n"
    data = np.frombuffer(piece.encode(), dtype=np.uint8)
    ends = data[(data == ord(delimiter)) | (data == ord("\n"))] == ord("\n")
    if len(ends) % width or not ends[width - 1 :: width].all() or int(ends.sum()) * width != len(ends):
        return None
    fields = piece.replace("\n", delimiter).split(delimiter)
    fields.pop()
    return None if width == 1 and "" in fields else fields


def _fill_slowly(path: Path, columns: Columns, reader: Iterator[list[str]], dialect: Dialect) -> None:
    while rows := list(islice(reader, _ROWS_AT_ONCE if columns.left is None else min(_ROWS_AT_ONCE, columns.left))):
        whole = _whole_rows(path, rows, len(columns.texts), columns, dialect)
        if whole and not columns.extend(list(zip(*whole, strict=True)), len(whole)):
            return


def lines_of(path: Path, *, limited: bool = False) -> Iterator[str]:
    """Yield the lines of a text file, decompressed, with their ends."""
    return _lines(_texts(path, limited=limited))


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield lines with their ends: csv counts them, and a quoted field may span them."""
    return chain.from_iterable(io.StringIO(piece, newline="") for piece in pieces)


def _texts(path: Path, *, limited: bool) -> Iterator[str]:
    """Yield the file in pieces of whole lines."""
    rest, line = b"", 1
    first = True
    for block in blocks(path, limited=limited):
        data = rest + block
        if first:
            data, first = data.removeprefix(b"\xef\xbb\xbf"), False
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) > MOST_LINE_BYTES:
            raise _no_text(path, line, f"the line is longer than {MOST_LINE_BYTES:,} bytes")
        if cut:
            yield _decoded(path, data[:cut], line)
        rest = data[cut:]
        line += data.count(b"\n")
    if rest:
        yield _decoded(path, rest, line)


def _decoded(path: Path, data: bytes, line: int) -> str:
    if b"\0" in data:
        at = line + data[: data.index(b"\0")].count(b"\n")
        raise _no_text(path, at, "contains a zero byte")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        at = line + data[: error.start].count(b"\n")
        raise _no_text(path, at, f"is not UTF-8 (byte 0x{data[error.start]:02x})") from None


def _no_text(path: Path, line: int, reason: str) -> TraceError:
    mend = "give a CSV file in UTF-8 (plain, .gz or .zst), or a parquet file"
    return TraceError(reason, mend=mend, path=path, line=line)


def _header(path: Path, reader: CsvReader, required: Sequence[str], dialect: Dialect) -> list[str]:
    if dialect.names is not None:
        return list(dialect.names)
    header = next((row for row in reader if row), None)
    if header is None:
        raise TraceError("has no header line", mend=f"begin with {','.join(required)}", path=path)
    return check_header(path, header, required, dialect.aliases)


def check_header(
    path: Path, header: Sequence[str], required: Sequence[str], aliases: Mapping[str, str] | None = None
) -> list[str]:
    """Return the names of the columns; check that required ones are present and none occurs twice."""
    names = [(aliases or {}).get(name.strip(), name.strip()) for name in header]
    for name, times in Counter(names).items():
        if times > 1:
            raise TraceError(
                "appears twice in the header", mend="name each column once", path=path, line=1, column=name
            )
    for name in required:
        if name not in names:
            from difflib import get_close_matches

            near = get_close_matches(name, names, n=1, cutoff=0.5)
            mend = f"rename the column {near[0]!r}" if near else f"the header must have {','.join(required)}"
            if len(names) == 1 and (other := next((sign for sign in ";\t|" if sign in names[0]), "")):
                mend = f"separate columns with commas, not with {other!r}"
            raise TraceError(f"is not in the header ({_shown(names)})", mend=mend, path=path, line=1, column=name)
    return names


def _shown(names: Sequence[str], most: int = 12) -> str:
    shown = ",".join(name[:30] for name in names[:most])
    return shown if len(names) <= most else shown + ",…"


def _whole_rows(path: Path, rows: list[list[str]], width: int, columns: Columns, dialect: Dialect) -> list[list[str]]:
    """Yield the rows that are not blank, up to the limit; check that they have the header's width."""
    rows = [row for row in rows if row][: columns.left]
    if dialect.open_end:
        rows = [
            [*row[: width - 1], dialect.delimiter.join(row[width - 1 :])] if len(row) > width else row for row in rows
        ]
    for at, row in enumerate(rows):
        if len(row) != width:
            raise TraceError(
                f"has {len(row)} fields, the header has {width}",
                mend="give every row as many fields as the header, and quote fields that contain commas",
                path=path,
                line=_line_of(path, columns.rows + at, dialect),
            )
    return rows


def _line_of(path: Path, row: int, dialect: Dialect) -> int:
    """Return where that row begins, by one pass through the file."""
    reader = dialect.rows(lines_of(path, limited=True))
    header = dialect.names is None
    line = 1
    for fields in reader:
        if fields and header:
            header = False
        elif fields:
            if not row:
                break
            row -= 1
        line = reader.line_num + 1
    return line


def _line_of_error(path: Path, dialect: Dialect) -> int:
    """Return where the first record begins that csv refuses, by one pass through the file."""
    reader = dialect.rows(lines_of(path, limited=True))
    line = 1
    with suppress(csv.Error):
        for _ in reader:
            line = reader.line_num + 1
    return line
