"""Operations of users and operators in a story. Each is the verb of a step; a refusal by Slurm or Headway is no violation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from controller.admin.explain.cycle_view import CycleView
from controller.admin.preemption_messages import check_size
from controller.base.errors import HeadwayError, SlurmError
from controller.slurm.model.job import Phase
from controller.state.preemption import Cause, RelocationConstraint
from tests.campaign.plot.story import spec_of
from tests.campaign.world.cluster import Cluster

Operation = Callable[..., None]


def submit(cluster: Cluster, **args: Any) -> None:
    """sbatch."""
    with suppress(SlurmError):
        cluster.submit(spec_of(args))


def user_hold(cluster: Cluster, label: int, task: int = 0) -> None:
    """The job's user: scontrol hold."""
    for job_id in _some(cluster, label, task):
        cluster.find(job_id)  # the pending work of slurmctld comes first
        expected = cluster.model.jobs[job_id]
        if expected.ended:
            continue
        before, expected.held_by_user_s = expected.held_by_user_s, cluster.model.time_s
        try:
            cluster.slurm.user_hold(job_id)
        except SlurmError:
            expected.held_by_user_s = before


def user_release(cluster: Cluster, label: int, task: int = 0) -> None:
    """The job's user: scontrol release."""
    for job_id in _some(cluster, label, task):
        with suppress(SlurmError):
            cluster.slurm.user_release(job_id)
            cluster.model.released(job_id)


def cancel(cluster: Cluster, label: int, task: int = 0) -> None:
    """scancel."""
    for job_id in _some(cluster, label, task):
        _cancel(cluster, job_id)


def cancel_preempted(cluster: Cluster) -> None:
    """scancel of the jobs that are being preempted."""
    for job_id in list(cluster.model.jobs):
        if _is_preempted(cluster, job_id):
            _cancel(cluster, job_id)


def requeue_preempted(cluster: Cluster) -> None:
    """root: scontrol requeue, of the jobs that are being preempted."""
    for label in list(cluster.ids):
        for job_id in cluster.jobs_of(label):
            if _is_preempted(cluster, job_id):
                _requeue(cluster, job_id)


def _that_run(cluster: Cluster, label: int, task: int) -> list[str]:
    """Return those of the jobs of a submission that run or are ending; if none does, another such job."""

    def runs(job_id: str) -> bool:
        job = cluster.find(job_id)
        return job is not None and job.phase.occupies_nodes

    chosen = [job_id for job_id in _some(cluster, label, task) if runs(job_id)]
    others = [] if chosen else [job_id for job_id in cluster.model.jobs if runs(job_id)]
    return chosen or ([others[label % len(others)]] if others else [])


def _is_preempted(cluster: Cluster, job_id: str) -> bool:
    found, controller = cluster.find(job_id), cluster.controller
    return controller is not None and found is not None and found.raw_id in controller.preemptions.open


def _cancel(cluster: Cluster, job_id: str) -> None:
    cluster.find(job_id)  # the pending work of slurmctld comes first
    expected = cluster.model.jobs[job_id]
    if expected.ended:
        return
    before, expected.cancelled_s = expected.cancelled_s, cluster.model.time_s
    try:
        cluster.slurm.cancel(job_id)
    except SlurmError:
        expected.cancelled_s = before


def requeue(cluster: Cluster, label: int, task: int = 0) -> None:
    """root: scontrol requeue, of a job that runs."""
    for job_id in _that_run(cluster, label, task):
        _requeue(cluster, job_id)


def _requeue(cluster: Cluster, job_id: str) -> None:
    job = cluster.find(job_id)
    if job is None or job.phase is Phase.ENDED:
        return  # an ended job would start again, as root would have requested
    cluster.model.may_requeue(job_id)
    try:
        cluster.slurm.requeue(job_id)
    except SlurmError:
        cluster.model.jobs[job_id].requeues -= 1


def user_changes(cluster: Cluster, pick: int, less: int) -> None:
    """The user of a job that waits: scontrol update, to fewer GPUs in the form that Slurm shows. Best of a job that was placed.

    The job may then have this number, too: a change that the controller has not read before it is killed may be lost.
    """
    found = [job for job_id in cluster.model.jobs if (job := cluster.find(job_id)) and job.phase is Phase.PENDING]
    placed = [job for job in found if job.restarts or (job.request.required_nodes and not job.held)]
    if not found:
        return
    job = (placed or found)[pick % len(placed or found)]
    request, each = job.request, job.request.gpus_per_node
    now = each or request.gpus_per_job or 1
    number = now - less % now
    with suppress(SlurmError):
        cluster.slurm.update(job.job_id, **{"TresPerNode" if each else "TresPerJob": f"gres:gpu:{number}"})
        cluster.model.may_have(job.job_id, number * request.min_nodes if each else number)


