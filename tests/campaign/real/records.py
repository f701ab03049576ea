"""Runs of jobs from sources that do not depend on Headway: Slurm's accounting, the jobs' own logs, and slurmctld's log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

SACCT = (
    "sacct", "--allusers", "--duplicates", "--allocations", "--noheader", "--parsable2",
    "--format=JobID,JobName,State,Start,End,NodeList,AllocTRES",
)  # fmt: skip
"""One line for each run of a job, also of those that ended in a requeue. Times as SLURM_TIME_FORMAT=%s gives them."""
_TASKS = re.compile(r"(\d+)_\[([\d,-]+)(?:%\d+)?\]")
_LIST = re.compile(r"([a-z]+)(?:\[([\d,-]+)\]|(\d+))")
_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_RELEASE = re.compile(r"^\[(\S+)\] sched: _release_job_rec: release hold on JobId=(\d+(?:_\d+)?)", re.MULTILINE)
_UNENDED = ("RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "RESIZING")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a job's own log."""

    time_s: float
    run: int
    """How often Slurm had requeued the job by then."""
    node: str
    what: str
    """start, step, saved, requeued or end."""
    step: int


@dataclass(frozen=True, slots=True)
class Row:
    """One run of a job in the accounting, or a job that ended without a run. Times are whole seconds."""

    job_id: str
    name: str
    state: str
    start_s: int | None
    end_s: int | None
    nodes: tuple[str, ...]
    """Empty: it did not run."""
    gpus: int
    unsplit: bool = False
    """The record is that of an array, from which Slurm may have split the task off since."""

    @property
    def ran(self) -> bool:
        """True if Slurm gave it nodes."""
        return bool(self.nodes) and self.start_s is not None

    @property
    def ended(self) -> bool:
        """True if the job was over with this row."""
        return self.state not in (*_UNENDED, "REQUEUED")


def parse_log(text: str) -> list[Line]:
    """Return the complete lines of a job's log; a last line without its end is left out."""
    lines = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        time_s, run, node, what, step = line.split()
        lines.append(Line(float(time_s), int(run), node, what, int(step)))
    return lines


def parse_sacct(text: str) -> list[Row]:
    """Return the rows in the order of the accounting; tasks of an array that have not been split off have a row each."""
    rows = []
    for line in text.splitlines():
        job_id, name, state, start, end, nodes, tres = line.split("|")
        gpus = _GPUS.search(tres)
        run = Row(
            job_id, name, state.split()[0], _seconds(start), _seconds(end), tuple(expand_nodes(nodes)), int(gpus[1]) if gpus else 0
        )  # fmt: skip
        tasks = _tasks(job_id)
        rows += [replace(run, job_id=task, unsplit=task != job_id) for task in tasks]
    return rows


def parse_releases(slurmctld_log: str) -> dict[str, list[float]]:
    """Return the times at which slurmctld released each job. Its log has local times."""
    found: dict[str, list[float]] = {}
    for time, job_id in _RELEASE.findall(slurmctld_log):
        found.setdefault(job_id, []).append(datetime.fromisoformat(time).timestamp())
    return found


def _tasks(job_id: str) -> Sequence[str]:
    """Return 8_1, 8_2 for 8_[1-2%1]."""
    match = _TASKS.fullmatch(job_id)
    return [f"{match[1]}_{task}" for task in _numbers(match[2])] if match else [job_id]


def by_job(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each job, the earliest run first. A task with rows of its own has none of its array's record."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.job_id, []).append(row)
    for job_id, of_job in found.items():
        if any(not row.unsplit for row in of_job):
            found[job_id] = [row for row in of_job if not row.unsplit]
    for of_job in found.values():
        of_job.sort(key=lambda row: (row.end_s is None, row.end_s or 0, row.start_s or 0))
    return found


def _seconds(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def expand_nodes(nodes: str) -> Iterable[str]:
    """Yield n1, n2, n4 for n[1-2,4]."""
    if nodes == "None assigned":
        return
    for name, ranges, single in _LIST.findall(nodes):
        yield from (f"{name}{number}" for number in _numbers(ranges or single))


def _numbers(ranges: str) -> Iterable[int]:
    """Yield 1, 2, 4 for 1-2,4."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
