"""The tables of the store of profiles; functions that insert and decode rows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

from controller.base.sqlite_schema import Schema, split_statements
from controller.profiles.sightings import ProfileRow
from controller.profiles.windows import Neighbour, RunKey, RunShape, Sample, SlurmRun, Throughput, Trained

_TABLES = """
-- Bound: keep_receipts_days, and MAX_OF_NODE for each node.
CREATE TABLE IF NOT EXISTS receipt (
    node TEXT NOT NULL, run_id TEXT NOT NULL, number INTEGER NOT NULL, lost INTEGER NOT NULL, time_s REAL NOT NULL,
    PRIMARY KEY (node, run_id)) WITHOUT ROWID;
-- Bound: the nodes with a receipt.
CREATE TABLE IF NOT EXISTS node (
    name TEXT PRIMARY KEY, link_bits_per_s INTEGER, gpu_models TEXT NOT NULL DEFAULT '{}') WITHOUT ROWID;
-- Bound: the runs of Slurm within keep_days.
CREATE TABLE IF NOT EXISTS run (
    job_id INTEGER NOT NULL, restart INTEGER NOT NULL, start_s REAL NOT NULL, PRIMARY KEY (job_id, restart)) WITHOUT ROWID;
-- Bound: keep_samples_s, and what the intake permits within it.
CREATE TABLE IF NOT EXISTS sight (
    time_s REAL NOT NULL, node TEXT NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
    uid INTEGER NOT NULL, script TEXT NOT NULL, signature TEXT NOT NULL, num_ranks INTEGER NOT NULL, world_size INTEGER,
    gpus INTEGER, idle_gpus INTEGER, sockets INTEGER, steps INTEGER, last_step_ns INTEGER, monotonic_ns INTEGER NOT NULL,
    batch_size INTEGER, first_seen_ns INTEGER, gpu_model TEXT NOT NULL DEFAULT '', several INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS sight_time ON sight (time_s);
-- Bound: the jobs on the nodes within keep_samples_s: those of Slurm, and what the intake permits.
CREATE TABLE IF NOT EXISTS present (
    slot INTEGER NOT NULL, node TEXT NOT NULL, job_id INTEGER NOT NULL, PRIMARY KEY (slot, node, job_id)) WITHOUT ROWID;
-- Bound: keep_samples_s, and one row for each sample.
CREATE TABLE IF NOT EXISTS impaired (
    time_s REAL NOT NULL, node TEXT NOT NULL, job_id INTEGER NOT NULL, causes TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS impaired_time ON impaired (time_s);
-- Bound: keep_days, and MAX_OF_NODE for each node.
CREATE TABLE IF NOT EXISTS energy (
    job_id INTEGER NOT NULL, restart INTEGER NOT NULL, node TEXT NOT NULL, run_id TEXT NOT NULL, joules REAL NOT NULL,
    time_s REAL NOT NULL, PRIMARY KEY (job_id, restart, node, run_id)) WITHOUT ROWID;
-- Bound: the windows within keep_samples_s.
CREATE TABLE IF NOT EXISTS due (slot INTEGER PRIMARY KEY);
-- Bound: keep_days, and MAX_OBSERVATIONS.
CREATE TABLE IF NOT EXISTS observation (
    start_s REAL NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
    uid INTEGER NOT NULL, script TEXT NOT NULL, signature TEXT NOT NULL, gpus INTEGER NOT NULL, nodes INTEGER NOT NULL,
    hosts TEXT NOT NULL, steps INTEGER NOT NULL, steps_per_s REAL NOT NULL, idle_gpus INTEGER NOT NULL, sockets INTEGER,
    alone INTEGER NOT NULL, neighbours TEXT NOT NULL, batch_size INTEGER, gpu_model TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (start_s, job_id, restart)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS observation_kind ON observation (uid, script, signature, gpus, nodes, alone);
CREATE INDEX IF NOT EXISTS observation_job ON observation (job_id, start_s);
CREATE INDEX IF NOT EXISTS observation_own ON observation (job_id, start_s) WHERE alone = 1;
-- Bound: keep_days, MAX_PROFILES for each run and node, and MAX_OF_NODE for each node.
CREATE TABLE IF NOT EXISTS profile (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, node TEXT NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
    uid INTEGER NOT NULL, script TEXT NOT NULL, signature TEXT NOT NULL, param_bytes INTEGER, world_size INTEGER,
    steps INTEGER NOT NULL, step_s REAL NOT NULL, compute_s REAL NOT NULL, exposed_s REAL NOT NULL, hidden_s REAL NOT NULL,
    kinds TEXT NOT NULL, gpus INTEGER, nodes INTEGER, batch_size INTEGER, busy_s REAL, gpu_model TEXT NOT NULL DEFAULT '',
    link_kinds TEXT, local_exposed_s REAL, local_hidden_s REAL);
CREATE INDEX IF NOT EXISTS profile_kind ON profile (uid, script, signature);
CREATE INDEX IF NOT EXISTS profile_job ON profile (job_id, restart);
CREATE INDEX IF NOT EXISTS profile_node ON profile (node, time_s);
CREATE INDEX IF NOT EXISTS energy_node ON energy (node, time_s);
"""

_FROM_1 = """
ALTER TABLE node ADD COLUMN gpu_models TEXT NOT NULL DEFAULT '{}';
ALTER TABLE sight ADD COLUMN batch_size INTEGER;
ALTER TABLE sight ADD COLUMN first_seen_ns INTEGER;
ALTER TABLE sight ADD COLUMN gpu_model TEXT NOT NULL DEFAULT '';
ALTER TABLE sight ADD COLUMN several INTEGER NOT NULL DEFAULT 0;
ALTER TABLE observation ADD COLUMN batch_size INTEGER;
ALTER TABLE observation ADD COLUMN gpu_model TEXT NOT NULL DEFAULT '';
ALTER TABLE profile ADD COLUMN batch_size INTEGER;
ALTER TABLE profile ADD COLUMN busy_s REAL;
ALTER TABLE profile ADD COLUMN gpu_model TEXT NOT NULL DEFAULT '';
"""
_FROM_3 = """
ALTER TABLE profile ADD COLUMN link_kinds TEXT;
ALTER TABLE profile ADD COLUMN local_exposed_s REAL;
ALTER TABLE profile ADD COLUMN local_hidden_s REAL;
"""
STORE = Schema(
    version=4,
    statements=split_statements(_TABLES),
    migrations={1: split_statements(_FROM_1), 3: split_statements(_FROM_3)},
)
"""Rows from before version 2 have no GPU model, and are not compared with newer rows of a known model. Neighbours from before
version 3 have no `shares_node`; the tables are the same. In profiles from before version 4, as in those of earlier hooks, it is not
known which bytes stay within a node, so all of them count for the links."""

IMPAIRED = "SELECT job_id, causes FROM impaired WHERE time_s >= ? AND time_s < ?"
"""Jobs whose GPUs were impaired in a window, once for each report."""
ADD_ENERGY = (
    "INSERT INTO energy VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
    " SET joules = MAX(joules, excluded.joules), time_s = excluded.time_s"
)
"""The counter of one run of the agent only rises, so a report that was dropped loses nothing."""
SAMPLES = (
    "SELECT time_s, node, job_id, restart, uid, script, signature, batch_size, num_ranks, world_size, gpus, idle_gpus, sockets,"
    " steps, last_step_ns, monotonic_ns, first_seen_ns, gpu_model, several FROM sight"
)
THROUGHPUTS = (
    "SELECT start_s, job_id, restart, uid, script, signature, batch_size, gpus, nodes, gpu_model, hosts, steps, steps_per_s,"
    " idle_gpus, sockets, neighbours FROM observation"
)
RATES = "SELECT job_id, steps_per_s FROM observation"
RATES_AT = "SELECT start_s, steps_per_s FROM observation"
OF_KIND = "uid = ? AND script = ? AND signature = ? AND gpus = ? AND nodes = ? AND batch_size IS ? AND gpu_model = ?"
"""Condition for rows of one kind of job and shape; `kind` gives the values."""
_BUSY = "SELECT job_id, busy_s FROM profile WHERE"
BUSY_OF_KIND = f"{_BUSY} {OF_KIND} AND busy_s IS NOT NULL ORDER BY id DESC LIMIT ?"
"""Computing times of jobs of one kind, in the order in which the profiles came, newest first: the index has this order, so SQLite
reads no more of them."""
BUSY_OF_JOB = (
    f"{_BUSY} job_id = ? AND {OF_KIND.replace('uid', '+uid', 1)} AND busy_s IS NOT NULL ORDER BY id DESC LIMIT ?"
)
"""Those of one job of that kind. The plus sign keeps SQLite from reading the profiles of all jobs of that kind."""
OWN_ALONE = (
    f"{RATES_AT} WHERE job_id = ? AND {OF_KIND.replace('uid', '+uid', 1)} AND alone = 1 ORDER BY start_s DESC LIMIT ?"
)
"""Newest windows without neighbours of one job. The plus sign keeps SQLite from reading the windows of all jobs of that kind."""
THIN = (
    "DELETE FROM observation WHERE (start_s, job_id, restart) IN (SELECT start_s, job_id, restart FROM ("
    " SELECT start_s, job_id, restart, ROW_NUMBER() OVER (PARTITION BY job_id, restart, alone ORDER BY start_s) AS place"
    " FROM observation WHERE start_s < :until AND job_id IN"
    "  (SELECT DISTINCT job_id FROM observation WHERE start_s >= :since AND start_s < :until)"
    ") WHERE start_s >= :since AND place > :first AND CAST(round(start_s / :window) AS INTEGER) % :one_in != 0)"
)
"""Delete the windows between two times, except the first of each run, alone and with neighbours, and one in every `one_in`."""
MAX_PROFILES = 100
"""Maximum number of profiles of one run on one node, of which the newest are kept: a job can send one with every report."""
SURPLUS = (
    "DELETE FROM profile WHERE id IN (SELECT id FROM ("
    " SELECT id, ROW_NUMBER() OVER (PARTITION BY job_id, restart, node ORDER BY id DESC) AS place"
    " FROM profile WHERE job_id IN (SELECT DISTINCT job_id FROM profile WHERE id > :since)"
    ") WHERE place > :most)"
)
"""Delete all but the newest profiles of each run and node, of the jobs with a profile since the given one."""
MAX_OF_NODE = 100_000
"""Maximum number of receipts, of counters of energy and of profiles of one node: the oldest are dropped, whatever their age."""
MAX_OBSERVATIONS = 10_000_000
"""Maximum number of windows. Beyond it old windows are thinned out more, and then those of the oldest times are dropped."""
_HARDER = 5
"""Factor between the windows that are kept in normal days and in days that are thinned out more."""
_DAY_S = 86400.0
PROFILES = (
    "SELECT time_s, node, job_id, restart, uid, script, signature, batch_size, param_bytes, world_size, steps, step_s, compute_s,"
    " exposed_s, hidden_s, kinds, gpus, nodes, gpu_model, busy_s, link_kinds, local_exposed_s, local_hidden_s FROM profile"
)
FILE_ANEW = (
    "UPDATE OR REPLACE observation SET restart = ? WHERE job_id = ? AND start_s >= ? AND restart != ?",
    "UPDATE profile SET restart = ?, gpus = NULL, nodes = NULL, gpu_model = '' WHERE job_id = ? AND time_s >= ? AND restart != ?",
)
"""Give rows since a time to a run. Profiles lose the shape, because it was that of the other run."""
SHAPE = "SELECT gpus, nodes, gpu_model FROM observation WHERE job_id = ? AND restart = ? LIMIT 1"
SET_SHAPE = "UPDATE profile SET gpus = ?, nodes = ?, gpu_model = ? WHERE job_id = ? AND restart = ? AND nodes IS NULL"
"""Give the profiles of a run its shape."""
RUN_THEN = "SELECT restart FROM run WHERE job_id = ? AND start_s <= ? ORDER BY start_s DESC LIMIT 1"
"""Run of a job at a given time."""


def limit_rows(db: sqlite3.Connection) -> None:
    """Drop the oldest rows beyond the maximum numbers. Of rows of one time all are dropped: an agent could give all one time."""
    for table in ("receipt", "energy", "profile"):
        crowded = db.execute(f"SELECT node FROM {table} GROUP BY node HAVING COUNT(*) > ?", (MAX_OF_NODE,)).fetchall()  # noqa: S608
        for (node,) in crowded:
            last = f"SELECT time_s FROM {table} WHERE node = ? ORDER BY time_s DESC LIMIT 1 OFFSET ?"  # noqa: S608
            statement = f"DELETE FROM {table} WHERE node = ? AND time_s <= ({last})"  # noqa: S608 - names of our own
            db.execute(statement, (node, node, MAX_OF_NODE))


@dataclass(frozen=True, slots=True)
class Thinning:
    """Windows of a run that are kept: the first ones, alone and with neighbours, and one in every `one_in`."""

    window_s: float
    first: int
    one_in: int

    def apply(self, db: sqlite3.Connection, since_s: float, until_s: float) -> int:
        """Delete the other windows of that time, and return how many they were."""
        values = {
            "since": since_s, "until": until_s, "window": self.window_s, "first": self.first, "one_in": self.one_in,
        }  # fmt: skip
        return db.execute(THIN, values).rowcount

    def harder(self) -> Thinning:
        """Return a rule that keeps a part of what this one keeps."""
        return Thinning(self.window_s, max(1, self.first // _HARDER), self.one_in * _HARDER)


def limit_windows(db: sqlite3.Connection, rule: Thinning, until_s: float) -> float | None:
    """Delete windows beyond the maximum number: `rule` harder for the oldest days before `until_s`, day by day, so that runs of all
    ages remain. If that is not enough, the oldest go, and the start of the oldest that is left is returned; otherwise None."""
    (windows,) = db.execute("SELECT COUNT(*) FROM observation").fetchone()
    if windows <= MAX_OBSERVATIONS:
        return None
    most = MAX_OBSERVATIONS * 9 // 10  # so that this long work is seldom due
    (since_s,) = db.execute("SELECT MIN(start_s) FROM observation").fetchone()
    while windows > most and since_s < until_s:
        end_s = min(since_s + _DAY_S, until_s)
        windows -= rule.harder().apply(db, since_s, end_s)
        since_s = end_s
    if windows <= MAX_OBSERVATIONS:
        return None
    last = "SELECT start_s FROM observation ORDER BY start_s DESC LIMIT 1 OFFSET ?"
    db.execute(f"DELETE FROM observation WHERE start_s <= ({last})", (most,))  # noqa: S608 - names of our own
    (oldest_s,) = db.execute("SELECT IFNULL(MIN(start_s), :until) FROM observation", {"until": until_s}).fetchone()
    return float(oldest_s)


def kind(trained: Trained, shape: RunShape) -> tuple[Any, ...]:
    """Return the values of OF_KIND."""
    of_model = trained.uid, trained.script, trained.signature
    return *of_model, shape.gpus, shape.nodes, trained.batch_size, shape.gpu_model


def sample(row: tuple[Any, ...]) -> Sample:
    """Decode a row of SAMPLES."""
    return Sample(row[0], row[1], row[2], row[3], Trained(*row[4:8]), *row[8:])


def insert_sample(db: sqlite3.Connection, item: Sample) -> None:
    """Insert a sample."""
    trained = item.trained
    _insert(
        db, "sight",
        time_s=item.time_s, node=item.node, job_id=item.job_id, restart=item.claimed_restart, uid=trained.uid,
        script=trained.script, signature=trained.signature, batch_size=trained.batch_size,
        num_ranks=item.num_ranks, world_size=item.world_size,
        gpus=item.gpus, idle_gpus=item.idle_gpus, sockets=item.sockets, steps=item.steps, last_step_ns=item.last_step_ns,
        monotonic_ns=item.monotonic_ns, first_seen_ns=item.first_seen_ns, gpu_model=item.gpu_model, several=item.several,
    )  # fmt: skip


def _insert(db: sqlite3.Connection, table: str, **values: Any) -> None:
    """Insert a row by column names: in a migrated file the columns have another order."""
    places = ", ".join("?" * len(values))
    statement = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})"  # noqa: S608 - the names are ours
    db.execute(statement, tuple(values.values()))


def throughput(row: tuple[Any, ...]) -> Throughput:
    """Decode a row of THROUGHPUTS."""
    return Throughput(
        start_s=row[0],
        run=RunKey(row[1], row[2]),
        trained=Trained(*row[3:7]),
        shape=RunShape(*row[7:10]),
        nodes=tuple(json.loads(row[10])),
        steps=row[11],
        steps_per_s=row[12],
        idle_gpus=row[13],
        sockets=row[14],
        neighbours=tuple(_neighbour(*item) for item in json.loads(row[15])),
    )


def _neighbour(
    run: list[int],
    trained: list[Any] | None,
    shape: list[Any] | None,
    steps_per_s: float | None,
    shares_node: bool | None = None,
) -> Neighbour:
    """Decode a neighbour; one of an earlier version has no last entry."""
    return Neighbour(
        RunKey(*run),
        None if trained is None else Trained(*trained),
        None if shape is None else RunShape(*shape),
        steps_per_s,
        shares_node,
    )


def insert_throughput(db: sqlite3.Connection, item: Throughput) -> None:
    """Insert a throughput, and give the run's profiles the shape of the whole job."""
    run, trained, shape = item.run, item.trained, item.shape
    near = [
        (
            (other.run.job_id, other.run.restart),
            other.trained and astuple(other.trained),
            other.shape and astuple(other.shape),
            other.steps_per_s,
            other.shares_node,
        )
        for other in item.neighbours
    ]
    _insert(
        db, "observation",
        start_s=item.start_s, job_id=run.job_id, restart=run.restart, uid=trained.uid, script=trained.script,
        signature=trained.signature, batch_size=trained.batch_size, gpus=shape.gpus, nodes=shape.nodes,
        gpu_model=shape.gpu_model, hosts=json.dumps(item.nodes), steps=item.steps, steps_per_s=item.steps_per_s,
        idle_gpus=item.idle_gpus, sockets=item.sockets, alone=item.alone, neighbours=json.dumps(near),
    )  # fmt: skip
    db.execute(SET_SHAPE, (*astuple(shape), run.job_id, run.restart))


def insert_run(db: sqlite3.Connection, noted: SlurmRun) -> None:
    """Insert a run as Slurm knows it, and correct rows since its beginning that have the job's own claim."""
    job_id, restart = noted.run.job_id, noted.run.restart
    db.execute("INSERT OR REPLACE INTO run VALUES (?, ?, ?)", (job_id, restart, noted.start_s))
    for statement in FILE_ANEW:
        db.execute(statement, (restart, job_id, noted.start_s, restart))
    shape = db.execute(SHAPE, (job_id, restart)).fetchone()
    if shape is not None:
        db.execute(SET_SHAPE, (*shape, job_id, restart))


def runs_of(db: sqlite3.Connection, job_ids: Iterable[int]) -> dict[int, list[SlurmRun]]:
    """Return the runs of those jobs as Slurm knows them."""
    found: dict[int, list[SlurmRun]] = {}
    for job_id in set(job_ids):
        rows = db.execute("SELECT restart, start_s FROM run WHERE job_id = ?", (job_id,))
        found[job_id] = [SlurmRun(RunKey(job_id, restart), start_s) for restart, start_s in rows]
    return found


def profile(row: tuple[Any, ...]) -> ProfileRow:
    """Decode a row of PROFILES."""
    return ProfileRow(
        time_s=row[0],
        node=row[1],
        run=RunKey(row[2], row[3]),
        trained=Trained(*row[4:8]),
        param_bytes=row[8],
        world_size=row[9],
        steps=row[10],
        step_s=row[11],
        compute_s=row[12],
        exposed_s=row[13],
        hidden_s=row[14],
        kinds=json.loads(row[15]),
        shape=None if row[17] is None else RunShape(*row[16:19]),
        busy_s=row[19],
        link_kinds=None if row[20] is None else json.loads(row[20]),
        local_exposed_s=row[21],
        local_hidden_s=row[22],
    )


def insert_profile(db: sqlite3.Connection, item: ProfileRow) -> None:
    """Insert a profile with Slurm's run, if known, and the shape of the run's throughputs, if there are any."""
    job_id, trained = item.run.job_id, item.trained
    then = db.execute(RUN_THEN, (job_id, item.time_s)).fetchone()
    restart = item.run.restart if then is None else then[0]
    shape = db.execute(SHAPE, (job_id, restart)).fetchone()
    gpus, nodes, gpu_model = shape or (None, None, "")
    _insert(
        db, "profile",
        time_s=item.time_s, node=item.node, job_id=job_id, restart=restart, uid=trained.uid, script=trained.script,
        signature=trained.signature, batch_size=trained.batch_size, param_bytes=item.param_bytes,
        world_size=item.world_size, steps=item.steps, step_s=item.step_s, compute_s=item.compute_s,
        exposed_s=item.exposed_s, hidden_s=item.hidden_s, kinds=json.dumps(item.kinds), gpus=gpus, nodes=nodes,
        gpu_model=gpu_model, busy_s=item.busy_s,
        link_kinds=None if item.link_kinds is None else json.dumps(item.link_kinds),
        local_exposed_s=item.local_exposed_s, local_hidden_s=item.local_hidden_s,
    )  # fmt: skip
