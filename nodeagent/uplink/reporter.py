"""Destinations of reports: the controller, or a file of JSON lines for tests and for debugging."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from nodeagent.saves.coordinator import SaveAnswer
from nodeagent.wire.report import NodeReport


class Reporter(Protocol):
    """Receives reports. `run` is a task beside the agent's cycles, until it is cancelled."""

    def report(self, report: NodeReport) -> None:
        """Receive a report. Must not wait, and must not raise."""
        ...

    def report_early(self, report: NodeReport) -> None:
        """Receive rows of some jobs before the next report; the rest of this report is empty. Must not wait or raise."""
        ...

    def answer(self, answer: SaveAnswer) -> None:
        """Receive the outcome of a save. Must not wait or raise."""
        ...

    async def run(self) -> None:
        """Deliver the reports."""
        ...


class FileReporter:
    """One JSON object per line, at the end of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def report(self, report: NodeReport) -> None:
        """Write one line."""
        self._write(asdict(report))

    def report_early(self, report: NodeReport) -> None:
        """Do nothing: the next report has the same rows."""

    def answer(self, answer: SaveAnswer) -> None:
        """Write one line."""
        self._write({"answer": asdict(answer)})

    def _write(self, row: dict[str, Any]) -> None:
        # Bound: a test, or the time for which somebody debugs; no program of an installation uses this class.
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    async def run(self) -> None:
        """Do nothing: lines are written at once."""
