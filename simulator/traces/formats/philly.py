"""Microsoft's Philly clusters, 2017 (Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
Workloads", USENIX ATC 2019; msr-fiddle/philly-traces, `cluster_job_log`).

A JSON array of jobs, each with status (Pass, Killed, Failed), vc, jobid, user, submitted_time and attempts; an attempt has
start_time, end_time and the GPUs of each node. Dates are local, without a zone, so that a job which ran across the end of summer
time (5 November 2017) is an hour short. A job's GPUs are those of its largest attempt, its run time the time in which any attempt
ran: an attempt whose end the log puts after the start of the next one is cut there, because the log then repeats the end of the
job. Dropped: jobs that never got GPUs, jobs that have not ended (the last attempt has no end), jobs without a known start and end,
jobs that ran for no time. The number of attempts is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import TraceError
from simulator.traces.files import UNPACK_AGAIN
from simulator.traces.formats.log import NO_GPUS, NO_RUN_TIME, UNFINISHED, Loaded, Log, Options, joined
from simulator.traces.numbers import BadCellError, instants_ns
from simulator.traces.table import Table, lines_of

_NEXT = re.compile(r"[\s,]*")
MEND = "give Philly's cluster_job_log: a JSON array of jobs"


def load(paths: Sequence[Path], options: Options) -> Loaded:  # noqa: ARG001 - one signature for every format
    """Load the jobs of these logs."""
    return joined([_load(path) for path in paths], paths)


def _load(path: Path) -> Loaded:
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    for line, job in _jobs(path):
        rows.append(_row(path, line, job))
        lines.append(line)
    if not rows:
        raise TraceError("contains no job", mend=MEND, path=path)
    names = ("jobid", "submitted_time", "gpus", "run_ns", "user", "vc", "status", "attempts", "ended")
    texts = dict(zip(names, zip(*rows, strict=True), strict=True))
    log = Log(Table(path, texts, len(rows), lines.__getitem__))
    run_ns = np.array(list(map(int, texts["run_ns"])), dtype=np.int64)
    log.drop(log.numbers("gpus") == 0, NO_GPUS)
    log.drop(np.array([not ended for ended in texts["ended"]]), UNFINISHED)
    log.drop(run_ns <= 0, NO_RUN_TIME)
    return log.loaded(
        job_id="jobid",
        submit_time_s=log.instants("submitted_time"),
        num_gpus="gpus",
        duration_s=run_ns,
        user="user",
        vc="vc",
        status="status",
        attempts="attempts",
    )


def _jobs(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield job after job, each with the line on which it begins."""
    text = "".join(lines_of(path))
    decoder = json.JSONDecoder()
    at, line, counted = _NEXT.match(text, 0).end(), 1, 0  # type: ignore[union-attr] # it matches nothing at all too
    if text[at : at + 1] != "[":
        raise TraceError("does not begin with [", mend=MEND, path=path, line=1)
    at += 1
    while True:
        at = _NEXT.match(text, at).end()  # type: ignore[union-attr] # it matches nothing at all too
        line, counted = line + text.count("\n", counted, at), at
        if text[at : at + 1] == "]":
            return
        begin = at
        try:
            job, at = decoder.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            if not text[error.pos :].strip():
                raise TraceError("the JSON ends too early", mend=UNPACK_AGAIN, path=path, line=error.lineno) from None
            raise TraceError(f"is not valid JSON ({error.msg})", mend=MEND, path=path, line=error.lineno) from None
        except (ValueError, RecursionError):  # a number of thousands of digits, or very deep nesting
            raise TraceError("is not JSON that can be read", mend=MEND, path=path, line=line) from None
        if not isinstance(job, dict):
            raise TraceError("is not a job", mend=MEND, path=path, line=line, text=text[begin:at])
        yield line, job


def _row(path: Path, line: int, job: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields of one job as text."""
    try:
        times = [_times(attempt) for attempt in job["attempts"]]
        attempts = sorted((start, end) for start, end in times if start >= 0 and end > start)
        ended = "1" if not times or times[-1][1] >= 0 else ""
        gpus = max((sum(len(node["gpus"]) for node in attempt["detail"]) for attempt in job["attempts"]), default=0)
        texts = [str(job[name] or "") for name in ("user", "vc", "status")]
        names = (str(job["jobid"]), str(job["submitted_time"]))
    except KeyError as error:
        raise TraceError("is missing", mend=MEND, path=path, line=line, column=str(error.args[0])) from None
    except BadCellError as bad:
        raise TraceError(bad.reason, mend=bad.mend, path=path, line=line, text=bad.text) from None
    except (TypeError, AttributeError):
        raise TraceError("is not a job as Philly writes it", mend=MEND, path=path, line=line) from None
    return (*names, str(gpus), str(_run_ns(attempts)), *texts, str(len(times)), ended)


def _times(attempt: Mapping[str, Any]) -> tuple[int, int]:
    start, end = instants_ns([str(attempt["start_time"] or ""), str(attempt["end_time"] or "")]).tolist()
    return start, end


def _run_ns(attempts: Sequence[tuple[int, int]]) -> int:
    """Return the total time of the attempts, in order of their starts; each ends at the latest when the next one starts."""
    later = [*(start for start, _ in attempts[1:]), 1 << 63]
    return sum(min(end, after) - start for (start, end), after in zip(attempts, later, strict=False))
