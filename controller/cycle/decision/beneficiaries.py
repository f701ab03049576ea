"""Waiting jobs for which policies stop others, and those for which they must not, because it would be in vain.

A job that Slurm refuses for a limit does not start on freed nodes either. The jobs that were stopped for it would start again, and
be stopped again after their cool-down, for as long as it waits. Policies do not know limits, so they would go on for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace

from controller.base.text import count
from controller.observe.role import LAST_RETRY_S
from controller.preempt.budget import HOUR_S
from controller.slurm.model.job import JobKey, SlurmJob
from controller.state.ledger import Ledger, Refusal

MOST_TIMES = 3
"""Number of times within an hour that jobs are stopped for one waiting job. It may start, be stopped itself, and wait again."""
_AGAIN_S = 86_400.0
"""Time after which jobs may be stopped once more for a job that was refused for a limit, seconds: it may have been raised."""


class Beneficiaries:
    """Invariant: policies stop jobs at most MOST_TIMES times within an hour for one job. For a job that Slurm has refused for a
    limit they stop none before a job has ended that may lift the limit, but for once a day."""

    def __init__(self, ledger: Ledger, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`monotonic`: a clock that is never set, seconds."""
        self._ledger = ledger
        self._monotonic = monotonic
        self._times_s: dict[str, list[float]] = {}
        """Times within the last hour at which jobs were stopped for each job, by its id, which a requeue does not change.
        Bound: each call of `forget` drops what is older."""
        self._kept: dict[JobKey, tuple[int, float]] = {}
        """Jobs that were refused for a limit: the number of refusals, and the time since which no job is stopped for them.
        Bound: each call of `forget` drops those of jobs that are gone."""

    def why_not(self, job: SlurmJob) -> str:
        """Return why no job may be stopped for this one now; empty: they may."""
        refusal = self._ledger.refusals.get(job.key)
        if refusal is not None and refusal.is_for_limit and refusal.woken != refusal.count:
            number, since_s = self._kept.get(job.key, (0, 0.0))
            if number != refusal.count:
                since_s = self._monotonic()
                self._kept[job.key] = refusal.count, since_s
            if self._monotonic() - since_s < _AGAIN_S:
                until = "before a job ends that may lift the limit"
                return f"Slurm refused it ({refusal.slurm_reason}), so none is stopped for it {until}"
        times = len(self._lately(job.key.job_id))
        if times < MOST_TIMES:
            return ""
        return f"jobs were stopped for it {count(times, 'time')} within an hour, so none is stopped for it now"

    def note(self, job: SlurmJob) -> None:
        """Note that jobs are stopped for this one now."""
        self._times_s[job.key.job_id] = [*self._lately(job.key.job_id), self._monotonic()]
        self._kept.pop(job.key, None)

    def pass_over(self, keys: Collection[JobKey], now_s: float) -> None:
        """Let these refused jobs wait for some minutes, and those that wait for the same limit.

        Otherwise such a job would be the first choice for its nodes in every decision, and no other would get them. The pause is
        not journaled, because it can be decided again. An end that may lift the limit also ends the pause.
        """
        refusals = self._ledger.refusals
        roots = {refusals[key].like or key.job_id for key in keys}
        for key, refusal in list(refusals.items()) if roots else ():
            alike = (refusal.like or key.job_id) in roots and refusal.woken != refusal.count
            if alike or key in keys:
                refusals[key] = _passed_over(refusal, now_s)

    def forget(self, jobs: Collection[JobKey]) -> None:
        """Forget what is older than an hour, and jobs that are gone. `jobs`: those that Slurm knows."""
        self._times_s = {job_id: lately for job_id in self._times_s if (lately := self._lately(job_id))}
        self._kept = {key: kept for key, kept in self._kept.items() if key in jobs}

    def _lately(self, job_id: str) -> list[float]:
        over_s = self._monotonic() - HOUR_S
        return [time_s for time_s in self._times_s.get(job_id, ()) if time_s > over_s]


def _passed_over(refusal: Refusal, now_s: float) -> Refusal:
    """Return the refusal with a new pause, the longest one. After one for a limit the job may start on every node."""
    if refusal.is_for_limit:
        refusal = replace(refusal, unfit="", tried="")
    return replace(refusal, refused_at_s=now_s, retry_at_s=now_s + LAST_RETRY_S)
