"""What keeps a job from being considered at all: pure answers in Slurm's own words, "" when nothing does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from controller.slurm.embedded.job import Job

_CLAUSE = re.compile(r"[,?]")
SATISFIED, WAITING, NEVER = "satisfied", "Dependency", "DependencyNeverSatisfied"


def dependency_state(job: Job, jobs: Mapping[str, Job], outcomes: Mapping[str, str]) -> str:
    """SATISFIED, WAITING or NEVER. `outcomes` has the end state of every job that ended, purged ones too."""
    text = job.dependency
    states = [_clause_state(clause, job, jobs, outcomes) for clause in _CLAUSE.split(text)]
    if "?" in text:  # any of them is enough
        return SATISFIED if SATISFIED in states else WAITING if WAITING in states else NEVER
    return NEVER if NEVER in states else WAITING if WAITING in states else SATISFIED


def _clause_state(clause: str, job: Job, jobs: Mapping[str, Job], outcomes: Mapping[str, str]) -> str:
    if clause == "singleton":
        return WAITING if any(_is_same_before(other, job) for other in jobs.values()) else SATISFIED
    kind, *targets = clause.split(":")
    states = [_target_state(kind, task, jobs, outcomes) for t in targets for task in _tasks(t, jobs, outcomes)]
    return NEVER if NEVER in states else WAITING if WAITING in states else SATISFIED


def _is_same_before(other: Job, job: Job) -> bool:
    same = other.submission.name == job.submission.name and other.submission.user == job.submission.user
    return same and other.sequence < job.sequence and other.end_time_s is None


def _tasks(target: str, jobs: Mapping[str, Job], outcomes: Mapping[str, str]) -> list[str]:
    """The job itself, or every task of the array of that id."""
    if target in jobs or target in outcomes:
        return [target]
    known: Iterable[str] = {*jobs, *outcomes}
    return [name for name in known if name.startswith(f"{target}_")]


def _target_state(kind: str, target: str, jobs: Mapping[str, Job], outcomes: Mapping[str, str]) -> str:
    outcome = outcomes.get(target)
    if kind == "after":
        started = outcome is not None or jobs[target].start_time_s is not None
        return SATISFIED if started else WAITING
    if outcome is None:
        return WAITING
    match kind:
        case "afterok":
            return SATISFIED if outcome == "COMPLETED" else NEVER
        case "afternotok":
            return NEVER if outcome == "COMPLETED" else SATISFIED
        case _:
            return SATISFIED


def has_features(wanted: str, features: frozenset[str]) -> bool:
    """Whether a node satisfies a --constraint of names joined by "&" or by "|"."""
    if not wanted:
        return True
    if "|" in wanted:
        return any(name in features for name in wanted.split("|"))
    return all(name in features for name in wanted.split("&"))
