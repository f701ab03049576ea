"""The errors of this package."""

from __future__ import annotations

from pathlib import Path


class SimulatorError(Exception):
    """Base of every error that the package raises on purpose: the text says what is wrong, where, and what to do."""


class RuleTooSlowError(SimulatorError):
    """The rule takes too much CPU time on this queue for samples of it; another rule must stand in."""

    def __init__(self) -> None:
        super().__init__("the policy's rule takes too long on this queue; use a rule that does not stop jobs")


class TraceError(SimulatorError):
    """A trace or a log cannot be read: the text says where, quotes the cause, and says what is wrong and what to do.

    `path` is the file, `line` its line (of a parquet file: its row), both counted from 1, `column` the column's name,
    `text` the text in question; None where there is none.
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
        reason, mend = _clipped(reason), _clipped(mend)
        places = [str(path or ""), f"line {line}" if line else "", f"column {_clipped(column)}" if column else ""]
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
    """Return the text in quotes, shortened so that the message stays one line."""
    return repr(text if len(text) <= most else text[:most] + "…")


def _clipped(text: str, most: int = 1000) -> str:
    """Return what may quote a file, cut off and without what cannot be printed, so that a file cannot fill a terminal or a log."""
    printable = (
        text if text.isprintable() else "".join(each if each.isprintable() or each == "\n" else "?" for each in text)
    )
    return printable if len(printable) <= most else f"{printable[:most]}…"


class SettingError(SimulatorError):
    """A setting of a run is impossible: the text names it and the possible values."""


class DecisionError(SimulatorError):
    """A decision cannot be applied: the text names the policy, the job and the violated rule."""


class ClusterError(SimulatorError):
    """A description of a cluster is invalid: the text says where, what is wrong, and what to do.

    `path` is the file and `key` its key (`nodes[0].gpus`); None where there is none.
    """

    def __init__(self, reason: str, *, mend: str, path: Path | str | None = None, key: str | None = None) -> None:
        reason, mend, key = _clipped(reason), _clipped(mend), _clipped(key) if key else key
        where = ", ".join(str(place) for place in (path, key) if place)
        super().__init__(f"{where}{': ' if where else ''}{reason}; {mend}")
        self.reason = reason
        self.mend = mend
        self.path = Path(path) if path else None
        self.key = key

    def at(self, path: Path | str) -> ClusterError:
        """Return the same error with the file of the cause."""
        return self if self.path else ClusterError(self.reason, mend=self.mend, path=path, key=self.key)


class SlowdownError(SimulatorError):
    """A slowdown model or a profile is invalid: the text says what is wrong and what to do."""

    def __init__(self, reason: str, *, mend: str, path: Path | str | None = None) -> None:
        reason, mend = _clipped(reason), _clipped(mend)
        super().__init__(f"{path}: {reason}; {mend}" if path else f"{reason}; {mend}")
        self.reason = reason
        self.mend = mend
        self.path = Path(path) if path else None


class WorkerError(SimulatorError):
    """A worker process of a vectorized environment has died, or an environment in it raised: the text says which one, and how."""
