"""Jobs whose rows are wanted before the agent's next report. Pure: the time is told."""

from __future__ import annotations

from policies.serving.runtime.token_bucket import TokenBucket

_PER_S = 1.0
_BURST = 4.0
_FORGET_AFTER_S = 60.0


class ReportThrottle:
    """Invariant: what a job does costs at most _BURST rows at once, and _PER_S a second for long; a row that has to wait is
    not forgotten."""

    def __init__(self) -> None:
        self._wanted: dict[int, None] = {}
        self._buckets: dict[int, tuple[TokenBucket, float]] = {}

    @property
    def waiting(self) -> bool:
        """Some are wanted."""
        return bool(self._wanted)

    def want(self, job_id: int) -> None:
        """There is news of that job."""
        self._wanted[job_id] = None

    def take(self, now_s: float) -> list[int]:
        """Those that may be told now, which are wanted no longer."""
        due = [job_id for job_id in self._wanted if self._may(job_id, now_s)]
        for job_id in due:
            del self._wanted[job_id]
        self._tidy(now_s)
        return due

    def _may(self, job_id: int, now_s: float) -> bool:
        bucket = self._buckets[job_id][0] if job_id in self._buckets else TokenBucket(_PER_S, _BURST, now_s)
        self._buckets[job_id] = bucket, now_s
        return bucket.take(now_s)

    def _tidy(self, now_s: float) -> None:
        """Buckets that have been left alone for so long are full again."""
        for job_id, (_bucket, used_s) in list(self._buckets.items()):
            if now_s - used_s > _FORGET_AFTER_S:
                del self._buckets[job_id]
