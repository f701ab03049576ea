"""Changes between two snapshots: jobs that started, ended, were requeued, or are gone. Pure functions.

Runs are followed by job id and restart count, because a requeue gives a job a new submit time: not at once, but when the last
task has ended, while the count rises before that (seen on 22.05).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from controller.observe.role import in_scope
from controller.slurm.client import JobKey, Phase, SlurmJob
from controller.state.identity import is_same_request
from controller.state.journal import RunRecord
from controller.state.ledger import Ledger, Served


@dataclass(frozen=True, slots=True)
class JobChanges:
    """Changes since the snapshot before."""

    new: tuple[SlurmJob, ...] = ()
    started: tuple[SlurmJob, ...] = ()
    ended: tuple[SlurmJob, ...] = ()
    unseen: tuple[SlurmJob, ...] = ()
    """Those of `ended` that waited in the snapshot before: their run began and ended between the two. They are not in `started`."""
    requeued: tuple[tuple[SlurmJob, SlurmJob], ...] = ()
    """Each job as it was and as it is now: same job id, and more restarts or, in a second step, a new identity."""
    gone: tuple[JobKey, ...] = field(default=())
    """Jobs that Slurm no longer knows, or knows under a new identity."""


def changes(
    before: Mapping[JobKey, SlurmJob],
    after: Mapping[JobKey, SlurmJob],
    may_be_same: Callable[[SlurmJob, JobKey], bool],
) -> JobChanges:
    """Compare the jobs of two snapshots. `may_be_same` returns whether a job can have had this key before its requeue."""
    new: list[SlurmJob] = []
    started: list[SlurmJob] = []
    ended: list[SlurmJob] = []
    requeued: list[tuple[SlurmJob, SlurmJob]] = []
    gone = [key for key in before if key not in after]
    old_by_id = {key.job_id: before[key] for key in gone}
    for key, job in after.items():
        old = before.get(key)
        if old is job:
            continue
        if old is None:
            former = old_by_id.get(key.job_id)
            if former is not None and _is_a_later_run(job, former, may_be_same):
                requeued.append((former, job))
            else:
                new.append(job)
        elif job.restarts > old.restarts:
            requeued.append((old, job))
        was_running = old is not None and old.phase.occupies_nodes
        if job.phase.occupies_nodes and not was_running:
            started.append(job)
        if job.phase is Phase.ENDED and old is not None and old.phase is not Phase.ENDED:
            ended.append(job)
    unseen = tuple(job for job in ended if before[job.key].phase is Phase.PENDING and _has_run(job))
    return JobChanges(tuple(new), tuple(started), tuple(ended), unseen, tuple(requeued), tuple(gone))


def _has_run(job: SlurmJob) -> bool:
    """Return whether an ended job has run. One that is cancelled in the queue starts and ends at that time for Slurm, and has no
    nodes (measured on 22.05).
    """
    return bool(job.allocated) or run_time_s(job, 0.0) > 0.0


def _is_a_later_run(job: SlurmJob, former: SlurmJob, may_be_same: Callable[[SlurmJob, JobKey], bool]) -> bool:
    """Return whether the id still means the same job: slurmctld may have issued it again after a crash.

    Such a new job has no more restarts; if it was requeued since, it has another user or another request.
    """
    ended_first = former.phase.occupies_nodes and job.restarts == former.restarts > 0
    if not (job.restarts > former.restarts or ended_first) or job.user != former.user:
        return False
    return is_same_request(job.request, former.request) or may_be_same(job, former.key)


def scoped(
    jobs: Iterable[SlurmJob], partitions: frozenset[str], before: Mapping[JobKey, SlurmJob] | None = None
) -> dict[JobKey, SlurmJob]:
    """Return the jobs in scope by key. `before`: an earlier result for these partitions; jobs in it are not checked again."""
    if not before:
        return {job.key: job for job in jobs if in_scope(job, partitions)}
    return {key: job for job in jobs if before.get(key := job.key) is job or in_scope(job, partitions)}


def run_time_s(job: SlurmJob, now_s: float) -> float:
    """Return the run time of the current or last run so far, seconds."""
    if job.start_time_s is None:
        return 0.0
    end_s = job.end_time_s if job.phase is Phase.ENDED and job.end_time_s is not None else now_s
    return max(end_s - job.start_time_s, 0.0)


def allocated_gpus(job: SlurmJob) -> int:
    """Return the GPUs allocated to the job now or last; 0 when Slurm no longer shows them."""
    return sum(share.gpus for share in job.allocated)


SHORT_RUN_S = 3.0
"""Run time below which a requeued run counts as one that ended right after its start."""


def served_after(former: SlurmJob, job: SlurmJob, ledger: Ledger, now_s: float) -> Served:
    """Return the usage of a requeued job in all its runs so far. A run counts when the restart count shows its end."""
    earlier = ledger.served.get(former.key, Served(0.0, 0.0, former.key.submit_time_s))
    counts = former.phase.occupies_nodes and job.restarts > former.restarts
    run_s = run_time_s(former, now_s) if counts else 0.0
    runs = job.restarts - former.restarts
    return Served(
        service_s=earlier.service_s + run_s,
        gpu_s=earlier.gpu_s + run_s * allocated_gpus(former),
        first_submit_s=earlier.first_submit_s,
        # A run that was not seen began and ended between two snapshots.
        short_runs=0 if runs > 0 and run_s >= SHORT_RUN_S else earlier.short_runs + max(runs, 0),
    )


def run_record(job: SlurmJob, former: SlurmJob | None, ledger: Ledger, now_s: float) -> RunRecord:
    """Return the record of an ended job. `former` is the job as last seen running, when its allocation was still known."""
    last = former if former is not None and former.allocated else job
    earlier = ledger.served.get(job.key)
    return RunRecord(
        key=job.key,
        user=job.user,
        name=job.name,
        start_time_s=job.start_time_s,
        end_time_s=job.end_time_s if job.end_time_s is not None else now_s,
        service_s=run_time_s(job, now_s) + (earlier.service_s if earlier else 0.0),
        num_gpus=allocated_gpus(last),
        num_nodes=len(last.allocated),
        state=job.state,
    )
