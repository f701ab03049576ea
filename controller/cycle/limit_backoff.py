"""Refusals for a limit: other jobs with the same limit, and jobs whose end may lift it. Pure functions of Slurm's reasons.

Slurm counts limits by association (user and account), quality of service, license and array. A user far over a limit may
have thousands of jobs waiting. If each were tried, one hopeless job after another would be pinned to nodes, and other
users would wait for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from controller.observe.observer import Observation
from controller.observe.resize import request_now
from controller.slurm.client import JobKey, ResourceRequest, SlurmJob
from controller.state.ledger import Ledger


def jobs_of_same_limit(observation: Observation, refused: Iterable[JobKey], ledger: Ledger) -> dict[JobKey, JobKey]:
    """Return the waiting jobs that Slurm would refuse for the same limit, each with a refused job of that limit.

    The refused jobs must still have their original request in the ledger.
    """
    by_limit: dict[Any, list[SlurmJob]] = {}
    for key in refused:
        job = observation.jobs[key]
        if (limit := _limit(job, job.reason)) is not None:
            by_limit.setdefault(limit, []).append(job)
    found: dict[JobKey, JobKey] = {}
    if not by_limit:
        return found
    reasons = {job.reason for jobs in by_limit.values() for job in jobs}
    for row in observation.state.pending.tolist():
        job = observation.rows[row]
        for like in (like for reason in reasons for like in by_limit.get(_limit(job, reason), ())):
            if _asks_no_less(job, like, ledger):
                found[job.key] = like.key
                break
    return found


def may_unblock(ended: SlurmJob, job: SlurmJob, slurm_reason: str) -> bool:
    """Return whether the end of one job may lift the limit for which Slurm refused `job`.

    `slurm_reason`: Slurm's own words, separated by commas. If it is empty, only jobs of the same user count.
    """
    if ended.user == job.user:
        return True
    for word in slurm_reason.split(","):
        if word.startswith("AssocGrp") and ended.account == job.account:
            return True
        if word.startswith("QOSGrp") and ended.qos == job.qos:
            return True
        if word == "Licenses" and ended.licenses:
            return True
    return False


def _limit(job: SlurmJob, reason: str) -> tuple[object, ...] | None:
    """Return the key of the limit that this reason names; None: the reason concerns no other job."""
    if reason.startswith(("Assoc", "QOS")) and not reason.startswith(
        "QOSMin"
    ):  # a request below the minimum does not depend on other jobs
        return (reason, job.user, job.account, job.qos, job.partition)
    if reason == "Licenses":
        return (reason, job.licenses)
    if reason == "JobArrayTaskLimit":
        return (reason, job.array_job_id)
    return None


def _asks_no_less(job: SlurmJob, like: SlurmJob, ledger: Ledger) -> bool:
    """Return whether `job` requests at least as much as `like` of every resource that the limit may count."""
    reason = like.reason
    if not reason.startswith(("Assoc", "QOS")):
        return True
    one, other = request_now(job, ledger), request_now(like, ledger)
    if one.least_gpus < other.least_gpus or one.min_nodes < other.min_nodes or one.num_cpus < other.num_cpus:
        return False
    if "Mem" in reason and _memory(one) != _memory(other):
        return False
    return not ("Minutes" in reason or "Wall" in reason) or _limit_s(job) >= _limit_s(like)


def _memory(request: ResourceRequest) -> tuple[int | None, int | None]:
    return request.memory_mib_per_node, request.memory_mib_per_cpu


def _limit_s(job: SlurmJob) -> float:
    return math.inf if job.time_limit_s is None else job.time_limit_s
