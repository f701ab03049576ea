"""Jobs that lead to an error of Headway's own: they are left to Slurm, so that one of them never stops all others."""

from __future__ import annotations

from dataclasses import replace

from controller.slurm.client import ResourceRequest, SlurmJob


def not_understood(error: Exception) -> str:
    """Return why such a job is left to Slurm, in words that continue "it"."""
    return f"has a value that Headway does not understand ({type(error).__name__})"


def plain(job: SlurmJob) -> SlurmJob:
    """Return the job with nothing of what its user has written, and with a request for the GPUs that it has, or for one."""
    gpus, on = sum(share.gpus for share in job.allocated), len(job.allocated)
    request = ResourceRequest(max(on, 1), on, 1, 1, gpus_per_job=max(gpus, on, 1))
    return replace(job, request=request, comment="", features="", reservation="", licenses="", by_topology="", nice=0)
