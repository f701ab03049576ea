"""A Slurm cluster's own history, from its accounting database.

The command (and what `trace convert --from sacct` without a file runs by itself, with SLURM_TIME_FORMAT=%s so that times are
seconds since 1970, which changes of the clock do not affect):

    SLURM_TIME_FORMAT=%s sacct --allusers --allocations --duplicates --parsable2 --starttime=now-90days --endtime=now
        --format=JobIDRaw,Submit,Start,End,ElapsedRaw,TimelimitRaw,AllocTRES,ReqTRES,User,Account,Partition,State,JobName

Columns may come in any order; JobName is best the last one, because it alone may contain the delimiter `|`. Times are seconds
(local dates are accepted too), the limit minutes. GPUs are gres/gpu of AllocTRES, else of ReqTRES; where only typed ones are
accounted (gres/gpu:a100), their sum. Every array task is a job. The account and the job's name are kept as columns of their
own, the partition is the virtual cluster.

Rows with the same id, user and name are one job, which was submitted when the first of them was (Slurm gives a requeued job a new
time of submission). The last run stands for the job. The time of earlier runs, which have states such as REQUEUED, PREEMPTED and
NODE_FAIL, is not added, because Slurm does not know whether their work was lost. A row of state RESIZING is an earlier part of a
run whose size was changed: the job has the GPUs of its largest part, for the time in which they do the GPU time of all parts. If a
job was cancelled while it waited to run again, its last run stands for it, with the state in which the job ended.

Several files are one history of one cluster, in any order: rows that are in several of them (same id, submission and start) count
once, as the file has them in which the job has ended. The histories of several clusters need the column Cluster.

Dropped, and counted: steps (rows with a dot in the id), rows that occur more than once, these earlier runs and parts, jobs that
have not ended (they are pending, running, or were requeued and did not run again yet), jobs that never started, and jobs without
GPUs.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from policies.model import BoolColumn, IntColumn
from simulator.errors import TraceError
from simulator.traces.formats.log import NO_GPUS, NO_RUN_TIME, SLURM_UNFINISHED, UNFINISHED, Loaded, Log, Options
from simulator.traces.numbers import BadCellError, times_ns
from simulator.traces.read import name_of
from simulator.traces.table import Dialect, Table, read_table, stacked
from simulator.traces.trace import MAX_TIME_S, NS_PER_S

FIELDS = (
    *("JobIDRaw", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw", "AllocTRES", "ReqTRES"),
    *("User", "Account", "Partition", "State", "JobName"),
)
TIMEOUT_S = 600.0
"""Time limit of sacct: a large database takes minutes."""
_RESIZING = "RESIZING"
_TO_BE_CONTINUED = ("REQUEUED", _RESIZING)
"""States of rows that have ended while their jobs have not."""
REPEATED = "rows that occur more than once"
EARLIER_PARTS = "earlier parts of jobs that were resized"
EARLIER_RUNS = "earlier runs of requeued jobs"


def load(paths: Sequence[Path], options: Options) -> Loaded:
    """Load the jobs in these outputs of sacct; without a file, run sacct."""
    if paths:
        tables = [_read(path) for path in paths]
        _check_times(tables)
        return _load(stacked(tables, Path("+".join(dict.fromkeys(map(name_of, paths))))))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "sacct")
        ask_sacct(output, since=options.since)
        return _load(_read(output))


def command(since: str) -> list[str]:
    """Return the command that lists Slurm's jobs."""
    return [
        *("sacct", "--allusers", "--allocations", "--duplicates", "--parsable2"),
        *(f"--starttime={since}", "--endtime=now", f"--format={','.join(FIELDS)}"),
    ]


