"""Which records of a job id are of the reported job: Slurm issues ids again after a loss of its state. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from controller.slurm.accounting import AccountedRun
from controller.state.journal import RunRecord

CLOCKS_S = 5.0
"""Maximum difference between Slurm's clock, in whole seconds, and that of the journal."""
REQUEUED_S = 600.0
"""Time after its end in which a job may still be requeued by hand, seconds: Slurm forgets it after MinJobAge (300 s)."""
_FINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL"})
"""States in which a job ends, and which a requeue does not give to a run."""


def own_runs(runs: Sequence[AccountedRun], user: str, first_submit_s: float | None) -> list[AccountedRun]:
    """Return the runs of this job among those of its id, oldest first. Runs of other users are never among them.

    `first_submit_s`: its first submission; None: not known. Then a run that ended for good long before the next submission, or has
    another name than the next, is of an earlier job, and so are those before it.
    """
    own = [run for run in runs if user and run.user == user]
    if first_submit_s is not None:
        return [run for run in own if run.submit_s >= first_submit_s - CLOCKS_S]
    begin = len(own) - 1
    while begin > 0 and _is_continued(own[begin - 1], own[begin]):
        begin -= 1
    return own[max(begin, 0) :]


def _is_continued(run: AccountedRun, following: AccountedRun) -> bool:
    if run.name != following.name:
        return False
    return run.state not in _FINAL or run.end_s is None or following.submit_s - run.end_s <= REQUEUED_S


def begin_s(
    submit_s: float, record: RunRecord | None, accounted: Sequence[AccountedRun], *, is_first: bool
) -> float | None:
    """Return the time before which no record of that id is of this job; None: not known.

    `submit_s`: its first submission as far as known; `is_first`: it is known to be the first. `accounted`: the job's own runs.
    """
    if is_first:
        return submit_s
    if accounted:
        return min(submit_s, accounted[0].submit_s)
    return submit_s if record is not None and _has_one_run(record) else None


def _has_one_run(record: RunRecord) -> bool:
    """Return whether the last run of an ended job is all of its run time."""
    last_s = 0.0 if record.start_time_s is None else record.end_time_s - record.start_time_s
    return record.service_s <= last_s + 1.0
