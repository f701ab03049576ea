"""Where reports go: the controller, or a file of JSON lines for tests and for looking."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from nodeagent.report import NodeReport


class Reporter(Protocol):
    """Takes reports. `run` goes on beside the agent until it is cancelled."""

    def report(self, report: NodeReport) -> None:
        """Take one: it must not wait, and must not raise."""
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
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(report)) + "\n")

    async def run(self) -> None:
        """Nothing to do: lines are written at once."""
