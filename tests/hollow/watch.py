"""Measures a controller from outside: how late its lease is renewed, how long its cycles take, which jobs it has released."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

_INTERVAL_S = 0.05
_FAILED = "cycle_failed"
_CYCLE = re.compile(r"\bcycle\b.*plan_s=([\d.]+).*read_s=([\d.]+)")


class LeaseWatch:
    """Measures the longest time between two renewals of a lease, from the first one that it sees."""

    def __init__(self, lease: Path) -> None:
        self._lease = lease
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.longest_s = 0.0
        """Longest time between two renewals so far."""

    def _watch(self) -> None:
        renewed: float | None = None
        while not self._stop.wait(_INTERVAL_S):
            looked_s = time.time()  # before the look, so that a delay of this thread after it does not count
            try:
                written_s = self._lease.stat().st_mtime
            except FileNotFoundError:
                continue
            before, renewed = renewed, written_s
            if before is not None:
                # The renewal that is due counts too, as a controller that hangs never renews again.
                self.longest_s = max(self.longest_s, written_s - before, looked_s - written_s)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()


def cycles(log: str) -> list[tuple[float, float]]:
    """Return (time to read the cluster, time from then to the plan) of each cycle in a log of level debug, seconds."""
    return [(float(match[2]), float(match[1])) for match in _CYCLE.finditer(log)]


def failed_cycles(log: str) -> int:
    """Return the number of cycles in a log of the controller that ended with an error."""
    return log.count(_FAILED)


def steps(journal: Path, verb: str) -> dict[str, int]:
    """Return how many steps of that verb ended in each way: "done", or Slurm's objection."""
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as database:
        query = "SELECT outcome, COUNT(*) FROM intent WHERE verb = ? AND outcome IS NOT NULL GROUP BY 1"
        return dict(database.execute(query, (verb,)))


def released_twice(journal: Path) -> int:
    """Return the number of jobs that were released more than once."""
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as database:
        query = (
            "SELECT COUNT(*) FROM (SELECT 1 FROM intent WHERE verb = 'release' AND outcome = 'done' "
            "GROUP BY job_id, submit_time_s HAVING COUNT(*) > 1)"
        )
        return int(database.execute(query).fetchone()[0])
