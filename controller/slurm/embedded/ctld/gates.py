"""Reasons for which Slurm does not consider a job at all, in Slurm's own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from controller.slurm.embedded.ctld.job import Job
from controller.slurm.embedded.ctld.records import Records
from controller.slurm.model.job import Phase

_CLAUSE = re.compile(r"[,?]")
SATISFIED, WAITING, NEVER = "satisfied", "Dependency", "DependencyNeverSatisfied"


def why_not_considered(records: Records, job: Job) -> str:
    """Return the reason for which the scheduler does not consider a pending, released job; "" when it considers it."""
    if job.begin_time_s is not None and job.begin_time_s > records.now_s:
        job.eligible_time_s = job.begin_time_s
        return "BeginTime"
    if job.dependency:  # evaluated here only: Slurm does not evaluate the dependencies of held jobs
        state = dependency_state(job, records.jobs, records.outcomes)
        if state != SATISFIED:
            return state
        job.dependency = ""
    if job.eligible_time_s is None or job.eligible_time_s > records.now_s:
        job.eligible_time_s = records.now_s
    return (
        _partition_gate(records, job)
        or _throttle_gate(records, job)
        or _license_gate(records, job)
        or _limit_gate(records, job)
    )


def _partition_gate(records: Records, job: Job) -> str:
    partitions = [records.partitions[name] for name in job.partition.split(",")]
    if not any(partition.up for partition in partitions):
        return "PartitionDown"
    limits = [partition.max_time_s for partition in partitions]
    if all(limit is not None and (job.time_limit_s or float("inf")) > limit for limit in limits):
        return "PartitionTimeLimit"
    return ""


def _throttle_gate(records: Records, job: Job) -> str:
    if not job.submission.throttle or job.array_job_id is None:
        return ""
    occupants = (other for other in records.occupants() if other.phase is not Phase.COMPLETING)
    siblings = sum(1 for other in occupants if other.array_job_id == job.array_job_id)
    return "JobArrayTaskLimit" if siblings >= job.submission.throttle else ""


def _license_gate(records: Records, job: Job) -> str:
    for name, count in job.submission.licenses.items():
        used = sum(other.submission.licenses.get(name, 0) for other in records.occupants())
        if used + count > records.description.licenses.get(name, 0):
            return "Licenses"
    return ""


def _limit_gate(records: Records, job: Job) -> str:
    wanted = job.request.least_gpus
    for limit in records.description.limits:
        if limit.user == job.submission.user and wanted:
            used = sum(other.num_gpus for other in records.occupants() if other.submission.user == limit.user)
            if used + wanted > limit.gpus:
                return limit.reason
    return ""


def dependency_state(job: Job, jobs: Mapping[str, Job], outcomes: Mapping[str, str]) -> str:
    """Return SATISFIED, WAITING or NEVER. `outcomes` has the end state of every job that ended, purged ones too."""
    text = job.dependency
    states = [_clause_state(clause, job, jobs, outcomes) for clause in _CLAUSE.split(text)]
    if "?" in text:  # any of them is enough
        return SATISFIED if SATISFIED in states else WAITING if WAITING in states else NEVER
    return NEVER if NEVER in states else WAITING if WAITING in states else SATISFIED


def _clause_state(clause: str, job: Job, jobs: Mapping[str, Job], outcomes: Mapping[str, str]) -> str:
    if clause == "singleton":
        return WAITING if any(_is_same_before(other, job) for other in jobs.values()) else SATISFIED
    kind, *targets = clause.split(":")
    ids = [target.partition("+")[0] for target in targets]  # "after:1+5" is emulated without the delay
    states = [_target_state(kind, task, jobs, outcomes) for each in ids for task in _tasks(each, jobs, outcomes)]
    return NEVER if NEVER in states else WAITING if WAITING in states else SATISFIED


def _is_same_before(other: Job, job: Job) -> bool:
    same = other.submission.name == job.submission.name and other.submission.user == job.submission.user
    return same and other.sequence < job.sequence and other.end_time_s is None


def _tasks(target: str, jobs: Mapping[str, Job], outcomes: Mapping[str, str]) -> list[str]:
    """Return the job itself, the task that has that number since its start, or every task of the array of that id."""
    if target in jobs or target in outcomes:
        return [target]
    if started := [name for name, job in jobs.items() if str(job.raw_id) == target]:
        return started
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
    """Return whether a node satisfies a --constraint of names joined by "&" or by "|"."""
    if not wanted:
        return True
    if "|" in wanted:
        return any(name in features for name in wanted.split("|"))
    return all(name in features for name in wanted.split("&"))
