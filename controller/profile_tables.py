"""The tables of the store of profiles, and how rows go in and come out."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from controller.sights import ProfileRow
from controller.windows import Neighbour, Observation, RunKey, Shape, Sight, Trained

SCHEMA_VERSION = 1

SCHEMA = """
CREATE TABLE IF NOT EXISTS receipt (
    node TEXT NOT NULL, run_id TEXT NOT NULL, number INTEGER NOT NULL, lost INTEGER NOT NULL, time_s REAL NOT NULL,
    PRIMARY KEY (node, run_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS node (name TEXT PRIMARY KEY, link_bits_per_s INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sight (
    time_s REAL NOT NULL, node TEXT NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
    uid INTEGER NOT NULL, script TEXT NOT NULL, signature TEXT NOT NULL, num_ranks INTEGER NOT NULL, world_size INTEGER,
    gpus INTEGER, idle_gpus INTEGER, sockets INTEGER, steps INTEGER, last_step_ns INTEGER, monotonic_ns INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS sight_time ON sight (time_s);
CREATE TABLE IF NOT EXISTS present (
    slot INTEGER NOT NULL, node TEXT NOT NULL, job_id INTEGER NOT NULL, PRIMARY KEY (slot, node, job_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS due (slot INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS observation (
    start_s REAL NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
    uid INTEGER NOT NULL, script TEXT NOT NULL, signature TEXT NOT NULL, gpus INTEGER NOT NULL, nodes INTEGER NOT NULL,
    hosts TEXT NOT NULL, steps INTEGER NOT NULL, steps_per_s REAL NOT NULL, idle_gpus INTEGER NOT NULL, sockets INTEGER,
    alone INTEGER NOT NULL, neighbours TEXT NOT NULL,
    PRIMARY KEY (start_s, job_id, restart)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS observation_kind ON observation (uid, script, signature, gpus, nodes, alone);
CREATE INDEX IF NOT EXISTS observation_job ON observation (job_id, start_s);
CREATE TABLE IF NOT EXISTS profile (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, node TEXT NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
    uid INTEGER NOT NULL, script TEXT NOT NULL, signature TEXT NOT NULL, param_bytes INTEGER, world_size INTEGER,
    steps INTEGER NOT NULL, step_s REAL NOT NULL, compute_s REAL NOT NULL, exposed_s REAL NOT NULL, hidden_s REAL NOT NULL,
    kinds TEXT NOT NULL, gpus INTEGER, nodes INTEGER);
CREATE INDEX IF NOT EXISTS profile_kind ON profile (uid, script, signature);
CREATE INDEX IF NOT EXISTS profile_job ON profile (job_id, restart);
"""

SIGHTS = (
    "SELECT time_s, node, job_id, restart, uid, script, signature, num_ranks, world_size, gpus, idle_gpus, sockets, steps,"
    " last_step_ns, monotonic_ns FROM sight"
)
OBSERVATIONS = (
    "SELECT start_s, job_id, restart, uid, script, signature, gpus, nodes, hosts, steps, steps_per_s, idle_gpus, sockets,"
    " neighbours FROM observation"
)
THIN = (
    "DELETE FROM observation WHERE (start_s, job_id, restart) IN (SELECT start_s, job_id, restart FROM ("
    " SELECT start_s, job_id, restart, ROW_NUMBER() OVER (PARTITION BY job_id, restart, alone ORDER BY start_s) AS place"
    " FROM observation WHERE start_s < :until AND job_id IN"
    "  (SELECT DISTINCT job_id FROM observation WHERE start_s >= :since AND start_s < :until)"
    ") WHERE start_s >= :since AND place > :first AND CAST(round(start_s / :window) AS INTEGER) % :one_in != 0)"
)
"""Of the windows between two times, drop all but the first of a run, alone and with neighbours, and one in so many."""
PROFILES = (
    "SELECT time_s, node, job_id, restart, uid, script, signature, param_bytes, world_size, steps, step_s, compute_s, exposed_s,"
    " hidden_s, kinds, gpus, nodes FROM profile"
)


def sight(row: tuple[Any, ...]) -> Sight:
    """A row of SIGHTS."""
    return Sight(row[0], row[1], RunKey(row[2], row[3]), Trained(row[4], row[5], row[6]), *row[7:])


def insert_sight(db: sqlite3.Connection, item: Sight) -> None:
    """Its inverse."""
    db.execute(
        "INSERT INTO sight VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            item.time_s, item.node, item.run.job_id, item.run.restart, item.trained.uid, item.trained.script,
            item.trained.signature, item.num_ranks, item.world_size, item.gpus, item.idle_gpus, item.sockets, item.steps,
            item.last_step_ns, item.monotonic_ns,
        ),
    )  # fmt: skip


def observation(row: tuple[Any, ...]) -> Observation:
    """A row of OBSERVATIONS."""
    return Observation(
        start_s=row[0],
        run=RunKey(row[1], row[2]),
        trained=Trained(row[3], row[4], row[5]),
        shape=Shape(row[6], row[7]),
        nodes=tuple(json.loads(row[8])),
        steps=row[9],
        steps_per_s=row[10],
        idle_gpus=row[11],
        sockets=row[12],
        neighbours=tuple(_neighbour(*item) for item in json.loads(row[13])),
    )


def _neighbour(
    run: list[int], trained: list[Any] | None, shape: list[int] | None, steps_per_s: float | None
) -> Neighbour:
    return Neighbour(
        RunKey(*run), None if trained is None else Trained(*trained), None if shape is None else Shape(*shape), steps_per_s
    )  # fmt: skip


def insert_observation(db: sqlite3.Connection, item: Observation) -> None:
    """Its inverse. Profiles of that run learn the shape of the whole job."""
    run, trained, shape = item.run, item.trained, item.shape
    near = [
        (
            (other.run.job_id, other.run.restart),
            other.trained and (other.trained.uid, other.trained.script, other.trained.signature),
            other.shape and (other.shape.gpus, other.shape.nodes),
            other.steps_per_s,
        )
        for other in item.neighbours
    ]
    db.execute(
        "INSERT INTO observation VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            item.start_s, run.job_id, run.restart, trained.uid, trained.script, trained.signature, shape.gpus, shape.nodes,
            json.dumps(item.nodes), item.steps, item.steps_per_s, item.idle_gpus, item.sockets, item.alone,
            json.dumps(near),
        ),
    )  # fmt: skip
    db.execute(
        "UPDATE profile SET gpus = ?, nodes = ? WHERE job_id = ? AND restart = ? AND nodes IS NULL",
        (shape.gpus, shape.nodes, run.job_id, run.restart),
    )


def profile(row: tuple[Any, ...]) -> ProfileRow:
    """A row of PROFILES."""
    return ProfileRow(
        time_s=row[0],
        node=row[1],
        run=RunKey(row[2], row[3]),
        trained=Trained(row[4], row[5], row[6]),
        param_bytes=row[7],
        world_size=row[8],
        steps=row[9],
        step_s=row[10],
        compute_s=row[11],
        exposed_s=row[12],
        hidden_s=row[13],
        kinds=json.loads(row[14]),
        shape=None if row[16] is None else Shape(row[15], row[16]),
    )


def insert_profile(db: sqlite3.Connection, item: ProfileRow) -> None:
    """Its inverse; the shape is that of an observation of the same run, once there is one."""
    db.execute(
        "INSERT INTO profile (time_s, node, job_id, restart, uid, script, signature, param_bytes, world_size, steps, step_s,"
        " compute_s, exposed_s, hidden_s, kinds, gpus, nodes) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"
        " (SELECT gpus FROM observation WHERE job_id = ? AND restart = ? LIMIT 1),"
        " (SELECT nodes FROM observation WHERE job_id = ? AND restart = ? LIMIT 1)",
        (
            item.time_s, item.node, item.run.job_id, item.run.restart, item.trained.uid, item.trained.script,
            item.trained.signature, item.param_bytes, item.world_size, item.steps, item.step_s, item.compute_s,
            item.exposed_s, item.hidden_s, json.dumps(item.kinds),
            *(item.run.job_id, item.run.restart) * 2,
        ),
    )  # fmt: skip
