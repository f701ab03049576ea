"""The last reading of each job, so that a change can begin without reading them again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from controller.slurm.model.job import JobKey
from controller.slurm.records import JobRecord
from controller.slurm.updates.found import Found


class Memory:
    """The last reading of each job, by id. Invariant: only the newest reading of an id is kept."""

    def __init__(self) -> None:
        self._readings: list[tuple[float, Iterable[JobRecord]]] = []
        """Readings that have no index yet. Bound: those since `forget`, which each full reading calls."""
        self._found: dict[str, tuple[float, Found]] = {}
        """Bound: the jobs of one full reading, and those read one by one since then."""

    def forget(self) -> None:
        """Forget everything."""
        self._readings.clear()
        self._found.clear()

    def add(self, records: Iterable[JobRecord]) -> None:
        """Remember a reading; its index is made at the first query."""
        self._readings.append((time.monotonic(), records))

    def drop(self, job_id: str) -> None:
        """Forget a job that Slurm does not know any more."""
        self._index()
        self._found.pop(job_id, None)

    def latest(self, job_id: str) -> Found | None:
        """Return the last reading of the job with that id."""
        self._index()
        return self._found.get(job_id, (0.0, None))[1]

    def get(self, key: JobKey, max_age_s: float = math.inf) -> Found | None:
        """Return the job, if it was read recently enough and is the right one."""
        self._index()
        read_at, found = self._found.get(key.job_id, (0.0, None))
        if found is None or found.job.key != key or time.monotonic() - read_at > max_age_s:
            return None
        return found

    def _index(self) -> None:
        for read_at, records in self._readings:
            for record in records:
                for job in record.jobs:
                    self._found[job.key.job_id] = (read_at, Found(job, record))
        self._readings.clear()
