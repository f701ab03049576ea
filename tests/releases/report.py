"""The table of all results, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from tests.releases.release import Result

_COLOURS = {"ok": "green", "failed": "red", "skipped": "yellow"}
_SHOWN = 5
"""Failures of a part in the table; JSON has all."""


def table(results: Sequence[Result]) -> Table:
    """Return one row for each part of each release."""
    made = Table(title="Headway on releases of Slurm")
    for column in ("Slurm", "part", "result", "seconds", "what"):
        made.add_column(column, justify="right" if column == "seconds" else "left")
    for result in results:
        colour = _COLOURS[result.verdict]
        more = [f"and {len(result.failures) - _SHOWN} more"] if len(result.failures) > _SHOWN else []
        lines = [result.detail, *result.failures[:_SHOWN], *more]
        made.add_row(
            result.release, result.part, f"[{colour}]{result.verdict}[/]", f"{result.duration_s:.0f}", "\n".join(lines)
        )
    return made


def as_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the results as JSON values."""
    return [
        {
            "release": result.release,
            "part": result.part,
            "result": result.verdict,
            "detail": result.detail,
            "failures": list(result.failures),
            "duration_s": round(result.duration_s, 1),
        }
        for result in results
    ]


def status(results: Sequence[Result]) -> int:
    """Return the exit status: 1 when a part has failed."""
    return int(any(result.verdict == "failed" for result in results))
