"""Jobs that a controller which is away has left: the only ones that the watchdog changes. Pure."""

from __future__ import annotations

from controller.slurm.model.job import Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from controller.slurm.user_holds import is_between_hands


def is_held_by_headway(job: SlurmJob) -> bool:
    """Return whether the job waits only because Headway holds it, or because Slurm cannot run it where Headway placed it."""
    marks = job.marks
    ours = HOLD_MARK in marks or (job.is_impossible and job.has_pin_mark)
    return job.phase is Phase.PENDING and job.held and ours and USER_HOLD_MARK not in marks


def is_released(job: SlurmJob) -> bool:
    """Return whether this job has our mark, waits, and may be started by Slurm."""
    return job.phase is Phase.PENDING and not job.held and HOLD_MARK in job.marks


def is_left(job: SlurmJob) -> bool:
    """Return whether the watchdog may have something to do with the job."""
    return is_held_by_headway(job) or is_released(job) or is_between_hands(job)


def is_requeued_with_nodes(job: SlurmJob) -> bool:
    """Return whether the job waits again, and names nodes: Slurm keeps the nodes of Headway's placement when it requeues a job.

    They may also be its user's own nodes, which only the journal shows. Nothing holds the job.
    """
    waits_again = job.phase is Phase.PENDING and not job.held and job.restarts > 0
    return waits_again and bool(job.request.required_nodes) and not job.marks and not job.is_restarted_by_slurm
