"""The emulated job_submit.lua: the same effect, from the same lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.lease import Lease, is_stale
from controller.slurm.client import HOLD_MARK, USER_HOLD_MARK
from controller.slurm.embedded.job import Job, Submission

USER_RELEASE_GRACE_S = 5.0
"""Head start that Headway gets before a job that its user released becomes eligible."""

Wake = Callable[[str], None]


def wake_nobody(line: str) -> None:
    """Where wake-up lines go when nobody listens."""
    del line


@dataclass(frozen=True, slots=True)
class SubmitEffect:
    """What the plugin does to a submission."""

    hold: bool
    admin_comment: str


@dataclass(frozen=True, slots=True)
class ReleaseEffect:
    """What the plugin does to a user's release: refuse it with a message, or put the begin time off."""

    refusal: str = ""
    begin_time_s: float | None = None


class SubmitPlugin:
    """Holds batch jobs with GPUs in managed partitions. Invariant: with a stale lease it changes nothing and wakes nobody."""

    def __init__(self, lease: Callable[[], Lease | None], wake: Wake = wake_nobody) -> None:
        self._lease = lease
        self._wake = wake

    def on_submit(self, submission: Submission, partition: str, now_s: float) -> SubmitEffect:
        """Hold and mark what Headway manages; a user's own -H gets the other mark."""
        if not self._manages(submission, partition, now_s):
            return SubmitEffect(submission.hold, submission.admin_comment)
        mark = USER_HOLD_MARK if submission.hold else HOLD_MARK
        self._wake("submit")
        return SubmitEffect(True, f"{submission.admin_comment} {mark}".strip())

    def on_user_release(self, job: Job, now_s: float) -> ReleaseEffect:
        """Refuse for jobs that Headway holds; put off for those that the user held."""
        marks = job.admin_comment.split()
        if not self._manages(job.submission, job.partition, now_s):
            return ReleaseEffect()
        if HOLD_MARK in marks:
            return ReleaseEffect(
                refusal=f"job {job.job_id} waits for Headway, which will start it: see `headway why {job.job_id}`"
            )
        if USER_HOLD_MARK not in marks:
            return ReleaseEffect()
        self._wake(f"user-release {job.job_id}")
        return ReleaseEffect(begin_time_s=max(job.begin_time_s or 0.0, now_s + USER_RELEASE_GRACE_S))

    def on_user_hold(self, job: Job, now_s: float) -> None:
        """Tell the controller, which keeps the marks."""
        if self._manages(job.submission, job.partition, now_s):
            self._wake(f"user-hold {job.job_id}")

    def _manages(self, submission: Submission, partition: str, now_s: float) -> bool:
        lease = self._lease()
        if lease is None or is_stale(lease, now_s):
            return False
        request = submission.request
        wants_gpus = bool(request.gpus_per_node or request.gpus_per_job or request.gpus_per_task)
        plain = submission.batch and not submission.het_components
        return wants_gpus and plain and all(name in lease.partitions for name in partition.split(","))