def suspend(cluster: Cluster, label: int, task: int = 0) -> None:
    """root: scontrol suspend, of a job that runs."""
    for job_id in _that_run(cluster, label, task):
        with suppress(SlurmError):
            cluster.slurm.suspend(job_id)


def resume(cluster: Cluster, label: int, task: int = 0) -> None:
    """root: scontrol resume."""
    for job_id in _some(cluster, label, task):
        with suppress(SlurmError):
            cluster.slurm.resume(job_id)


def preempt(
    cluster: Cluster, pick: int, avoid: Sequence[str] = (), gpus: int | None = None, *, force: bool = False
) -> None:
    """headway preempt, move and resize, of one of the preemptible jobs, or with force of any that runs."""
    controller = cluster.controller
    if controller is None or not cluster.process.alive or cluster.process.stopped:
        return
    found = [
        job
        for expected in cluster.model.jobs.values()
        if expected.running and (force or expected.spec.trains or expected.spec.preemptible)
        if (job := cluster.snapshot_job(expected.job_id)) is not None
    ]
    if not found:
        return
    job = found[pick % len(found)]
    with suppress(HeadwayError):
        constraint = RelocationConstraint(avoid=frozenset(avoid), gpus=gpus)
        if (
            gpus is not None
        ):  # as the service behind `headway resize` does; an operator gives no job more than its user may have
            if gpus > cluster.limits.get(job.user, gpus):
                return
            if (last := controller.last) is None:
                return
            check_size(constraint, CycleView(last, controller.ledger, controller.settings.partitions), job)
        controller.preemptions.begin(job, Cause.OPERATOR, "by hand", constraint, force=force)
        if gpus is not None:
            cluster.model.jobs[job.key.job_id].gpus.add(gpus)


def policy_use(cluster: Cluster, name: str) -> None:
    """headway policy use."""
    controller = cluster.controller
    if controller is None or not cluster.process.alive or cluster.process.ended:
        return

    async def swap() -> None:
        with suppress(HeadwayError):
            await controller.use_policy(f"story:{name}")
            cluster.current_policy = name

    cluster.process.spawn(swap())


def reload_settings(cluster: Cluster, **changes: Any) -> None:
    """systemctl reload headway-controller."""
    cluster.settings = cluster.settings.model_copy(update=changes)
    if cluster.controller is not None and cluster.process.alive and not cluster.process.stopped:
        cluster.controller.reload(cluster.settings)


def drain(cluster: Cluster, node: str) -> None:
    """scontrol update nodename=NODE state=drain."""
    cluster.slurm.node_drain(node)


def undrain(cluster: Cluster, node: str) -> None:
    """scontrol update nodename=NODE state=resume."""
    cluster.slurm.node_resume(node)


def partition_down(cluster: Cluster) -> None:
    """scontrol update partitionname=dl state=down."""
    cluster.slurm.set_partition(cluster.story.partition, up=False)


def partition_up(cluster: Cluster) -> None:
    """scontrol update partitionname=dl state=up."""
    cluster.slurm.set_partition(cluster.story.partition, up=True)


def restart_controller(cluster: Cluster) -> None:
    """systemctl restart headway-controller."""
    controller, process = cluster.controller, cluster.process
    if controller is not None and process.alive:
        process.cont()
        controller.stop()


def wait(cluster: Cluster) -> None:
    """Nothing: time passes."""


def _some(cluster: Cluster, label: int, task: int) -> list[str]:
    """Return one task of an array, or the job; all tasks for a negative number."""
    found = cluster.jobs_of(label)
    if task < 0:
        return found
    return found[task % len(found) : task % len(found) + 1] if found else []


OPERATIONS: dict[str, Operation] = {
    call.__name__: call
    for call in (
        submit, user_hold, user_release, user_changes, cancel, cancel_preempted, requeue, requeue_preempted, suspend, resume,
        preempt, policy_use, reload_settings, drain, undrain, partition_down, partition_up, restart_controller, wait,
    )
}  # fmt: skip
