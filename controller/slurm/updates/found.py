"""A job as it was read back after an update. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controller.slurm.model.job import SlurmJob
from controller.slurm.records import JobRecord


@dataclass(frozen=True, slots=True)
class Found:
    """A job as read back, with its record."""

    job: SlurmJob
    record: JobRecord
    updated: bool = False
    """True when the last command for this job was carried out before this reading, so that a value that Slurm does not show may
    count as changed."""
