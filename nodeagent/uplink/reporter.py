"""Where reports go: the controller, or a file of JSON lines for tests and for looking."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from nodeagent.saves.coordinator import SaveAnswer
from nodeagent.wire.report import NodeReport


class Reporter(Protocol):
    """Takes reports. `run` goes on beside the agent until it is cancelled."""

    def report(self, report: NodeReport) -> None:
        """Take one: it must not wait, and must not raise."""
        ...

    def report_early(self, report: NodeReport) -> None:
        """Take rows of some jobs before the next report: nothing else of this one counts. As above."""
        ...

    def answer(self, answer: SaveAnswer) -> None:
        """Take what came of a save that was asked for. As above."""
        ...

    async def run(self) -> None:
        """Carry them where they belong."""
        ...


class FileReporter:
    """One JSON object per line, at the end of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def report(self, report: NodeReport) -> None:
        """Write one line."""
        self._write(asdict(report))

    def report_early(self, report: NodeReport) -> None:
        """The next line tells it."""

    def answer(self, answer: SaveAnswer) -> None:
        """Write one line."""
        self._write({"answer": asdict(answer)})

    def _write(self, row: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    async def run(self) -> None:
        """Nothing to do: lines are written at once."""