def ask_sacct(output: Path, *, since: str, timeout_s: float = TIMEOUT_S) -> None:
    """Write the output of sacct into that file. Raises TraceError."""
    argv = command(since)
    shown = " ".join(argv[:5]) + " …"
    environment = os.environ | {"SLURM_TIME_FORMAT": "%s"}
    try:
        with output.open("wb") as file:
            done = subprocess.run(
                argv, stdout=file, stderr=subprocess.PIPE, timeout=timeout_s, env=environment, check=False
            )
    except FileNotFoundError:
        mend = "run it on a machine of the cluster, or give a file with the output of sacct"
        raise TraceError("there is no sacct on this machine", mend=mend) from None
    except subprocess.TimeoutExpired:
        mend = "ask for less with --since, or run it yourself and give the file"
        raise TraceError(f"{shown} did not answer within {timeout_s:.0f} s", mend=mend) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        mend = "see whether accounting is on (sacctmgr show cluster), and whether --since is a time that sacct knows"
        raise TraceError(f"{shown} failed: {said[-1] if said else f'exit code {done.returncode}'}", mend=mend)


def _read(path: Path) -> Table:
    return read_table(path, FIELDS, dialect=Dialect(delimiter="|", quoting=False, open_end=True))


def _check_times(tables: Sequence[Table]) -> None:
    """Check that either all files have seconds since 1970 or all have dates, whose zone is not known. Raises TraceError."""
    for table in tables:
        if table.columns["Submit"][0].isdigit() != tables[0].columns["Submit"][0].isdigit():
            reason = f"has dates where {tables[0].path} has seconds, or the reverse"
            raise TraceError(reason, mend="run sacct with SLURM_TIME_FORMAT=%s for all files", path=table.path)


def _load(table: Table) -> Loaded:
    log = Log(table)
    ids, states = log.texts("JobIDRaw"), [text.partition(" ")[0] for text in log.texts("State")]
    log.drop(np.array(["." in job_id for job_id in ids]), "steps of jobs")
    runs = np.isin(states, SLURM_UNFINISHED) | (log.instants("End") < 0)
    log.drop(_repeated(log, runs), REPEATED)
    submit, gpus, run_ns = _whole_jobs(log, states)
    log.drop(runs | np.isin(states, _TO_BE_CONTINUED), UNFINISHED)
    log.drop(gpus == 0, NO_GPUS)
    log.drop(run_ns == 0, NO_RUN_TIME)
    return log.loaded(
        job_id=_unique(ids, log.texts("Submit"), log.kept.tolist()),
        submit_time_s=submit,
        num_gpus=list(map(str, gpus.tolist())),
        duration_s=run_ns,
        time_limit_s=[_limit_s(text) for text in log.texts("TimelimitRaw")],
        user="User",
        vc="Partition",
        status=states,
        account="Account",
        job_name="JobName",
    )


def _gpus(log: Log) -> IntColumn:
    """Return the GPUs of every row; 0 for none."""
    counts = np.zeros(log.table.rows, dtype=np.int64)
    for row, (allocated, requested) in enumerate(zip(log.texts("AllocTRES"), log.texts("ReqTRES"), strict=True)):
        try:
            counts[row] = gpus_of(allocated) or gpus_of(requested)
        except (ValueError, OverflowError):
            bad = BadCellError(
                row, allocated or requested, "is not a list of TRES", "give what sacct prints for AllocTRES"
            )
            raise log.table.wrong(row, "AllocTRES", bad.text, bad.reason, bad.mend) from None
    return counts


def gpus_of(tres: str) -> int:
    """Return the GPUs in a list such as `cpu=8,gres/gpu:a100=2,gres/gpu=2`; 0 for none. Raises ValueError."""
    total, typed = None, 0
    for part in tres.split(",") if tres else ():
        name, _, count = part.partition("=")
        if name == "gres/gpu":
            total = int(count)
        elif name.startswith("gres/gpu:"):
            typed += int(count)
    return typed if total is None else total


