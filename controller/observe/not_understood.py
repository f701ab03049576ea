"""Jobs that lead to an error of Headway's own: they are left to Slurm, so that one of them never stops all others."""

from __future__ import annotations

from dataclasses import replace

from controller.base.apart import apart
from controller.slurm.model.job import NodeShare, ResourceRequest, SlurmJob

_TEXTS = (
    "user", "name", "partition", "state", "reason", "comment", "features", "reservation", "account", "qos", "dependency",
    "licenses", "by_topology",
)  # fmt: skip
_TIMES = ("eligible_time_s", "start_time_s", "end_time_s", "time_limit_s", "latest_start_s")


def not_understood(error: Exception) -> str:
    """Return why such a job is left to Slurm, in words that continue "it"."""
    return f"has a value that Headway does not understand ({type(error).__name__})"


def bare(job: SlurmJob) -> SlurmJob:
    """Return the job with nothing but its identity, phase, marks and, as far as they can be read, nodes. It is in no partition."""
    request = ResourceRequest(1, 0, 1, 1, gpus_per_job=1)
    nothing = dict.fromkeys(_TEXTS, "")
    times = dict.fromkeys(_TIMES)
    allocated: tuple[NodeShare, ...] = ()
    with apart("nodes of jobs", job.key.job_id):
        allocated = tuple([share for share in job.allocated if share.gpus >= 0])
    return replace(job, request=request, allocated=allocated, nice=0, **nothing, **times)  # type: ignore[arg-type]


def plain(job: SlurmJob) -> SlurmJob:
    """Return the job with nothing of what its user has written, and with a request for the GPUs that it has, or for one."""
    gpus, on = sum(share.gpus for share in job.allocated), len(job.allocated)
    request = ResourceRequest(max(on, 1), on, 1, 1, gpus_per_job=max(gpus, on, 1))
    return replace(job, request=request, comment="", features="", reservation="", licenses="", by_topology="", nice=0)
