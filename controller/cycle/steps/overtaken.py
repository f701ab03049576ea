"""Jobs that were changed since the policy decided on them. Pure functions.

A decision may take seconds, and many starts take longer. A placement writes the job's GPUs and nodes, so it would write over what
its user has changed meanwhile, and the change would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.observe.user_options import read_user_options
from controller.slurm.client import Failure, FailureReason, Failures
from controller.slurm.model.job import JobKey, SlurmJob


def overtaken(
    decided: Iterable[SlurmJob], now: Mapping[JobKey, SlurmJob], known: Mapping[JobKey, SlurmJob]
) -> Failures:
    """Return the jobs that may not be placed as was decided. `now`: those that still exist, as they are now.

    `known`: former readings that have overtaken decisions. Each does so once, also if a snapshot should never show it.
    """
    found: dict[JobKey, Failure] = {}
    for job in decided:
        newest = now.get(job.key)
        if newest is None:
            found[job.key] = Failure("it is gone", FailureReason.GONE)
        elif newest is not job and _requested(newest) not in _known(job, known.get(job.key)):
            found[job.key] = Failure("its request was changed since the decision")
    return found


def _known(*readings: SlurmJob | None) -> list[tuple[object, ...]]:
    return [_requested(job) for job in readings if job is not None]


def _requested(job: SlurmJob) -> tuple[object, ...]:
    """Return the request on which its placement depends. Slurm itself does not change it while the job is held.

    Any other text in the comment is a remark, and the order of the partitions makes no difference.
    """
    where = (frozenset(job.partition.split(",")), job.qos, job.account, job.features, job.reservation, job.licenses)
    return (job.request, job.exclusive, job.time_limit_s, read_user_options(job.comment), *where)
