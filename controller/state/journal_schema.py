"""Tables of the journal: version, statements, and how many rows each may have.

Later additions keep the present tables (a new table, an index, a nullable column), so that earlier programs of this version can
still use the file.
"""

from __future__ import annotations

from controller.base.sqlite_schema import Schema, split_statements
from controller.state.given_to_slurm import GIVEN_TO_SLURM_SCHEMA
from controller.state.preemption_table import PREEMPTION_SCHEMA, REASON_SINCE_4
from controller.state.user_change_table import USER_CHANGE_SCHEMA

SCHEMA = (
    """
-- Bound: the jobs of one snapshot, as the ledger.
CREATE TABLE IF NOT EXISTS job (
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL,
    original TEXT, pin TEXT, refusal TEXT, served TEXT, yielded INTEGER, elsewhere TEXT,
    PRIMARY KEY (job_id, submit_time_s)) WITHOUT ROWID;
-- Bound: MAX_INTENTS and keep_days, and one reason for each row of job and run.
CREATE TABLE IF NOT EXISTS intent (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, verb TEXT NOT NULL, job_id TEXT NOT NULL,
    submit_time_s INTEGER NOT NULL, detail TEXT NOT NULL, done_time_s REAL, outcome TEXT);
CREATE INDEX IF NOT EXISTS intent_open ON intent (done_time_s) WHERE done_time_s IS NULL;
CREATE INDEX IF NOT EXISTS intent_job ON intent (job_id, submit_time_s);
-- Bound: keep_decisions.
CREATE TABLE IF NOT EXISTS decision (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, sequence INTEGER NOT NULL, digest TEXT NOT NULL,
    policy TEXT NOT NULL, latency_s REAL NOT NULL, problem TEXT NOT NULL);
-- Bound: the jobs placed by these decisions, with which they go.
CREATE TABLE IF NOT EXISTS placed (
    decision INTEGER NOT NULL REFERENCES decision (id) ON DELETE CASCADE,
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL, placement TEXT NOT NULL, reason TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS placed_job ON placed (job_id, submit_time_s);
CREATE INDEX IF NOT EXISTS placed_decision ON placed (decision);
-- Bound: MAX_RUNS and keep_days.
CREATE TABLE IF NOT EXISTS run (
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL, user TEXT NOT NULL, name TEXT NOT NULL,
    start_time_s REAL, end_time_s REAL NOT NULL, service_s REAL NOT NULL, num_gpus INTEGER NOT NULL,
    num_nodes INTEGER NOT NULL, state TEXT NOT NULL, gpu_s REAL,
    PRIMARY KEY (job_id, submit_time_s)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS run_name ON run (user, name, end_time_s);
CREATE INDEX IF NOT EXISTS run_completed ON run (user, name, end_time_s) WHERE state = 'COMPLETED';
CREATE INDEX IF NOT EXISTS run_end ON run (end_time_s);
-- Bound: MAX_JOB_NOTES and keep_days.
CREATE TABLE IF NOT EXISTS job_note (
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL, time_s REAL NOT NULL, waits TEXT NOT NULL, steps INTEGER,
    PRIMARY KEY (job_id, submit_time_s)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS job_note_time ON job_note (time_s);
-- Bound: the names of notes.
CREATE TABLE IF NOT EXISTS note (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
    + GIVEN_TO_SLURM_SCHEMA
    + PREEMPTION_SCHEMA
    + USER_CHANGE_SCHEMA
)
"""Rows are bounded: `job` and open preemptions by the jobs that Slurm knows, `decision` and `placed` by `keep_decisions`, `note`
by its names (below), `user_change` by the users' budgets, the rest by `keep_days` and by the numbers below. Of `intent`, one row
more may stay for each row of `job` and `run`: the reason why Slurm places the job (given_to_slurm.py). Between two prunings, ten
minutes apart, tables grow by the rows of that time."""
JOURNAL = Schema(
    version=4,
    statements=split_statements(SCHEMA),
    migrations={
        1: ("ALTER TABLE job ADD COLUMN elsewhere TEXT",),
        2: ("ALTER TABLE run ADD COLUMN gpu_s REAL",),
        3: REASON_SINCE_4,
    },
)
TABLES = ("job", "preemption", "run", "decision", "placed", "intent", "job_note", "user_change")
"""Order in which rows of another file are copied: first those that Slurm cannot provide again."""

MAX_INTENTS = 500_000
MAX_RUNS = 500_000
MAX_JOB_NOTES = 500_000
"""Maximum number of rows; the oldest are dropped, whatever their age. Preemptions have a maximum of their own."""

UNSURE = "unsure"
"""Note: whether facts of jobs may be missing, until the first snapshot was compared with the journal."""
TAKEN_FROM = "taken-from"
"""Note: name of the file from which rows are being copied, until that is done."""
