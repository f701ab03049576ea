"""Identity of a requeued job. Pure.

A requeue gives a job a new submit time, so it is followed by its id and its restarts. But after a crash slurmctld issues the ids of
lost jobs again, and such a new job may be requeued too. A job with another birthmark than the one that Headway pinned is another
job. Not every job has one; but Slurm keeps a job's user and request across a requeue: a job that shows neither the request that
Headway wrote for that id nor the one of its user is another job.
"""

from __future__ import annotations

from controller.slurm.birthmark import are_of_two_jobs
from controller.slurm.model.job import JobKey, ResourceRequest, SlurmJob
from controller.state.ledger import Ledger, PinRecord


def is_same_request(one: ResourceRequest, other: ResourceRequest) -> bool:
    """Return whether two readings of a job show the same request, as far as Headway or its user chooses it."""
    return _form(one) == _form(other) and set(one.required_nodes) == set(other.required_nodes)


def is_another(job: SlurmJob, former: JobKey, ledger: Ledger) -> bool:
    """Return whether the job is for certain another one than `former`, which has the same id."""
    pin = ledger.pins.get(former)
    return pin is not None and are_of_two_jobs(pin.birthmark, job.birthmark)


def may_be_same(job: SlurmJob, former: JobKey, ledger: Ledger) -> bool:
    """Return whether the facts about `former`, which has the same id, may be about this job.

    If no request is known, only a job with another user than that of a known relocation is another one: no wrong job can get a
    request, but it could get the size of a resized job. Two jobs with the same request cannot be told apart, and need not be.
    """
    if is_another(job, former, ledger):
        return False
    original, pin, constraint = ledger.originals.get(former), ledger.pins.get(former), ledger.relocations.get(former)
    if original is None:
        return constraint is None or constraint.user in ("", job.user)
    if pin is not None and _is_pinned(job.request, pin):
        return True
    if is_bound_form(job.request, original):
        return True
    if job.request.required_nodes and set(job.request.required_nodes) != set(original.required_nodes):
        # The job is pinned, and the pin is no longer known: the request may be Headway's, also in the size of a resized job.
        resized = constraint is not None and constraint.gpus is not None
        return resized or job.request.least_gpus == original.least_gpus or _form(job.request) == _form(original)
    return _form(job.request) == _form(original)


def is_bound_form(request: ResourceRequest, original: ResourceRequest) -> bool:
    """Return whether the request may be the original with GPUs of certain indices, which Slurm keeps once Headway has asked for
    them."""
    return request.gpus_fixed and not original.gpus_fixed and request.least_gpus == original.least_gpus


def _is_pinned(request: ResourceRequest, pin: PinRecord) -> bool:
    return set(request.required_nodes) == set(pin.nodes) and request.least_gpus == sum(pin.gpus)


def _form(request: ResourceRequest) -> tuple[object, ...]:
    return (
        request.min_nodes,
        request.gpus_per_node,
        request.gpus_per_job,
        request.gpus_per_task,
        request.gpu_type,
    )
