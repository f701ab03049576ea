"""Queries on the store of profiles. Readers beside the one writer (store.py) see only complete writes."""

from __future__ import annotations

import math
import os
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from controller.base.errors import HeadwayError
from controller.base.sqlite_file import UnusableFileError, connect_read_only
from controller.profiles import tables
from controller.profiles.sightings import ProfileRow
from controller.profiles.windows import RunKey, RunShape, Throughput, Trained


class ProfileStoreError(HeadwayError):
    """The file of profiles cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Kind:
    """All windows of jobs of one user, script, model and batch size at one shape."""

    trained: Trained
    shape: RunShape
    windows: int
    alone: int
    """Number of windows without neighbours."""
    jobs: int
    last_s: float
    """Beginning of the newest window, Unix time."""


class ProfileReader:
    """Queries on the store. Any thread may use a reader, but only one at a time."""

    def __init__(self, db: sqlite3.Connection, file: os.stat_result | None = None) -> None:
        """Read from an open database; `file` identifies its file, for `newest`."""
        self._db = db
        self._file = file

    @classmethod
    def open(cls, path: Path) -> ProfileReader:
        """Open the file that a ProfileStore of this process uses. Raises ProfileStoreError."""
        try:
            return cls(connect_read_only(path, any_thread=True), path.stat())
        except (OSError, sqlite3.Error, UnusableFileError) as error:
            raise ProfileStoreError(f"{path}: cannot be read: {error}; check its owner and mode") from error

    def newest(self, path: Path) -> ProfileReader:
        """Return this reader, or a reader of the file that has replaced its own. Raises ProfileStoreError."""
        with suppress(OSError):
            if self._file is not None and os.path.samestat(self._file, path.stat()):
                return self
        fresh = ProfileReader.open(path)
        self.close()
        return fresh

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def throughputs(self, since_s: float = 0.0, run: RunKey | None = None) -> Iterator[Throughput]:
        """Yield throughputs since then, oldest first; of one run, or of all."""
        if run is None:
            rows = self._db.execute(f"{tables.THROUGHPUTS} WHERE start_s >= ? ORDER BY start_s, job_id", (since_s,))
        else:
            rows = self._db.execute(
                f"{tables.THROUGHPUTS} WHERE job_id = ? AND start_s >= ? AND restart = ? ORDER BY start_s",
                (run.job_id, since_s, run.restart),
            )
        yield from map(tables.throughput, rows)

    def newest_of_runs(self, since_s: float) -> list[Throughput]:
        """Return the newest throughput since then of each run."""
        newest = tables.THROUGHPUTS.replace(
            "start_s", "MAX(start_s)", 1
        )  # SQLite takes the other columns from the same row
        # The plus keeps SQLite from reading the whole index of jobs: only few windows are wanted.
        rows = self._db.execute(f"{newest} WHERE start_s >= ? GROUP BY +job_id, restart", (since_s,))
        return [tables.throughput(row) for row in rows]

    def alone(self, trained: Trained, shape: RunShape, limit: int) -> dict[int, list[float]]:
        """Return speeds without neighbours of jobs of that kind and shape by job, from the newest `limit` windows."""
        rows = self._db.execute(
            f"{tables.RATES} WHERE {tables.OF_KIND} AND alone = 1 ORDER BY start_s DESC LIMIT ?",
            (*tables.kind(trained, shape), limit),
        )
        found: dict[int, list[float]] = defaultdict(list)
        for job_id, steps_per_s in rows:
            found[job_id].append(steps_per_s)
        return dict(found)

    def own_alone(self, job_id: int, trained: Trained, shape: RunShape, limit: int) -> list[tuple[float, float]]:
        """Return times and speeds of the newest `limit` windows without neighbours of a job, all runs together, newest first."""
        rows = self._db.execute(tables.OWN_ALONE, (job_id, *tables.kind(trained, shape), limit))
        return [(start_s, steps_per_s) for start_s, steps_per_s in rows]

    def busy(self, job_id: int, trained: Trained, shape: RunShape, limit: int) -> dict[int, float]:
        """Return the median computing time per step of this job and of jobs of that kind and shape, in seconds.

        From the newest `limit` profiles of the job, and the newest `limit` of its kind, so that the rows that are read do
        not grow with the store, and profiles of others do not displace its own.
        """
        kind = tables.kind(trained, shape)
        found: dict[int, list[float]] = defaultdict(list)
        for other, busy_s in self._db.execute(tables.BUSY_OF_KIND, (*kind, limit)):
            found[other].append(busy_s)
        own = [busy_s for _, busy_s in self._db.execute(tables.BUSY_OF_JOB, (job_id, *kind, limit))]
        if own:
            found[job_id] = own
        return {other: median(values) for other, values in found.items()}

    def profiles(self, since_s: float = 0.0) -> Iterator[ProfileRow]:
        """Yield all profiles since then, oldest first."""
        yield from map(
            tables.profile, self._db.execute(f"{tables.PROFILES} WHERE time_s >= ? ORDER BY time_s, id", (since_s,))
        )

    def profiles_like(self, trained: Trained, shape: RunShape, limit: int) -> list[ProfileRow]:
        """Return profiles of jobs of that kind and shape, newest first."""
        rows = self._db.execute(
            f"{tables.PROFILES} WHERE {tables.OF_KIND} ORDER BY time_s DESC, id DESC LIMIT ?",
            (*tables.kind(trained, shape), limit),
        )
        return [tables.profile(row) for row in rows]

    def link_bytes_per_s(self, nodes: Collection[str]) -> float | None:
        """Return the lowest speed, bytes/s in each direction, of the nodes' fastest interfaces; None when one is not known."""
        rates = [
            self._db.execute("SELECT link_bits_per_s FROM node WHERE name = ?", (node,)).fetchone() for node in nodes
        ]
        known = [row[0] for row in rates if row is not None and row[0]]
        return min(known) / 8 if known and len(known) == len(rates) else None

    def nic_gbyte_s(self) -> dict[str, float]:
        """Return the speed of each node's fastest network interface, GB/s in each direction, as far as agents report it."""
        found = self._db.execute("SELECT name, link_bits_per_s FROM node WHERE link_bits_per_s > 0")
        return {name: bits_per_s / 8e9 for name, bits_per_s in found}

    def newest_s(self) -> float:
        """Return the beginning of the newest computed window; 0 when there is none."""
        (start_s,) = self._db.execute("SELECT MAX(start_s) FROM observation").fetchone()
        return 0.0 if start_s is None else float(start_s)

    def beginning_of_last(self, throughputs: int) -> float:
        """Return the beginning of the oldest of the last `throughputs` throughputs; 0 when there are fewer."""
        row = self._db.execute(
            "SELECT start_s FROM observation ORDER BY start_s DESC LIMIT 1 OFFSET ?", (throughputs,)
        ).fetchone()
        return 0.0 if row is None else float(row[0])

    def throughputs_of(self, job_id: int, limit: int) -> list[Throughput]:
        """Return the newest throughputs of all runs of a job, newest first."""
        rows = self._db.execute(f"{tables.THROUGHPUTS} WHERE job_id = ? ORDER BY start_s DESC LIMIT ?", (job_id, limit))
        return [tables.throughput(row) for row in rows]

    def impaired(self, since_s: float) -> dict[int, str]:
        """Return the causes ("power,thermal") by number of the jobs whose GPUs were impaired since then, in the newest report."""
        rows = self._db.execute(f"{tables.IMPAIRED} ORDER BY time_s", (since_s, math.inf))
        return {int(job_id): str(causes) for job_id, causes in rows}

    def energy_j(self, job_id: int, since_s: float) -> float | None:
        """Return the energy of the job's GPUs in all runs that were reported since then, joules; None when none was reported."""
        (joules,) = self._db.execute(
            "SELECT SUM(joules) FROM energy WHERE job_id = ? AND time_s >= ?", (job_id, since_s)
        ).fetchone()
        return None if joules is None else float(joules)

    def profiles_of(self, job_id: int, limit: int) -> list[ProfileRow]:
        """Return the newest profiles of all runs of a job, newest first."""
        rows = self._db.execute(
            f"{tables.PROFILES} WHERE job_id = ? ORDER BY time_s DESC, id DESC LIMIT ?", (job_id, limit)
        )
        return [tables.profile(row) for row in rows]

    def kinds(self, limit: int, skip: int = 0, until_s: float = math.inf) -> list[Kind]:
        """Return the kinds of jobs that were seen, the newest first, without the first `skip` of them.

        Windows that began later than `until_s` do not count: so the order stays while new ones are computed.
        """
        rows = self._db.execute(
            "SELECT uid, script, signature, batch_size, gpus, nodes, gpu_model, COUNT(*), SUM(alone), COUNT(DISTINCT job_id),"
            " MAX(start_s) FROM observation WHERE start_s <= ? GROUP BY uid, script, signature, batch_size, gpus, nodes, gpu_model"
            " ORDER BY MAX(start_s) DESC, uid, script, signature, batch_size, gpus, nodes, gpu_model LIMIT ? OFFSET ?",
            (until_s, limit, skip),
        )
        return [Kind(Trained(*row[:4]), RunShape(*row[4:7]), *row[7:]) for row in rows]


class CachingReader(ProfileReader):
    """A reader that keeps its answers for each kind of job, for use over many jobs at one moment."""

    def __init__(self, store: ProfileReader) -> None:
        super().__init__(store._db)
        self._alone: dict[tuple[Trained, RunShape, int], dict[int, list[float]]] = {}
        """Bound: the kinds of jobs of one piece of work."""

    def alone(self, trained: Trained, shape: RunShape, limit: int) -> dict[int, list[float]]:
        """See ProfileReader."""
        key = trained, shape, limit
        if key not in self._alone:
            self._alone[key] = super().alone(trained, shape, limit)
        return dict(self._alone[key])
