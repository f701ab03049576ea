"""A Slurm cluster's own history, from its accounting database.

The command (and what `trace convert --from sacct` without a file runs by itself, with SLURM_TIME_FORMAT=%s so that times are
seconds since 1970, which changes of the clock do not affect):

    SLURM_TIME_FORMAT=%s sacct --allusers --allocations --duplicates --parsable2 --starttime=now-90days --endtime=now
        --format=JobIDRaw,Submit,Start,End,ElapsedRaw,TimelimitRaw,AllocTRES,ReqTRES,User,Account,Partition,State,JobName

Columns may come in any order; JobName is best the last one, because it alone may contain the delimiter `|`. Times are seconds
(local dates are accepted too), the limit minutes. GPUs are gres/gpu of AllocTRES, else of ReqTRES; where only typed ones are
accounted (gres/gpu:a100), their sum. Every array task is a job. The account and the job's name are kept as columns of their
own, the partition is the virtual cluster.

Dropped, and counted: steps (rows with a dot in the id), jobs that are still pending or running, jobs that never started, jobs
without GPUs, and the earlier runs of jobs that were requeued (same id, user and name): the last run stands for the job, and it
was submitted when the first one was. The time of earlier runs is not added, because Slurm does not know whether their work was
lost.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from policies.model import IntColumn
from simulator.errors import TraceError
from simulator.traces.formats.log import NO_GPUS, NO_RUN_TIME, UNFINISHED, Loaded, Log, Options, joined
from simulator.traces.numbers import BadCellError
from simulator.traces.table import Dialect, read_table

FIELDS = (
    *("JobIDRaw", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw", "AllocTRES", "ReqTRES"),
    *("User", "Account", "Partition", "State", "JobName"),
)
TIMEOUT_S = 600.0
"""Time limit of sacct: a large database takes minutes."""
_UNFINISHED = ("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "COMPLETING", "CONFIGURING")


def load(paths: Sequence[Path], options: Options) -> Loaded:
    """Load the jobs in these outputs of sacct; without a file, run sacct."""
    if paths:
        return joined([_load(path) for path in paths], paths)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "sacct")
        ask_sacct(output, since=options.since)
        return _load(output)


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


def _load(path: Path) -> Loaded:
    dialect = Dialect(delimiter="|", quoting=False, open_end=True)
    log = Log(read_table(path, FIELDS, dialect=dialect))
    ids, states = log.texts("JobIDRaw"), [text.partition(" ")[0] for text in log.texts("State")]
    log.drop(np.array(["." in job_id for job_id in ids]), "steps of jobs")
    log.drop(np.isin(states, _UNFINISHED), UNFINISHED)
    gpus = _gpus(log)
    log.drop(gpus == 0, NO_GPUS)
    log.drop((log.instants("Start") < 0) | (log.numbers("ElapsedRaw") == 0), NO_RUN_TIME)
    submit = _first_submits(log)
    return log.loaded(
        job_id=_unique(ids, log.texts("Submit"), log.kept.tolist()),
        submit_time_s=submit,
        num_gpus=list(map(str, gpus.tolist())),
        duration_s="ElapsedRaw",
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


def _first_submits(log: Log) -> IntColumn:
    """Return the first submission of each job, and drop all its runs but the last."""
    submits, starts = log.instants("Submit"), log.instants("Start")
    runs: dict[tuple[str, str, str], list[int]] = {}
    keys = zip(log.texts("JobIDRaw"), log.texts("User"), log.texts("JobName"), strict=True)
    for row, key in enumerate(keys):
        if log.kept[row]:
            runs.setdefault(key, []).append(row)
    earlier = np.zeros(log.table.rows, dtype=np.bool_)
    first = submits.copy()
    for rows in runs.values():
        if len(rows) > 1:
            last = max(rows, key=starts.__getitem__)
            first[last] = min(submits[row] for row in rows)
            earlier[[row for row in rows if row != last]] = True
    log.drop(earlier, "earlier runs of requeued jobs")
    return first


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
