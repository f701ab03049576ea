"""The Standard Workload Format of the Parallel Workloads Archive (Chapin et al. 1999; version 2.2).

Lines of 18 numbers, comments after `;`, -1 for unknown values, times in seconds. The format knows no GPUs: a processor (the
requested ones; else the allocated) stands for one. Dropped: jobs without processors, jobs without run time, and the lines of
status 2, 3 and 4, which are parts of a job that has a line of its own. Status 0, 1 and 5 become failed, completed and
cancelled; the requested time is the limit; user and queue (else partition) numbers are kept as texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulator.errors import TraceError
from simulator.traces.formats.log import NO_RUN_TIME, Loaded, Log, Options, joined
from simulator.traces.table import Table, lines_of

FIELDS = (
    "job",
    "submit",
    "wait",
    "run_time",
    "processors",
    "cpu_time",
    "memory",
    "requested_processors",
    "requested_time",
    "requested_memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding",
    "think_time",
)
STATUS = {"0": "failed", "1": "completed", "5": "cancelled"}


def load(paths: Sequence[Path], options: Options) -> Loaded:  # noqa: ARG001 - one signature for every format
    """Load the jobs of these logs."""
    return joined([_load(path) for path in paths], paths)


def _load(path: Path) -> Loaded:
    log = Log(_table(path))
    log.drop(np.isin(log.texts("status"), ("2", "3", "4")), "parts of jobs that have a line of their own")
    requested, allocated = log.texts("requested_processors"), log.texts("processors")
    gpus = [wanted if wanted not in {"-1", "0"} else got for wanted, got in zip(requested, allocated, strict=True)]
    log.drop(np.isin(gpus, ("-1", "0")), "jobs without processors")
    log.drop(log.numbers("run_time") <= 0, NO_RUN_TIME)
    queues = zip(log.texts("queue"), log.texts("partition"), strict=True)
    return log.loaded(
        job_id="job",
        submit_time_s="submit",
        num_gpus=gpus,
        duration_s="run_time",
        time_limit_s=["" if text in {"-1", "0"} else text for text in log.texts("requested_time")],
        user=_known(log.texts("user")),
        vc=_known([partition if queue == "-1" else queue for queue, partition in queues]),
        status=[STATUS.get(text, "") for text in log.texts("status")],
    )


def _table(path: Path) -> Table:
    """Return the table of the lines that are not comments."""
    rows: list[list[str]] = []
    lines: list[int] = []
    for number, line in enumerate(lines_of(path), start=1):
        fields = line.partition(";")[0].split()
        if not fields:
            continue
        if len(fields) != len(FIELDS):
            mend = "give a log in the Standard Workload Format"
            raise TraceError(f"has {len(fields)} fields, not {len(FIELDS)}", mend=mend, path=path, line=number)
        rows.append(fields)
        lines.append(number)
    if not rows:
        raise TraceError("contains no job", mend="give a log in the Standard Workload Format", path=path)
    return Table(path, dict(zip(FIELDS, zip(*rows, strict=True), strict=True)), len(rows), lines.__getitem__)


def _known(texts: Sequence[str]) -> list[str]:
    return ["" if text == "-1" else text for text in texts]
