"""Alibaba's PAI cluster, 2020 (Weng et al., "MLaaS in the Wild", NSDI 2022; cluster-trace-gpu-v2020).

Give `pai_task_table.csv`, with it `pai_job_table.csv` (users, submit times) and `pai_group_tag_table.csv` (workloads), in any
order; the files have no header line and are recognised by their number of columns (a header line is accepted too). Times are
seconds on one clock, GPUs hundredths (plan_gpu 50.0 is half a GPU) times instances.

A job's GPUs are the sum over its tasks, rounded up, because jobs here occupy whole GPUs; the planned number is kept as plan_gpu.
It runs from the launch of its first GPU task to the end of its last; it was submitted at the job table's start_time, without
that table at its first launch. The workload (ctr, bert, resnet, ...) becomes the model. Dropped: jobs without GPUs, jobs whose
times are not both known or that ran for no time; jobs that the task table does not contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from simulator.errors import TraceError
from simulator.traces.formats.log import NO_GPUS, NO_RUN_TIME, Loaded, Log, Options
from simulator.traces.numbers import MOST_GPUS
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
MEND = "give pai_task_table.csv, and with it pai_job_table.csv and pai_group_tag_table.csv"


def load(paths: Sequence[Path], options: Options) -> Loaded:  # noqa: ARG001 - one signature for every format
    """Load the jobs of these tables."""
    tables: dict[tuple[str, ...], Table] = {}
    for path in paths:
        names = _names(path)
        if names in tables:
            raise TraceError("is the second table of its kind", mend=MEND, path=path)
        tables[names] = _read(path, names)
    if TASK not in tables:
        raise TraceError("no task table among the files", mend=MEND, path=paths[0])
    return _load(tables[TASK], tables.get(JOB), tables.get(TAG))


def _load(tasks: Table, jobs: Table | None, tags: Table | None) -> Loaded:
    """Convert tasks to jobs: the first row of each job stands for the job."""
    log = Log(tasks)
    start, end = log.instants("start_time"), log.instants("end_time")
    planned = np.nan_to_num(log.numbers("plan_gpu")) * np.nan_to_num(log.numbers("inst_num"))
    names, first, job = np.unique(np.array(log.texts("job_name")), return_index=True, return_inverse=True)
    gpus = np.bincount(job, weights=planned)
    late, early = np.iinfo(np.int64).max, -1
    started, ended = np.full(len(names), late), np.full(len(names), early)
    uses = planned > 0
    np.minimum.at(started, job[uses], np.where(start[uses] < 0, early, start[uses]))
    np.maximum.at(ended, job[uses], end[uses])
    open_ended = np.zeros(len(names), dtype=np.bool_)
    np.logical_or.at(open_ended, job[uses], (end[uses] < 0) | (start[uses] < 0))

    once = np.zeros(tasks.rows, dtype=np.bool_)
    once[first] = True
    log.kept &= once
    log.drop((gpus == 0)[job], NO_GPUS)
    log.drop((open_ended | (ended <= started))[job], NO_RUN_TIME)
    users, submits, models = _from_job_table(jobs, tags)
    keys = log.texts("job_name")
    return log.loaded(
        job_id="job_name",
        submit_time_s=np.array([submits.get(key, -1) for key in keys], dtype=np.int64)
        if jobs
        else np.where(started == late, 0, started)[job],
        num_gpus=list(map(str, np.ceil(np.minimum(gpus / 100, MOST_GPUS + 1)).astype(np.int64)[job].tolist())),
        duration_s=np.where(open_ended | (ended <= started), 0, ended - started)[job],
        user=[users.get(key, "") for key in keys],
        status="status",
        model=[models.get(key, "") for key in keys],
        plan_gpu=[f"{hundredths:g}" for hundredths in gpus[job].tolist()],
        gpu_type="gpu_type",
    )


def _from_job_table(jobs: Table | None, tags: Table | None) -> tuple[dict[str, str], dict[str, int], dict[str, str]]:
    """Return user, submission and workload of each job."""
    if jobs is None:
        return {}, {}, {}
    log = Log(jobs)
    keys = log.texts("job_name")
    models: dict[str, str] = {}
    if tags is not None:
        workload = dict(zip(tags.columns["inst_id"], tags.columns["workload"], strict=True))
        models = {key: workload.get(inst, "") for key, inst in zip(keys, log.texts("inst_id"), strict=True)}
    submits = log.instants("start_time").tolist()
    return dict(zip(keys, log.texts("user"), strict=True)), dict(zip(keys, submits, strict=True)), models


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
