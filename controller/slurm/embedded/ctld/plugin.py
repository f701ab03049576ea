"""The emulated job_submit.lua, with the same effects, driven by the same lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.base.lease import Lease, is_stale
from controller.slurm.birthmark import BIRTHMARK, birthmark_of
from controller.slurm.embedded.ctld.job import Job, Submission
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.slurm.user_holds import Hold, HoldFolder

USER_RELEASE_GRACE_S = 5.0
"""Time that Headway has to hold a job again before the job, released by its user, becomes eligible."""

Wake = Callable[[str], None]


def wake_none(line: str) -> None:
    """Discard a wake-up line: the default when no controller listens."""
    del line


@dataclass(frozen=True, slots=True)
class SubmitEffect:
    """The plugin's changes to a submission."""

    hold: bool
    admin_comment: str


@dataclass(frozen=True, slots=True)
class ReleaseEffect:
    """The plugin's answer to a user's release: a refusal with a message, or a later begin time."""

    refusal: str = ""
    begin_time_s: float | None = None
    swallowed: bool = False
    """True: the release cancelled a hold that had no effect yet. It succeeds, and changes nothing in Slurm."""


class SubmitPlugin:
    """Holds batch jobs with GPUs in managed partitions. Invariant: with a stale lease it changes nothing and sends no wake-up."""

    def __init__(
        self, lease: Callable[[], Lease | None], wake: Wake = wake_none, holds: HoldFolder | None = None
    ) -> None:
        """Without a folder for them, holds of users are not written down."""
        self._lease = lease
        self._wake = wake
        self._holds = holds
        self._born = 0
        """Submissions with a birthmark. A crash of the emulated slurmctld does not set it back."""

    def on_submit(self, submission: Submission, partition: str, now_s: float) -> SubmitEffect:
        """Hold and mark jobs that Headway manages; a job submitted with -H gets the mark of a user's hold."""
        if not self._manages(submission, partition, now_s):
            return SubmitEffect(submission.hold, submission.admin_comment)
        mark = USER_HOLD_MARK if submission.hold else HOLD_MARK
        self._wake("submit")
        self._born += 1
        born = f"{BIRTHMARK}{int(now_s):x}x{self._born:x}"
        return SubmitEffect(True, f"{submission.admin_comment} {born} {mark}".strip())

    def on_user_release(self, job: Job, now_s: float) -> ReleaseEffect:
        """Refuse the release of jobs that Headway holds, and delay that of jobs that the user held."""
        marks = job.admin_comment.split()
        fresh = self._manages(job.submission, job.partition, now_s)
        held = fresh and HOLD_MARK in marks and job.held
        if not (held and USER_HOLD_MARK in marks) and self._take_back(job) and held:
            return ReleaseEffect(swallowed=True)
        if not fresh:
            return ReleaseEffect()
        if held:
            return ReleaseEffect(
                refusal=f"job {job.job_id} waits for Headway, which will start it: see `headway why {job.job_id}`"
            )
        if USER_HOLD_MARK not in marks:
            return ReleaseEffect()
        self._wake(f"user-release {job.job_id}")
        return ReleaseEffect(begin_time_s=max(job.begin_time_s or 0.0, now_s + USER_RELEASE_GRACE_S))

    def on_user_hold(self, job: Job, now_s: float) -> str | None:
        """Record the hold for the controller, which keeps the marks. Returns why the hold is refused, or None."""
        manages = self._manages(job.submission, job.partition, now_s)
        marks = job.admin_comment.split()
        ours = HOLD_MARK in marks or (job.held and PIN_MARK in marks)
        # A placed job's hold is noted with a stale lease too: the controller may work by a clock that was set wrong.
        if self._holds is not None and (manages or ours or PIN_MARK in marks):
            try:
                self._holds.write(job.job_id, _hold_of(job, now_s))
            except OSError:
                return "Headway cannot record the hold now; try again in a few seconds" if ours else None
        if manages:
            self._wake(f"user-hold {job.job_id}")
        return None

    def _take_back(self, job: Job) -> bool:
        return self._holds is not None and self._holds.remove([job.job_id]) > 0

    def _manages(self, submission: Submission, partition: str, now_s: float) -> bool:
        lease = self._lease()
        if lease is None or is_stale(lease, now_s):
            return False
        plain = submission.batch and not submission.het_components
        return submission.request.has_gpus and plain and all(name in lease.partitions for name in partition.split(","))


def _hold_of(job: Job, now_s: float) -> Hold:
    born = birthmark_of(job.admin_comment)
    return Hold(now_s, job.submit_time_s, job.restarts, job.submission.user_id, born)
