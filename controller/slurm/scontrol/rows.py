"""Objects by line for lists whose text no user can write, such as nodes: only lines that have changed are parsed again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from controller.base.text import readable


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Row = TypeVar("Row", bound=_Named)
Spans = Iterable[tuple[int, int]]
"""Begin and end of pieces of a line, in their order."""


def nothing_ticks(_line: bytes) -> Spans:
    """Return no pieces, for lists in which every character counts."""
    return ()


@dataclass(frozen=True, slots=True)
class _Line(Generic[Row]):
    """A line of the last reading."""

    text: bytes
    steady: bytes
    """The line without its ticking fields, whose values change at every reading."""
    counts: bytes
    """One byte for each character and for the line break: 1 if it is steady, 0 if it ticks."""
    row: Row


class RowCache(Generic[Row]):
    """Objects by line, for lists whose text no user can write. Forgets what is no longer in the text.

    Invariant: `text`, `counts` and `ticks` are those of `lines`. Most readings differ only in ticking fields, and in few lengths.
    So the whole text is compared with the former one, character by character, and only lines with a difference that counts are
    read again.
    """

    def __init__(self, first: bytes, parse: Callable[[str], Row], ticking: Callable[[bytes], Spans]) -> None:
        """`ticking` returns the places in a line of values, without spaces, that change all the time and are not read."""
        self._first = first
        self._parse = parse
        self._ticking = ticking
        self._keep([])

    def update(self, section: bytes) -> tuple[Row, ...]:
        """Return the rows of the section, in its order, the first of each name; lines that begin otherwise ("No ... in the system")
        are skipped."""
        lines = [line for line in section.split(b"\n") if line.startswith(self._first)]
        changed = self._changed(lines)
        if changed:
            known = {line.steady: line.row for line in self._lines}
            kept = self._lines[: len(lines)] + [_NO_LINE] * (len(lines) - len(self._lines))
            for number in changed:
                kept[number] = self._read(lines[number], known)
            self._keep(kept)
        elif len(lines) < len(self._lines):
            self._keep(self._lines[: len(lines)])
        return self._rows

    def _changed(self, lines: list[bytes]) -> list[int]:
        """Return the numbers of the lines whose content may differ from that of the former line with the same number."""
        former = [line.text for line in self._lines]
        other = {number for number, (line, old) in enumerate(zip(lines, former, strict=False)) if len(line) != len(old)}
        other.update(range(len(former), len(lines)))
        if former:
            # For the comparison, lines of another length and lines that are gone are replaced by the former ones.
            aligned = lines[: len(former)] + former[len(lines) :]
            for number in other.intersection(range(len(former))):
                aligned[number] = former[number]
            text = np.frombuffer(b"\n".join([*aligned, b""]), dtype=np.uint8)
            differs = np.flatnonzero(text != self._text)
            differs = differs[self._counts[differs]]
            # A space where something ticks would begin another field.
            spaces = self._ticks[text[self._ticks] == _SPACE]
            places = np.concatenate([differs, spaces])
            other.update((np.searchsorted(self._begins, places, side="right") - 1).tolist())
        return sorted(other)

    def _read(self, text: bytes, known: Mapping[bytes, Row]) -> _Line[Row]:
        pieces = []
        counts = bytearray(b"\1" * (len(text) + 1))
        begin = 0
        for tick, end in self._ticking(text):
            pieces.append(text[begin:tick])
            counts[tick:end] = bytes(end - tick)
            begin = end
        steady = b"\0".join([*pieces, text[begin:]])
        row = known.get(steady)
        return _Line(text, steady, bytes(counts), self._parse(readable(decode(text))) if row is None else row)

    def _keep(self, lines: list[_Line[Row]]) -> None:
        self._lines = lines
        rows: dict[str, Row] = {}
        for line in lines:
            # A line that repeats a name is a piece of an administrator's text with a line break, such as a node's Reason.
            rows.setdefault(line.row.name, line.row)
        self._rows = tuple(rows.values())
        self._text = np.frombuffer(b"\n".join([*(line.text for line in lines), b""]), dtype=np.uint8)
        self._counts = np.frombuffer(b"".join([line.counts for line in lines]), dtype=np.bool_)
        self._ticks = np.flatnonzero(~self._counts)
        lengths = np.array([0, *(len(line.counts) for line in lines)], dtype=np.int64)
        self._begins = np.cumsum(lengths)[:-1]


_SPACE = ord(" ")
_NO_LINE: _Line[Any] = _Line(b"", b"", b"", None)


def decode(line: bytes) -> str:
    """Return the line as text. Users' text may be in any encoding, and must survive byte for byte."""
    return line.decode("utf-8", "surrogateescape")
