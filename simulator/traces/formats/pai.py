"""Alibaba's PAI cluster, 2020 (Weng et al., "MLaaS in the Wild", NSDI 2022; cluster-trace-gpu-v2020).

Give `pai_task_table.csv`, with it `pai_job_table.csv` (users, submit times) and `pai_group_tag_table.csv` (workloads), in any
order; the files have no header line and are recognised by their number of columns (a header line is accepted too). Times are
seconds on one clock, GPUs hundredths (plan_gpu 50.0 is half a GPU) times instances.

A job's GPUs are the sum over its tasks, rounded up, because jobs here occupy whole GPUs, or counted in
shares (`simulator.traces.formats.parts`); the planned number is kept as plan_gpu.
It runs from the launch of its first GPU task to the end of its last; it was submitted at the job table's start_time, and where that
table does not have it, at its first launch. Its status is that of the job table, or else Failed if one of its tasks failed. The
workload (ctr, bert, resnet, ...) becomes the model. Dropped: jobs without GPUs, jobs with a GPU task that has not ended (Running or
Waiting), jobs whose times are not both known (empty or 0) or that ran for no time; jobs that the task table does not contain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from policies.model import BoolColumn, FloatColumn, IntColumn
from simulator.errors import TraceError
from simulator.traces.formats.log import NO_GPUS, NO_RUN_TIME, UNFINISHED, Loaded, Log, Options
from simulator.traces.formats.parts import in_shares
from simulator.traces.table import Dialect, Table, lines_of, read_table

TASK = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TAG = ("inst_id", "user", "gpu_type_spec", "group", "workload")
FAILED = "Failed"
_NOT_KNOWN = -1
MEND = "give pai_task_table.csv, and with it pai_job_table.csv and pai_group_tag_table.csv"


def load(paths: Sequence[Path], options: Options) -> Loaded:
    """Load the jobs of these tables."""
    tables: dict[tuple[str, ...], Table] = {}
    for path in paths:
        names = _names(path)
        if names in tables:
            raise TraceError("is the second table of its kind", mend=MEND, path=path)
        tables[names] = _read(path, names)
    if TASK not in tables:
        raise TraceError("no task table among the files", mend=MEND, path=paths[0])
    return _load(tables[TASK], tables.get(JOB), tables.get(TAG), options.gpu_shares)


def _load(tasks: Table, jobs: Table | None, tags: Table | None, shares: int) -> Loaded:
    """Convert tasks to jobs: the first task of each job that uses GPUs stands for the job."""
    log = Log(tasks)
    works = _work(log)
    log.kept &= works.stands
    log.drop(works.gpus == 0, NO_GPUS)
    log.drop(works.unfinished, UNFINISHED)
    log.drop(works.run_ns <= 0, NO_RUN_TIME)
    known = _job_table(jobs, tags)
    keys = log.texts("job_name")
    own = np.where(works.failed, FAILED, np.array(log.texts("status"))).tolist()
    submitted = np.array([known.submits.get(key, _NOT_KNOWN) for key in keys], dtype=np.int64)
    return log.loaded(
        job_id="job_name",
        submit_time_s=np.where(submitted < 0, works.launched, submitted),
        num_gpus=list(map(str, in_shares(works.gpus / 100, shares).tolist())),
        duration_s=works.run_ns,
        user=[known.users.get(key, "") for key in keys],
        status=[known.statuses.get(key) or status for key, status in zip(keys, own, strict=True)],
        model=[known.models.get(key, "") for key in keys],
        plan_gpu=[f"{hundredths:g}" for hundredths in works.gpus.tolist()],
        gpu_type="gpu_type",
    )


@dataclass(frozen=True)
class _Work:
    """The work of the job to which each task belongs, over all tasks of that job that use GPUs."""

    gpus: FloatColumn
    """Hundredths of GPUs."""
    launched: IntColumn
    run_ns: IntColumn
    """0 if not all times are known."""
    unfinished: BoolColumn
    failed: BoolColumn
    """True if any task of the job failed, with GPUs or without."""
    stands: BoolColumn
    """True for one task of each job: the first that uses GPUs, or the first."""


def _work(log: Log) -> _Work:
    start, end = _times(log, "start_time"), _times(log, "end_time")
    planned = np.nan_to_num(log.numbers("plan_gpu")) * np.nan_to_num(log.numbers("inst_num"))
    statuses = np.array(log.texts("status"))
    names, first, job = np.unique(np.array(log.texts("job_name")), return_index=True, return_inverse=True)
    uses = planned > 0

    def any_of(tasks: BoolColumn) -> BoolColumn:
        return np.bincount(job[tasks], minlength=len(names)) > 0

    launched, ended = np.full(len(names), np.iinfo(np.int64).max), np.full(len(names), _NOT_KNOWN)
    np.minimum.at(launched, job[uses], start[uses])
    np.maximum.at(ended, job[uses], end[uses])
    open_ended = any_of(uses & ((end < 0) | (start < 0)))
    users = np.flatnonzero(uses)[::-1]
    first[job[users]] = users  # the last assignment counts, and so the first task of each job
    stands = np.zeros(log.table.rows, dtype=np.bool_)
    stands[first] = True
    return _Work(
        gpus=np.bincount(job, weights=planned).astype(np.float64)[job],
        launched=launched[job],
        run_ns=np.where(open_ended | (ended <= launched), 0, ended - launched)[job],
        unfinished=any_of(uses & np.isin(statuses, ("Running", "Waiting")))[job],
        failed=any_of(statuses == FAILED)[job],
        stands=stands,
    )


def _times(log: Log, column: str) -> IntColumn:
    """Return times in nanoseconds; -1 if there is none, for which the tables also have 0."""
    times = log.instants(column)
    return np.where(times == 0, _NOT_KNOWN, times)


@dataclass(frozen=True)
class _JobTable:
    """The jobs that the job table has, by their names."""

    users: Mapping[str, str] = field(default_factory=dict)
    statuses: Mapping[str, str] = field(default_factory=dict)
    submits: Mapping[str, int] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)


def _job_table(jobs: Table | None, tags: Table | None) -> _JobTable:
    if jobs is None:
        return _JobTable()
    log = Log(jobs)
    keys = log.texts("job_name")
    models: dict[str, str] = {}
    if tags is not None:
        workload = dict(zip(tags.columns["inst_id"], tags.columns["workload"], strict=True))
        models = {key: workload.get(inst, "") for key, inst in zip(keys, log.texts("inst_id"), strict=True)}
    return _JobTable(
        dict(zip(keys, log.texts("user"), strict=True)),
        dict(zip(keys, log.texts("status"), strict=True)),
        dict(zip(keys, _times(log, "start_time").tolist(), strict=True)),
        models,
    )


def _names(path: Path) -> tuple[str, ...]:
    """Return which table that file is."""
    first = next(iter(islice(lines_of(path, limited=True), 1)), "")
    for names in (TASK, JOB, TAG):
        if first.count(",") == len(names) - 1:
            return names
    raise TraceError(
        f"has {first.count(',') + 1} columns, and none of the tables has so many", mend=MEND, path=path, line=1
    )


def _read(path: Path, names: tuple[str, ...]) -> Table:
    first = next(iter(lines_of(path, limited=True)), "").strip()
    return read_table(path, names, dialect=Dialect() if first == ",".join(names) else Dialect(names=names))
