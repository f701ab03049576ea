"""Limits how often the rows of jobs go out before the next report. Pure: the caller gives the time."""

from __future__ import annotations

from policies.serving.runtime.tasks.token_bucket import TokenBucket

_PER_S = 1.0
_BURST = 4.0
_FORGET_AFTER_S = 60.0


class ReportThrottle:
    """The jobs whose rows are to go out early.

    Invariant: a job causes at most _BURST early rows at once and _PER_S a second for long; a row that must wait is not lost.
    """

    def __init__(self) -> None:
        self._wanted: dict[int, None] = {}
        """Jobs whose rows are to go out early. Bound: the jobs on the node since the last call of `take`."""
        self._buckets: dict[int, tuple[TokenBucket, float]] = {}
        """Budget of each job, and when it was used. Bound: the jobs of the last minute."""

    @property
    def waiting(self) -> bool:
        """Some rows are due, now or later."""
        return bool(self._wanted)

    def want(self, job_id: int) -> None:
        """The row of this job is to go out early."""
        self._wanted[job_id] = None

    def take(self, now_s: float) -> list[int]:
        """Return the jobs whose rows may go out now, and remove them."""
        due = [job_id for job_id in self._wanted if self._may(job_id, now_s)]
        for job_id in due:
            del self._wanted[job_id]
        self._forget_idle(now_s)
        return due

    def _may(self, job_id: int, now_s: float) -> bool:
        bucket = self._buckets[job_id][0] if job_id in self._buckets else TokenBucket(_PER_S, _BURST, now_s)
        self._buckets[job_id] = bucket, now_s
        return bucket.take(now_s)

    def _forget_idle(self, now_s: float) -> None:
        """Forget buckets that were not used for a minute: they are full again."""
        for job_id, (_bucket, used_s) in list(self._buckets.items()):
            if now_s - used_s > _FORGET_AFTER_S:
                del self._buckets[job_id]
