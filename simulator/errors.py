"""The errors of this package."""

from __future__ import annotations

from pathlib import Path


class SimulatorError(Exception):
    """Base of every error that the package raises on purpose: the text says what, where, and the mend."""


class TraceError(SimulatorError):
    """A trace, or a log that was to become one, cannot be read: the text says where, what stands there, why not, and the mend.

    `path` is the file, `line` its line (of a parquet file: its row), both counted from 1, `column` the column's name,
    `text` what stands there; None where there is no such thing to name.
    """

    def __init__(
        self,
        reason: str,
        *,
        mend: str,
        path: Path | str | None = None,
        line: int | None = None,
        column: str | None = None,
        text: str | None = None,
    ) -> None:
        places = [str(path or ""), f"line {line}" if line else "", f"column {column}" if column else ""]
        where = ", ".join(place for place in places if place)
        found = f"{_shortened(text)} " if text is not None else ""
        super().__init__(f"{where}{': ' if where else ''}{found}{reason}; {mend}")
        self.reason = reason
        self.mend = mend
        self.path = Path(path) if path else None
        self.line = line
        self.column = column
        self.text = text


def _shortened(text: str, most: int = 60) -> str:
    """The text in quotes, cut where it is long, so that the message stays one line."""
    return repr(text if len(text) <= most else text[:most] + "…")
