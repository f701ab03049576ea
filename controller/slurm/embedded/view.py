"""The cluster as a client sees it: with what slurmctld knows, and without what only the emulation knows."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from controller.slurm.embedded.ctld.job import Job
from controller.slurm.embedded.ctld.slurmctld import Slurmctld
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, ResourceRequest, SlurmJob

_shown_facts = attrgetter(
    "submission", "request", "partition", "submit_time_s", "priority", "time_limit_s", "admin_comment", "requeue", "dependency",
    "array_job_id", "het_job_id", "raw_id", "reason", "phase", "state", "allocated", "restarts", "eligible_time_s",
    "start_time_s", "end_time_s", "run",
)  # fmt: skip
"""Facts of a record that a client may see. `run` changes with `starts`."""


def key_of(job: Job) -> JobKey:
    """Return the job's present identity."""
    return JobKey(job.job_id, job.submit_time_s)


def job_view(job: Job) -> SlurmJob:
    """Return one job, as `scontrol show job` shows it.

    As with the other clients, it is the same object while nothing about the job has changed.
    """
    facts = _shown_facts(job)
    if job.shown is None or job.shown[0] != facts:
        job.shown = facts, new_view(job)
    return job.shown[1]


def new_view(job: Job) -> SlurmJob:
    """Return a new view of the job."""
    submission = job.submission
    return SlurmJob(
        key=key_of(job),
        user=submission.user,
        name=submission.name,
        partition=job.partition,
        phase=job.phase,
        state=job.state,
        reason=job.reason,
        held=job.held,
        admin_comment=job.admin_comment,
        comment=submission.comment,
        request=_shown_request(job),
        allocated=job.allocated,
        batch=submission.batch,
        requeue=job.requeue,
        restarts=job.restarts,
        eligible_time_s=job.eligible_time_s,
        start_time_s=job.start_time_s,
        end_time_s=job.end_time_s,
        time_limit_s=job.time_limit_s,
        features=submission.features,
        reservation=submission.reservation,
        account=submission.account,
        qos=submission.qos,
        dependency=",".join(f"{part}(unfulfilled)" for part in job.dependency.split(",") if part),
        exclusive=submission.exclusive,
        licenses=",".join(f"{name}:{count}" for name, count in submission.licenses.items()),
        array_job_id=job.array_job_id,
        het_job_id=job.het_job_id,
        raw_id=job.array_job_id if job.raw_id is None else job.raw_id,
        user_id=submission.user_id,
        array_throttle=submission.throttle,
    )


def _shown_request(job: Job) -> ResourceRequest:
    """Return the request as Slurm shows it: from the first run on without the maximum of nodes, which Slurm keeps."""
    return replace(job.request, max_nodes=0) if job.starts and job.request.max_nodes else job.request


def snapshot(ctld: Slurmctld, time_s: float) -> SlurmSnapshot:
    """Return all records as a client sees them; `time_s` is the time by the client's clock."""
    return SlurmSnapshot(
        time_s=time_s,
        jobs=tuple(job_view(job) for job in ctld.jobs.values()),
        nodes=tuple(ctld.node_view(node) for node in ctld.nodes.values()),
        partitions=tuple(partition.view() for partition in ctld.partitions.values()),
        reservations=tuple(r.view for r in ctld.reservations.values() if r.view.end_time_s > ctld.now_s),
    )
