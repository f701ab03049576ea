"""The store of profiles: measurements of jobs in one SQLite file beside the journal.

It has samples of nodes, throughputs by window, and profiles. A report is stored once, however often it is sent: its number is
written in the same transaction and then acknowledged. Throughputs are computed from samples (windows.py), and again when a late
sample of a window arrives. Everything is kept for a limited time. One process writes. A file that is damaged or of a newer version
is set aside (see sqlite_file), and a new one fills as jobs run: a working controller is worth more than old measurements.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from controller.base.sqlite_file import UnusableFileError, connect, is_damage, move_aside, name_aside, set_aside
from controller.base.sqlite_schema import prepare, transaction
from controller.profiles import tables
from controller.profiles.intake import Intake, claims_in
from controller.profiles.reader import ProfileReader, ProfileStoreError
from controller.profiles.sightings import Arrival, Sighting, gpu_models, profile_of, sighting_of
from controller.profiles.windows import Links, SlurmRun, Throughput, own_nodes, window_throughputs

__all__ = ["ProfileStore", "ProfileStoreError", "StoreSettings"]

log = structlog.get_logger(__name__)

_OF_A_ROW = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError)
"""Errors caused by the values to be written, not by the file."""
_RENEW_EVERY_S = 600.0
"""Minimum time between replacements of the file, so that a bad disk is not filled with damaged files."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Resolution of throughputs, and how long they are kept."""

    window_s: float = 30.0
    lag_s: float = 15.0
    """Delay after a window's end before it is computed, so that normal reports have arrived."""
    keep_samples_s: float = 2 * 3600.0
    """Time for which samples are kept. Reports that arrive later (the agent was cut off) do not count for throughputs."""
    keep_days: float = 90.0
    """Days that throughputs and profiles are kept."""
    keep_all_hours: float = 6.0
    """Older windows are thinned out: each run keeps its first `keep_first` windows without neighbours, as many with neighbours, and
    one window in every `keep_one_in`. So a short run keeps everything, and a run of a month does not fill the disk."""
    keep_first: int = 20
    keep_one_in: int = 20
    keep_receipts_days: float = 30.0
    """Days that the last report numbers of agents are kept after their last report, and that nodes are kept."""
    report_interval_s: float = 5.0
    """Interval at which agents report each job; the limit on the reports of one node follows from it."""


