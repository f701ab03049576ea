"""The file of the node's metrics, for the textfile collector of node_exporter."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import structlog

from nodeagent.metrics.families import exposition
from nodeagent.metrics.node_families import node_families
from nodeagent.wire.report import NodeReport

log = structlog.get_logger(__name__)

_MODE = 0o644


class MetricsFile:
    """Writes the file. Invariant: a reader sees one whole report, and none once the agent has ended."""

    def __init__(self, path: Path | None) -> None:
        """`path` ends in .prom, in a folder that exists; None: nothing is written."""
        self._path = path
        self._problem = ""

    def write(self, report: NodeReport) -> None:
        """Replace the file. A failure is logged once, and costs nothing else."""
        if self._path is None:
            return
        beside = self._path.with_name(f".{self._path.name}.new")
        try:
            text = exposition(node_families(report))
            # Made anew each time: whatever lies there is not written through.
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w") as file:
                file.write(text)
                os.fchmod(file.fileno(), _MODE)  # the service's umask may be stricter
            beside.replace(self._path)
        except OSError as error:
            if str(error) != self._problem:
                log.error("metrics_not_written", file=str(self._path), problem=str(error))
            self._problem = str(error)
        else:
            self._problem = ""

    def remove(self) -> None:
        """Remove the file: old values must not be taken for present ones."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
