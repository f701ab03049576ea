"""Dependencies of held jobs, met or not.

slurmctld does not evaluate the dependencies of a held job (measured on 22.05), so Headway evaluates them. A job whose dependencies
seem met is offered to the policy; Slurm has the last word, and evaluates them again when the job is released. A job whose
dependency can never be met is given to Slurm, which cancels it or lets it wait as the site has set (kill_invalid_depend).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from controller.slurm.client import Phase, SlurmJob

_CLAUSE = re.compile(r"(?P<kind>[a-z]+)(?::(?P<targets>[\d_*:+]+))?(?:\(\w+\))?")


class Met(Enum):
    """Outcome of a dependency."""

    YES = "met"
    NOT_YET = "not yet"
    NEVER = "never"


class Dependencies:
    """Dependencies as of one snapshot. Jobs that slurmctld has forgotten count as completed; Slurm evaluates again at the
    release."""

    def __init__(self, jobs: Iterable[SlurmJob]) -> None:
        self._by_id: dict[str, list[SlurmJob]] = {}
        """Bound: the jobs of one snapshot."""
        self._by_name: dict[tuple[str, str], list[SlurmJob]] = {}
        """Bound: the jobs of one snapshot."""
        for job in jobs:
            self._by_id.setdefault(job.key.job_id, []).append(job)
            if job.array_job_id is not None:
                self._by_id.setdefault(str(job.array_job_id), []).append(job)
            self._by_name.setdefault((job.user, job.name), []).append(job)

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
        wanted = target.split("+", maxsplit=1)[0].removesuffix("_*")
        if kind == "aftercorr" and "_" in job.key.job_id:
            wanted = f"{wanted}_{job.key.job_id.split('_')[1]}"
        others = self._by_id.get(wanted, [])
        if kind == "after":
            return Met.NOT_YET if any(other.phase is Phase.PENDING for other in others) else Met.YES
        if any(other.phase is not Phase.ENDED for other in others):
            return Met.NOT_YET
        well = [other.state == "COMPLETED" for other in others]
        if kind in {"afterok", "aftercorr"}:
            return Met.YES if all(well) else Met.NEVER
        if kind == "afternotok":
            return Met.NEVER if well and all(well) else Met.YES
        return Met.YES

    def _singleton(self, job: SlurmJob) -> Met:
        """Return whether no earlier job of the same user and name is left."""
        before = (
            other
            for other in self._by_name.get((job.user, job.name), [])
            if other.key != job.key and other.phase is not Phase.ENDED and _number(other) < _number(job)
        )
        return Met.NOT_YET if next(before, None) is not None else Met.YES


def _number(job: SlurmJob) -> tuple[int, str]:
    return int(job.key.job_id.split("_")[0]), job.key.job_id