class ProfileStore(ProfileReader):
    """The one writer. Invariant: a report is stored whole, with its number, or not at all; and no report is stored twice."""

    def __init__(self, path: Path, settings: StoreSettings | None = None, links: Links = own_nodes) -> None:
        """Open the file, or make it (mode 0600 in a folder of mode 0700). Raises ProfileStoreError that says what to do.

        May be used by any thread, by one at a time.
        """
        self.settings = StoreSettings() if settings is None else settings
        self._links = links
        self._thinned_s = 0.0
        self._cut_short = False
        """True when it was logged that windows are dropped before `keep_days`."""
        self._pruned_profile = 0
        """Row number of the newest profile at the last `prune`."""
        self._gpu_models: dict[str, dict[int, str]] = {}
        """GPU models of each node, as in the file; only nodes that have reported since the last `prune`.
        Bound: these nodes."""
        self._runs: dict[int, SlurmRun] = {}
        """Slurm's present runs as last stored, by job. Bound: the jobs of one snapshot."""
        self._intake = Intake(self.settings.report_interval_s)
        self._path = path
        self._renewed_s = -_RENEW_EVERY_S
        self._ended = False
        """True when the file was closed and no other file could be opened yet: the next use tries again."""
        self._aside: Path | None = None
        """Path under which the damaged file is still to be set aside. It stays the same, so that a file and its write-ahead log
        get the same name, whenever they are moved."""
        super().__init__(self._open())

    @property
    def links(self) -> Links:
        """Function that returns the links and hosts that a job on given nodes uses."""
        return self._links

    def use_links(self, links: Links) -> None:
        """Use these links from now on, to find the jobs that share one."""
        self._links = links

    def _open(self) -> sqlite3.Connection:
        try:
            try:
                return self._prepared()
            except UnusableFileError as problem:
                aside = set_aside(self._path, problem.kind, time.time())
                log.error("profiles_set_aside", problem=str(problem), file=str(aside), effect="they are measured again")
                return self._prepared()
        except (OSError, sqlite3.Error, UnicodeDecodeError, UnusableFileError) as error:
            raise _unusable(self._path, error) from error

    def _prepared(self) -> sqlite3.Connection:
        """Open the file. Raises UnusableFileError when another file may replace it."""
        db = connect(self._path, any_thread=True)
        try:
            prepare(db, tables.STORE)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            db.close()
            if is_damage(error):
                raise UnusableFileError("damaged", str(error)) from error
            raise
        except UnusableFileError:
            db.close()
            raise
        return db

    def _failed(self, verb: str, error: Exception) -> ProfileStoreError:
        """Return the exception to raise for an error. A damaged file has been replaced when this returns, or the next use tries
        to replace it."""
        if is_damage(error) and time.monotonic() - self._renewed_s > _RENEW_EVERY_S:
            self._renewed_s = time.monotonic()
            with suppress(sqlite3.Error):
                self._db.close()
            self._ended = True
            self._aside = name_aside(self._path, "damaged", time.time())
            log.error("profiles_damaged", problem=str(error), effect="they are measured again")
            try:
                self._replace()
            except ProfileStoreError as problem:
                return problem
        return ProfileStoreError(f"profiles cannot be {verb}: {error}; is the disk full?")

    def _replace(self) -> None:
        """Set the damaged file aside, if it is still in place, and open a new one. Raises ProfileStoreError."""
        if self._aside is not None:
            try:
                move_aside(self._path, self._aside)
            except OSError as error:
                raise _unusable(self._path, error) from error
            log.error("profiles_set_aside", file=str(self._aside))
            self._aside = None
        self._db = self._open()
        self._ended = False
        self._thinned_s = 0.0
        self._pruned_profile = 0
        self._gpu_models.clear()
        self._runs = {}

    def _usable(self) -> sqlite3.Connection:
        """Return the open file. A damaged one that could not be replaced is replaced now. Raises ProfileStoreError."""
        if self._ended:
            self._replace()
        return self._db

    def close(self) -> None:
        """Write everything back into the one file, and close it."""
        self._db.close()

    # --- storing reports

    def highest(self, node: str, run_id: str) -> int:
        """Return the highest stored number of a report of that run of the agent; 0 when there is none."""
        return self._receipt(node, run_id)[0]

    def lost(self, node: str, run_id: str) -> int:
        """Return how many reports of that run with lower numbers never arrived, because the agent dropped them."""
        return self._receipt(node, run_id)[1]

    def _receipt(self, node: str, run_id: str) -> tuple[int, int]:
        with self._reading() as db:
            row = db.execute(
                "SELECT number, lost FROM receipt WHERE node = ? AND run_id = ?", (node, run_id)
            ).fetchone()
        return (0, 0) if row is None else (row[0], row[1])

    def take(self, arrivals: Sequence[Arrival]) -> list[bool]:
        """Store the new reports. Returns for each whether it was new. Raises ProfileStoreError, and then nothing is stored."""
        new = []
        with self._intake.counting(), self._writing() as db:
            for arrival in arrivals:
                number, highest = arrival.report.number, self.highest(arrival.node, arrival.run_id)
                new.append(number > highest)
                if number <= highest:
                    continue
                db.execute(
                    "INSERT INTO receipt VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                    " SET number = excluded.number, lost = lost + excluded.lost, time_s = excluded.time_s",
                    (arrival.node, arrival.run_id, number, number - highest - 1, arrival.time_s),
                )
                self._keep(db, arrival)
        return new

    def left_out(self) -> Counter[str]:
        """Return by node how many reports exceeded the limits and were not used, since the last call."""
        return self._intake.left_out()

    def _keep(self, db: sqlite3.Connection, arrival: Arrival) -> None:
        self._note_gpus(db, arrival)
        profile, found = profile_of(arrival), sighting_of(arrival, self._gpu_models_of(arrival.node))
        if not self._intake.permits(arrival.node, claims_in(profile, found), arrival.time_s):
            return
        if profile is not None:
            tables.insert_profile(db, profile)
        if found is None or found.time_s < arrival.time_s - self.settings.keep_samples_s:
            return  # other samples of that window may be deleted already, and throughputs from a part of a window would be wrong
        slot = self._slot(found.time_s)
        if found.sample is not None:
            tables.insert_sample(db, found.sample)
            self._keep_gpus(db, arrival, found)
            db.execute("INSERT OR IGNORE INTO due VALUES (?)", (slot,))
        db.executemany(
            "INSERT OR IGNORE INTO present VALUES (?, ?, ?)", [(slot, found.node, job_id) for job_id in found.present]
        )

    def _keep_gpus(self, db: sqlite3.Connection, arrival: Arrival, found: Sighting) -> None:
        """Store what a job's report says about the condition and the energy of its GPUs."""
        sample = found.sample
        if sample is None:
            return
        if found.impaired:
            row = found.time_s, found.node, sample.job_id, ",".join(found.impaired)
            db.execute("INSERT INTO impaired VALUES (?, ?, ?, ?)", row)
        if found.energy_j is not None:
            key = sample.job_id, sample.claimed_restart, found.node, arrival.run_id
            db.execute(tables.ADD_ENERGY, (*key, found.energy_j, found.time_s))

    def _note_gpus(self, db: sqlite3.Connection, arrival: Arrival) -> None:
        if arrival.report.WhichOneof("kind") != "telemetry":
            return
        models = gpu_models(arrival.report.telemetry)
        if models is not None and models != self._gpu_models_of(arrival.node):
            db.execute(
                "INSERT INTO node (name, gpu_models) VALUES (?, ?) ON CONFLICT DO UPDATE SET gpu_models = excluded.gpu_models",
                (arrival.node, json.dumps(models)),
            )
            self._gpu_models[arrival.node] = models

    def _gpu_models_of(self, node: str) -> dict[int, str]:
        """Return the node's GPU models as last reported, also by an earlier run of the agent."""
        if node not in self._gpu_models:
            with self._reading() as db:
                row = db.execute("SELECT gpu_models FROM node WHERE name = ?", (node,)).fetchone()
            self._gpu_models[node] = _gpu_models_in(row[0] if row else "{}")
        return self._gpu_models[node]

    def note_present(
        self, time_s: float, jobs_by_node: Mapping[str, Iterable[int]], runs: Iterable[SlurmRun] = ()
    ) -> None:
        """Store Slurm's numbers of the jobs on each node, and the present run of each job.

        A job that reports nothing is a neighbour too. Slurm's data, not a job's claim, decides to which run a report belongs.
        """
        slot = self._slot(time_s)
        rows = [(slot, node, job_id) for node, jobs in jobs_by_node.items() for job_id in jobs]
        noted = {run.run.job_id: run for run in runs}
        with self._writing() as db:
            db.executemany("INSERT OR IGNORE INTO present VALUES (?, ?, ?)", rows)
            for job_id, run in noted.items():
                if self._runs.get(job_id) != run:
                    tables.insert_run(db, run)
        self._runs = noted
        self._intake.note_present(time_s, jobs_by_node, (run.run for run in noted.values()))

    def note_node(self, name: str, link_bits_per_s: int | None, run_id: str = "", time_s: float = 0.0) -> None:
        """Store the speed of the node's fastest network interface. The node is kept as long as the receipt of a run of its agent:
        that of `run_id` begins at `time_s`, or goes on; empty: the agent is not connected."""
        with self._writing() as db:
            if run_id:
                db.execute(
                    "INSERT INTO receipt VALUES (?, ?, 0, 0, ?) ON CONFLICT DO UPDATE SET time_s = excluded.time_s",
                    (name, run_id, time_s),
                )
            db.execute(
                "INSERT INTO node (name, link_bits_per_s) VALUES (?, ?)"
                " ON CONFLICT DO UPDATE SET link_bits_per_s = excluded.link_bits_per_s",
                (name, link_bits_per_s),
            )

    def _slot(self, time_s: float) -> int:
        return int(time_s // self.settings.window_s)

    # --- throughputs by window

    def compute_windows(self, now_s: float) -> int:
        """Compute the windows that are over and have new samples. Returns their number. Raises ProfileStoreError."""
        last = self._slot(now_s - self.settings.lag_s - self.settings.window_s)
        with self._reading() as db:
            slots = [slot for (slot,) in db.execute("SELECT slot FROM due WHERE slot <= ? ORDER BY slot", (last,))]
        for slot in slots:
            found = self._observed(slot)
            with self._writing() as db:
                db.execute("DELETE FROM observation WHERE start_s = ?", (slot * self.settings.window_s,))
                for item in found:
                    tables.insert_throughput(db, item)
                db.execute("DELETE FROM due WHERE slot = ?", (slot,))
        return len(slots)

    def _observed(self, slot: int) -> list[Throughput]:
        """Return the throughputs of a window; none when its values are impossible, so that it does not block later windows."""
        try:
            with self._reading():
                return self._observe(slot)
        except (ValueError, TypeError, ArithmeticError, LookupError) as error:
            log.error("window_left_out", slot=slot, problem=f"{type(error).__name__}: {str(error)[:200]}")
            return []

    def _observe(self, slot: int) -> list[Throughput]:
        start_s, length_s = slot * self.settings.window_s, self.settings.window_s
        rows = self._db.execute(f"{tables.SAMPLES} WHERE time_s >= ? AND time_s < ?", (start_s, start_s + length_s))
        samples = [tables.sample(row) for row in rows]
        present: dict[str, list[int]] = defaultdict(list)
        for node, job_id in self._db.execute("SELECT node, job_id FROM present WHERE slot = ?", (slot,)):
            present[node].append(job_id)
        runs = tables.runs_of(self._db, (sample.job_id for sample in samples))
        impaired = {job_id for job_id, _ in self._db.execute(tables.IMPAIRED, (start_s, start_s + length_s))}
        return window_throughputs(samples, start_s, length_s, present, self._links, runs, impaired)

    # --- retention

    def prune(self, now_s: float) -> None:
        """Delete what is older than the settings allow."""
        # One window more than the latest report: no window is computed from a part of its samples.
        samples_s = now_s - self.settings.keep_samples_s - 2 * self.settings.window_s
        kept_s = now_s - self.settings.keep_days * 86400
        thin_s = now_s - self.settings.keep_all_hours * 3600
        thinning = tables.Thinning(self.settings.window_s, self.settings.keep_first, self.settings.keep_one_in)
        self._gpu_models.clear()  # it is read again for the nodes that are still there
        with self._writing() as db:
            db.execute("DELETE FROM sight WHERE time_s < ?", (samples_s,))
            db.execute("DELETE FROM impaired WHERE time_s < ?", (samples_s,))
            db.execute("DELETE FROM energy WHERE time_s < ?", (kept_s,))
            db.execute("DELETE FROM present WHERE slot < ?", (self._slot(samples_s),))
            db.execute("DELETE FROM due WHERE slot <= ?", (self._slot(samples_s),))
            db.execute("DELETE FROM observation WHERE start_s < ?", (kept_s,))
            thinning.apply(db, self._thinned_s, thin_s)  # a later call keeps what this one has kept
            oldest_s = tables.limit_windows(db, thinning, thin_s)
            db.execute("DELETE FROM profile WHERE time_s < ?", (kept_s,))
            db.execute(tables.SURPLUS, {"since": self._pruned_profile, "most": tables.MAX_PROFILES})
            (newest,) = db.execute("SELECT IFNULL(MAX(id), 0) FROM profile").fetchone()
            db.execute("DELETE FROM run WHERE start_s < ? AND job_id NOT IN (SELECT job_id FROM present)", (kept_s,))
            db.execute("DELETE FROM receipt WHERE time_s < ?", (now_s - self.settings.keep_receipts_days * 86400,))
            tables.limit_rows(db)
            db.execute("DELETE FROM node WHERE name NOT IN (SELECT node FROM receipt)")
        # Only now: after a failure the next call has the same work to do.
        self._pruned_profile = newest
        self._thinned_s = max(self._thinned_s, thin_s - self.settings.keep_samples_s)  # windows may be as late as this
        if oldest_s is not None and not self._cut_short:
            self._cut_short = True
            days = (now_s - oldest_s) / 86400
            log.warning("windows_cut_short", kept_days=round(days, 1), keep_days=self.settings.keep_days)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Write atomically. Errors of SQLite are raised as ProfileStoreError, except those of the values in a row."""
        try:
            with transaction(self._usable()) as db:
                yield db
        except _OF_A_ROW:  # another attempt would fail too
            self._gpu_models.clear()
            raise
        except sqlite3.Error as error:
            self._gpu_models.clear()  # they may be of what was not written
            raise self._failed("written", error) from error

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Read; errors of SQLite are raised as ProfileStoreError."""
        try:
            yield self._usable()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if self._db.in_transaction:  # inside a write that needs this data
                raise
            raise self._failed("read", error) from error


def _gpu_models_in(text: str) -> dict[int, str]:
    """Return the models in the stored text; none when it is damaged: the agent reports them again."""
    try:
        return {int(index): str(model) for index, model in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _unusable(path: Path, error: Exception) -> ProfileStoreError:
    return ProfileStoreError(
        f"{path}: the store of profiles cannot be opened: {error}; check owner, mode and free space of the folder"
    )
