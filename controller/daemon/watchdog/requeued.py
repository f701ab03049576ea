"""Own requests of jobs that Slurm has requeued with the nodes of Headway's placement, while the controller was away. Pure.

When a node dies, Slurm requeues its jobs with the nodes that they name. They lost their mark when they started, so only the journal
shows that Headway has chosen these nodes. A requeue gives a job a new submit time: it is found by its id, and compared, because
Slurm may have issued the id again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.base.apart import apart, those
from controller.slurm.left_jobs import is_requeued_with_nodes
from controller.slurm.model.job import JobKey, ResourceRequest, SlurmJob
from controller.state.identity import may_be_same
from controller.state.ledger import Ledger, PinRecord

Placed = Mapping[JobKey, tuple[ResourceRequest, PinRecord]]
"""Request and last pin of each job that Headway has placed."""


def own_requests(jobs: Iterable[SlurmJob], placed: Placed) -> dict[JobKey, ResourceRequest]:
    """Return the own requests of those of the jobs that wait for the nodes of their former placement, and for no others.

    A job whose user named the same nodes is not among them.
    """
    waiting = those("requeued jobs of the watchdog", jobs, is_requeued_with_nodes, lambda job: job.key.job_id)
    formers = _newest({job.key.job_id for job in waiting}, placed)
    found = {}
    for job in waiting:
        former = formers.get(job.key.job_id)
        if former is not None and former.submit_time_s <= job.key.submit_time_s:
            original, pin = placed[former]
            with apart("requeued jobs of the watchdog", job.key.job_id):
                if _is_bound(job, original, pin) and may_be_same(
                    job, former, Ledger({former: original}, {former: pin})
                ):
                    found[job.key] = original
    return found


def _newest(job_ids: set[str], placed: Placed) -> dict[str, JobKey]:
    """Return the newest key of each id."""
    found: dict[str, JobKey] = {}
    for key in sorted(
        (key for key in placed if key.job_id in job_ids and not key.cluster), key=lambda key: key.submit_time_s
    ):
        found[key.job_id] = key
    return found


def _is_bound(job: SlurmJob, original: ResourceRequest, pin: PinRecord) -> bool:
    """Return whether the job names the nodes of the pin, which was for an earlier run, and its user did not name them."""
    nodes = set(job.request.required_nodes)
    return nodes == set(pin.nodes) and nodes != set(original.required_nodes) and job.restarts > pin.restarts