def _repeated(log: Log, unfinished: BoolColumn) -> BoolColumn:
    """Return the rows that are also there in a later state: of those with equal id, submission and start one stays, an ended one
    if there is any. A row of a job that waits is repeated by any other of that submission.
    """
    starts = log.instants("Start").tolist()
    of: dict[tuple[str, str, int], list[int]] = {}
    keys = zip(log.texts("Cluster"), log.texts("JobIDRaw"), log.instants("Submit").tolist(), strict=True)
    for row, key in enumerate(keys):
        if log.kept[row]:
            of.setdefault(key, []).append(row)
    repeated = np.zeros(log.table.rows, dtype=np.bool_)
    for rows in of.values():
        if len(rows) == 1:
            continue
        by_start: dict[int, int] = {}
        for row in sorted(rows, key=lambda row: not unfinished[row]):
            by_start[starts[row]] = row
        waiting = by_start.get(-1)
        if waiting is not None and unfinished[waiting] and len(by_start) > 1:
            del by_start[-1]
        repeated[list(set(rows).difference(by_start.values()))] = True
    return repeated


def _whole_jobs(log: Log, states: Sequence[str]) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Drop all rows of each job but its last one, and return, for that row, the job's first submission, GPUs and run time."""
    submit, start, gpus = log.instants("Submit"), log.instants("Start"), _gpus(log)
    run_ns = np.maximum(log.table.parsed("ElapsedRaw", partial(times_ns, zero=True, missing=True)), 0)
    run_ns[start < 0] = 0
    first, size, total = submit.copy(), gpus.copy(), run_ns.copy()
    earlier = np.zeros(log.table.rows, dtype=np.bool_)
    for rows in _jobs_of_several_rows(log, submit, start):
        last = rows[-1]
        earlier[rows[:-1]] = True
        first[last] = submit[rows].min()
        parts = _last_run(rows, states, run_ns)
        if parts:
            size[last] = gpus[parts].max()
            total[last] = _at_size(gpus[parts].tolist(), run_ns[parts].tolist())
    log.drop(earlier & np.array([state == _RESIZING for state in states]), EARLIER_PARTS)
    log.drop(earlier, EARLIER_RUNS)
    return first, size, total


def _jobs_of_several_rows(log: Log, submit: IntColumn, start: IntColumn) -> Iterator[list[int]]:
    """Yield the rows of each job that has more than one, in the order in which they began; one that has not started is the last."""
    jobs: dict[tuple[str, ...], list[int]] = {}
    keys = zip(*(log.texts(name) for name in ("Cluster", "JobIDRaw", "User", "JobName")), strict=True)
    for row, key in enumerate(keys):
        if log.kept[row]:
            jobs.setdefault(key, []).append(row)
    for rows in jobs.values():
        if len(rows) > 1:
            yield sorted(rows, key=lambda row: (submit[row], start[row] < 0, start[row]))


def _last_run(rows: Sequence[int], states: Sequence[str], run_ns: IntColumn) -> list[int]:
    """Return the rows of a job's last run: one, and before it those of other sizes. Empty if the job never ran."""
    last = max((at for at, row in enumerate(rows) if run_ns[row]), default=-1)
    first = last
    while first > 0 and states[rows[first - 1]] == _RESIZING:
        first -= 1
    return list(rows[first : last + 1])


def _at_size(gpus: Sequence[int], run_ns: Sequence[int]) -> int:
    """Return the time for which the largest of these numbers of GPUs does the GPU time of all parts."""
    gpu_ns = sum(count * time for count, time in zip(gpus, run_ns, strict=True))
    return min(gpu_ns // (max(gpus) or 1), MAX_TIME_S * NS_PER_S + 1)  # a longer time is refused, as every other one is


def _unique(ids: Sequence[str], submits: Sequence[str], kept: Sequence[bool]) -> list[str]:
    """Return the ids; an id that Slurm gave to a second job gets the submission as a suffix."""
    seen: set[str] = set()
    unique: list[str] = []
    for job_id, submit, keep in zip(ids, submits, kept, strict=True):
        unique.append(f"{job_id}@{submit}" if job_id in seen else job_id)
        if keep:
            seen.add(job_id)
    return unique


def _limit_s(minutes: str) -> str:
    """Return a time limit in seconds; empty if there is none, or only that of the partition."""
    return str(int(minutes) * 60) if minutes.isascii() and minutes.isdigit() and int(minutes) else ""
