"""Dependencies of held jobs, met or not.

slurmctld does not evaluate the dependencies of a held job (measured on 22.05), so Headway evaluates them. A job whose dependencies
seem met is offered to the policy; Slurm has the last word, and evaluates them again when the job is released. A job whose
dependency can never be met is given to Slurm, which cancels it or lets it wait as the site has set (kill_invalid_depend).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from controller.slurm.model.job import Phase, SlurmJob

_CLAUSE = re.compile(r"(?P<kind>[a-z]+)(?::(?P<targets>[\d_*:+]+))?(?:\(\w+\))?")
_NUMBERS = re.compile(r"\d+")
_MOST_DIGITS = 18


class Met(Enum):
    """Outcome of a dependency."""

    YES = "met"
    NOT_YET = "not yet"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class _Target:
    """State of the jobs that one id of a dependency means: a job, a task, all tasks of an array, or none that slurmctld knows."""

    is_known: bool
    is_pending: bool
    """True if one of them is pending."""
    has_ended: bool
    """True if all of them have ended."""
    has_completed: bool
    """True if all of them are COMPLETED."""
    started_s: float
    """Unix time of their last start; of a job that was cancelled before its start, that of its end."""


class Dependencies:
    """Dependencies as of one snapshot. Jobs that slurmctld has forgotten count as completed; Slurm evaluates again at the
    release.

    The jobs of each id, and of each name, are read once, however many jobs depend on them: a user may let each task of a large
    array wait for another array.
    """

    def __init__(self, jobs: Iterable[SlurmJob], now_s: float) -> None:
        self._now_s = now_s
        self._jobs = tuple(jobs)
        self._by_id: dict[str, list[SlurmJob]] = {}
        """Bound: the jobs of one snapshot."""
        self._targets: dict[str, _Target] = {}
        """Bound: the ids in dependencies of one snapshot."""
        for job in self._jobs:
            for job_id in _ids(job):
                self._by_id.setdefault(job_id, []).append(job)

    @cached_property
    def _first_left(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """Smallest number of the jobs of each user and name that have not ended."""
        first: dict[tuple[str, str], tuple[int, ...]] = {}
        for job in self._jobs:
            if job.phase is not Phase.ENDED:
                owner, number = (job.user, job.name), _number(job)
                first[owner] = min(first.get(owner, number), number)
        return first

    def of(self, job: SlurmJob) -> Met:
        """Return whether the job's dependencies are met. An unknown form counts as met: Slurm checks at the release."""
        if "?" in job.dependency:
            answers = [self._clause(job, clause) for clause in job.dependency.split("?")]
            if Met.YES in answers:
                return Met.YES
            return Met.NOT_YET if Met.NOT_YET in answers else Met.NEVER
        answers = [self._clause(job, clause) for clause in job.dependency.split(",")]
        if Met.NEVER in answers:
            return Met.NEVER
        return Met.NOT_YET if Met.NOT_YET in answers else Met.YES

    def _clause(self, job: SlurmJob, clause: str) -> Met:
        found = _CLAUSE.fullmatch(clause.strip())
        if found is None:
            return Met.YES
        if found["kind"] == "singleton":
            return self._singleton(job)
        answers = [self._target(job, found["kind"], target) for target in (found["targets"] or "").split(":") if target]
        if Met.NEVER in answers:
            return Met.NEVER
        return Met.NOT_YET if Met.NOT_YET in answers else Met.YES

    def _target(self, job: SlurmJob, kind: str, target: str) -> Met:
        wanted, _, delay_min = target.partition("+")
        wanted = wanted.removesuffix("_*")
        if kind == "aftercorr" and "_" in job.key.job_id:
            wanted = f"{wanted}_{job.key.job_id.split('_')[1]}"
        if wanted not in self._targets:
            self._targets[wanted] = _target_of(self._by_id.get(wanted, ()))
        other = self._targets[wanted]
        if kind == "after":
            begin_s = other.started_s + _delay_s(delay_min)
            return Met.NOT_YET if other.is_pending or begin_s > self._now_s else Met.YES
        if not other.has_ended:
            return Met.NOT_YET
        if kind in {"afterok", "aftercorr"}:
            return Met.YES if other.has_completed else Met.NEVER
        if kind == "afternotok":
            return Met.NEVER if other.is_known and other.has_completed else Met.YES
        return Met.YES

    def _singleton(self, job: SlurmJob) -> Met:
        """Return whether no earlier job of the same user and name is left."""
        number = _number(job)
        return Met.NOT_YET if self._first_left.get((job.user, job.name), number) < number else Met.YES


def _ids(job: SlurmJob) -> Iterator[str]:
    """Yield the ids by which a dependency may name the job. A task of an array that has started has a number of its own, too."""
    yield job.key.job_id
    if job.array_job_id is not None:
        yield str(job.array_job_id)
        if job.raw_id is not None and job.raw_id != job.array_job_id:
            yield str(job.raw_id)


def _target_of(jobs: Sequence[SlurmJob]) -> _Target:
    starts = (job.end_time_s if job.start_time_s is None else job.start_time_s for job in jobs)
    return _Target(
        is_known=bool(jobs),
        is_pending=any(job.phase is Phase.PENDING for job in jobs),
        has_ended=all(job.phase is Phase.ENDED for job in jobs),
        has_completed=all(job.state == "COMPLETED" for job in jobs),
        started_s=max((start_s for start_s in starts if start_s is not None), default=-math.inf),
    )


def _delay_s(minutes: str) -> float:
    """Return the delay behind the `+` of `after:`, seconds; infinite beyond every delay that Slurm could keep."""
    if not minutes.isdecimal():
        return 0.0
    return 60.0 * int(minutes) if len(minutes) <= _MOST_DIGITS else math.inf


def _number(job: SlurmJob) -> tuple[int, ...]:
    """Return the sort key of the order of submission: task 2 before task 11."""
    return tuple(map(int, _NUMBERS.findall(job.key.job_id)))
