"""Refusals for a limit: other jobs with the same limit, and jobs whose end may lift it. Pure functions of Slurm's reasons.

Slurm counts limits by association (user and account), quality of service, license and array. A user far over a limit may
have thousands of jobs waiting. If each were tried, one hopeless job after another would be pinned to nodes, and other
users would wait for them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterable
from operator import itemgetter
from typing import NamedTuple

from controller.base.apart import apart
from controller.observe.observer import Observation
from controller.observe.resize import request_now
from controller.slurm.model.job import JobKey, ResourceRequest, SlurmJob
from controller.state.ledger import Ledger

_Amounts = tuple[float, ...]


class _Demand(NamedTuple):
    """Demand of a job for the resources that one limit may count."""

    limit: Hashable
    """Key of the limit; only jobs with an equal one are compared."""
    amounts: _Amounts
    """GPUs, nodes, CPUs, and for limits of time the time limit in seconds; empty if the limit counts jobs or licenses."""


def jobs_of_same_limit(observation: Observation, refused: Iterable[JobKey], ledger: Ledger) -> dict[JobKey, JobKey]:
    """Return the waiting jobs that Slurm would refuse for the same limit, each with a refused job of that limit.

    The refused jobs must still have their original request in the ledger.
    """
    by_limit: dict[Hashable, list[tuple[_Amounts, JobKey]]] = {}
    reasons: dict[str, None] = {}
    for key in refused:
        job = observation.jobs[key]
        with apart("refused jobs", key.job_id):
            if (demand := _demand(job, job.reason, ledger)) is not None:
                reasons[job.reason] = None
                by_limit.setdefault(demand.limit, []).append((demand.amounts, key))
    found: dict[JobKey, JobKey] = {}
    if not by_limit:
        return found
    # Hundreds of jobs may be refused in one cycle, but only a few of them ask for less than the others.
    smallest = {limit: _smallest(each) for limit, each in by_limit.items()}
    for row in observation.state.pending.tolist():
        job = observation.rows[row]
        with apart("refused jobs", job.key.job_id):
            for demand in (_demand(job, reason, ledger) for reason in reasons):
                like = None if demand is None else _like(demand.amounts, smallest.get(demand.limit, ()))
                if like is not None:
                    found[job.key] = like
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


def _demand(job: SlurmJob, reason: str, ledger: Ledger) -> _Demand | None:
    """Return what the job asks for of the resources that the limit may count; None: the reason concerns no other job."""
    limit = _limit(job, reason)
    if limit is None:
        return None
    if not reason.startswith(("Assoc", "QOS")):
        return _Demand(limit, ())
    request = request_now(job, ledger)
    amounts: _Amounts = (request.least_gpus, request.min_nodes, request.num_cpus)
    if "Minutes" in reason or "Wall" in reason:
        amounts += (_limit_s(job),)
    return _Demand((limit, _memory(request)) if "Mem" in reason else limit, amounts)


def _smallest(demands: Iterable[tuple[_Amounts, JobKey]]) -> list[tuple[_Amounts, JobKey]]:
    """Return the demands without those that ask for at least as much of everything as another; of equal ones, keep the first."""
    kept: list[tuple[_Amounts, JobKey]] = []
    for amounts, key in sorted(demands, key=itemgetter(0)):
        if _like(amounts, kept) is None:
            kept.append((amounts, key))
    return kept


def _like(amounts: _Amounts, refused: Iterable[tuple[_Amounts, JobKey]]) -> JobKey | None:
    """Return the first refused job that asks for no more of anything than these amounts; None if there is none."""
    return next((key for other, key in refused if all(map(operator.ge, amounts, other))), None)


def _memory(request: ResourceRequest) -> tuple[int | None, int | None]:
    return request.memory_mib_per_node, request.memory_mib_per_cpu


def _limit_s(job: SlurmJob) -> float:
    return math.inf if job.time_limit_s is None else job.time_limit_s
