"""Changes between two snapshots: jobs that started, ended, were requeued, or are gone. Pure functions.

Runs are followed by job id and restart count, because a requeue gives a job a new submit time: not at once, but when the last
task has ended, while the count rises before that (seen on 22.05). A job may be requeued, run again, and end between two snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from controller.base.apart import LEFT_OUT, apart
from controller.observe.role import in_scope
from controller.slurm.birthmark import are_of_two_jobs
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.identity import is_same_request
from controller.state.journal import RunRecord
from controller.state.ledger import Ledger, Served


@dataclass(frozen=True, slots=True)
class JobChanges:
    """Changes since the snapshot before, or since the last good cycle."""

    new: tuple[SlurmJob, ...] = ()
    """Jobs that the last snapshot is the first to show."""
    started: tuple[SlurmJob, ...] = ()
    present: tuple[SlurmJob, ...] = ()
    """Those of `started` that ran already when this controller read Slurm first, or before a reload added their partition."""
    ended: tuple[SlurmJob, ...] = ()
    unseen: tuple[SlurmJob, ...] = ()
    """Those of `ended` whose last run began and ended between the two snapshots. They are not in `started`."""
    requeued: tuple[tuple[SlurmJob, SlurmJob], ...] = ()
    """Each job as it was and as it is now: same job id, and more restarts or, in a second step, a new identity."""
    gone: tuple[JobKey, ...] = field(default=())
    """Jobs that Slurm no longer knows, or knows under a new identity."""


def changes(
    before: Mapping[JobKey, SlurmJob],
    after: Mapping[JobKey, SlurmJob],
    may_be_same: Callable[[SlurmJob, JobKey], bool],
    since_s: float | None = None,
) -> JobChanges:
    """Compare the jobs of two snapshots. `may_be_same` returns whether a job can have had this key before its requeue.

    `since_s`: time of the snapshot before, to tell which ended jobs were submitted since; None: there was none.
    """
    new: list[SlurmJob] = []
    started: list[SlurmJob] = []
    ended: list[SlurmJob] = []
    unseen: list[SlurmJob] = []
    requeued: list[tuple[SlurmJob, SlurmJob]] = []
    gone = [key for key in before if key not in after]
    old_by_id = {key.job_id: before[key] for key in gone}
    for key, job in after.items():
        old = before.get(key)
        if old is job:
            continue
        former = old if old is not None else old_by_id.get(key.job_id)
        if former is not None and former is not old and not _is_known_as(job, former, may_be_same):
            former = None
        if former is None:
            new.append(job)
        elif former is not old or job.restarts > former.restarts:
            requeued.append((former, job))
        if job.phase.occupies_nodes and (old is None or not old.phase.occupies_nodes or _runs_anew(job, old)):
            started.append(job)
        if job.phase is Phase.ENDED:
            with apart("changes of jobs", key.job_id):
                if _has_just_ended(job, former, since_s):
                    ended.append(job)
                    if _has_run(job) and (former is None or _is_another_run(job, former)):
                        unseen.append(job)
    return JobChanges(
        new=tuple(new),
        started=tuple(started),
        ended=tuple(ended),
        unseen=tuple(unseen),
        requeued=tuple(requeued),
        gone=tuple(gone),
    )


_RUNS = frozenset({Phase.CONFIGURING, Phase.RUNNING, Phase.SUSPENDED})


def _runs_anew(job: SlurmJob, old: SlurmJob) -> bool:
    """Return whether a job that ran in both snapshots was requeued in between. A COMPLETING job has the count of the next run
    before that has begun.
    """
    return job.restarts > old.restarts and job.phase in _RUNS


def _has_just_ended(job: SlurmJob, former: SlurmJob | None, since_s: float | None) -> bool:
    """Return whether an ended job has ended since the snapshot before. One that was not in it had to be submitted since."""
    if former is None:
        return since_s is not None and job.key.submit_time_s >= int(since_s)
    return former.phase is not Phase.ENDED or job.restarts > former.restarts


def _is_another_run(job: SlurmJob, former: SlurmJob) -> bool:
    """Return whether the last run of an ended job is another one than that of the job as seen before."""
    if former.phase is Phase.PENDING:
        return True
    # The restart count, and then the submit time, change before another run begins.
    requeued = job.restarts > former.restarts or job.key != former.key
    return requeued and job.start_time_s is not None and job.start_time_s != former.start_time_s


def _has_run(job: SlurmJob) -> bool:
    """Return whether an ended job has run. One that is cancelled in the queue starts and ends at that time for Slurm, and has no
    nodes (measured on 22.05).
    """
    return bool(job.allocated) or run_time_s(job, 0.0) > 0.0


def _is_known_as(job: SlurmJob, former: SlurmJob, may_be_same: Callable[[SlurmJob, JobKey], bool]) -> bool:
    """Return whether this is a later run of that job; also where an error of ours does not let it be compared, if its user is the
    same: the own request of a job must not be lost."""
    with apart("changes of jobs", job.key.job_id):
        return _is_a_later_run(job, former, may_be_same)
    return job.restarts > former.restarts and job.user == former.user


def _is_a_later_run(job: SlurmJob, former: SlurmJob, may_be_same: Callable[[SlurmJob, JobKey], bool]) -> bool:
    """Return whether the id still means the same job: slurmctld may have issued it again after a crash.

    Such a new job has another birthmark, if both have one; and no more restarts. If it was requeued since, it has another user or
    another request.
    """
    if are_of_two_jobs(job.birthmark, former.birthmark):
        return False
    ended_first = former.phase.occupies_nodes and job.restarts == former.restarts > 0
    if not (job.restarts > former.restarts or ended_first) or job.user != former.user:
        return False
    return is_same_request(job.request, former.request) or may_be_same(job, former.key)


def scoped(
    jobs: Iterable[SlurmJob], partitions: frozenset[str], before: Mapping[JobKey, SlurmJob] | None = None
) -> dict[JobKey, SlurmJob]:
    """Return the jobs in scope by key. `before`: an earlier result for these partitions; jobs in it are not checked again."""
    if not before:
        return {job.key: job for job in jobs if _in_scope(job, partitions)}
    return {key: job for job in jobs if before.get(key := job.key) is job or _in_scope(job, partitions)}


def _in_scope(job: SlurmJob, partitions: frozenset[str]) -> bool:
    """Return whether the job is in scope; not if it leads to an error of ours. Facts about it are kept."""
    try:
        return in_scope(job, partitions)
    except Exception as error:  # noqa: BLE001 - one job must not stop all others
        LEFT_OUT.note("scope of jobs", job.key.job_id, error)
        return False


def run_time_s(job: SlurmJob, now_s: float) -> float:
    """Return the run time of the current or last run so far, seconds."""
    if job.start_time_s is None:
        return 0.0
    end_s = job.end_time_s if job.phase is Phase.ENDED and job.end_time_s is not None else now_s
    return max(end_s - job.start_time_s, 0.0)


def uncounted_run_s(job: SlurmJob, served: Served | None, now_s: float) -> float:
    """Return the run time of the run that Slurm shows, seconds; 0 if `served` has it already.

    A job that is cancelled while it leaves its nodes for the queue ends with the start of a run that counted as a requeued one.
    """
    if served is not None and served.last_start_s is not None and served.last_start_s == job.start_time_s:
        return 0.0
    return run_time_s(job, now_s)


def allocated_gpus(job: SlurmJob) -> int:
    """Return the GPUs allocated to the job now or last; 0 when Slurm no longer shows them."""
    return sum(share.gpus for share in job.allocated)


SHORT_RUN_S = 3.0
"""Run time below which a requeued run counts as one that ended right after its start."""


def served_after(former: SlurmJob, job: SlurmJob, ledger: Ledger, now_s: float, *, has_begun: bool = True) -> Served:
    """Return the usage of a requeued job in all its runs so far. A run counts when the restart count shows its end.

    `has_begun`: False if it only waited for its nodes to boot, which is no service.
    """
    earlier = ledger.served.get(former.key, Served(0.0, 0.0, former.key.submit_time_s))
    counts = has_begun and former.phase.occupies_nodes and job.restarts > former.restarts
    run_s = run_time_s(former, _ended_by_s(former, job, now_s)) if counts else 0.0
    runs = job.restarts - former.restarts
    return Served(
        service_s=earlier.service_s + run_s,
        gpu_s=earlier.gpu_s + run_s * allocated_gpus(former),
        first_submit_s=earlier.first_submit_s,
        # A run that was not seen began and ended between two snapshots.
        short_runs=0 if runs > 0 and run_s >= SHORT_RUN_S else earlier.short_runs + max(runs, 0),
        last_start_s=former.start_time_s if counts else earlier.last_start_s,
    )


def _ended_by_s(former: SlurmJob, job: SlurmJob, now_s: float) -> float:
    """Return the time by which the run of a requeued job had ended: the job is back in the queue, or runs again, since then."""
    if job.key != former.key:
        return min(now_s, float(job.key.submit_time_s))
    return min(now_s, job.start_time_s) if _runs_anew(job, former) and job.start_time_s is not None else now_s


def run_record(job: SlurmJob, former: SlurmJob | None, ledger: Ledger, now_s: float) -> RunRecord:
    """Return the record of an ended job. `former` is the job as last seen, running perhaps, when its allocation was still known."""
    earlier = ledger.served.get(job.key, Served(0.0, 0.0, job.key.submit_time_s))
    run_s = uncounted_run_s(job, earlier, now_s)
    num_gpus, num_nodes = _last_allocation(job, former, ledger)
    return RunRecord(
        key=job.key,
        user=job.user,
        name=job.name,
        start_time_s=job.start_time_s,
        end_time_s=job.end_time_s if job.end_time_s is not None else now_s,
        service_s=earlier.service_s + run_s,
        num_gpus=num_gpus,
        num_nodes=num_nodes,
        state=job.state,
        # Without the last run it is too low, but the runs before it are not lost.
        gpu_s=earlier.gpu_s + run_s * num_gpus if num_gpus or earlier.gpu_s > 0 or not run_s else None,
    )


def _last_allocation(job: SlurmJob, former: SlurmJob | None, ledger: Ledger) -> tuple[int, int]:
    """Return the numbers of GPUs and of nodes of an ended job's last run; 0 if they are not known or it never ran."""
    same_run = former is not None and former.restarts == job.restarts
    last = former if former is not None and former.allocated and (same_run or not job.allocated) else job
    pin = ledger.pins.get(job.key)
    if last.allocated or pin is None or pin.restarts != job.restarts or not _has_run(job):
        return allocated_gpus(last), len(last.allocated)
    return sum(pin.gpus), len(pin.nodes)
