"""Ended jobs of the journal, as forecasts read them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from controller.state.typed_rows import well_typed

NEWEST = 10_000
"""Maximum number of ended jobs that are read, the last ones."""
_TIMEOUT_S = 1.0

StoredKey = tuple[str, int]
"""Id and submit time of a job, as `controller.state.journal_rows.encode_key` gives them."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """One ended job. Times in seconds since the Unix epoch."""

    key: StoredKey
    user: str
    name: str
    start_s: float | None
    """Start of its last run; None: it never ran."""
    end_s: float
    service_s: float
    num_gpus: int
    """GPUs of its runs, on average by their time, for a job that was resized."""

    @property
    def submit_s(self) -> float:
        """Its submission."""
        return float(self.key[1])


def read_past_runs(journal: Path) -> list[PastRun]:
    """Return the newest ended jobs, by submission. The journal is only read. Raises sqlite3.Error."""
    with closing(sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True, timeout=_TIMEOUT_S)) as db:
        rows = db.execute(
            "SELECT job_id, submit_time_s, user, name, start_time_s, end_time_s, service_s, num_gpus, gpu_s FROM run"
            " ORDER BY end_time_s DESC LIMIT ?",
            (NEWEST,),
        ).fetchall()
    kinds = ("text", "number", "text", "text", "number?", "number", "number", "number", "number?")
    runs = [
        PastRun((job_id, int(submit_s)), user, name, start_s, end_s, service_s, _gpus(service_s, num_gpus, gpu_s))
        for job_id, submit_s, user, name, start_s, end_s, service_s, num_gpus, gpu_s in well_typed(rows, *kinds)
    ]
    return sorted(runs, key=lambda run: run.key[1])


def _gpus(service_s: float, num_gpus: int, gpu_s: float | None) -> int:
    """Return the GPUs of a job on average. `num_gpus`: those of its last run, `gpu_s`: None in rows of earlier versions."""
    return max(round(gpu_s / service_s), 1) if gpu_s and service_s > 0 else num_gpus
