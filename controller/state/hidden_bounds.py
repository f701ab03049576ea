"""Numbers of nodes that Slurm no longer shows once a job has run.

Slurm keeps the maximum of `--nodes=1-2`, but shows it only until the job first starts, and a pin by Headway replaces it. So the
ledger keeps the own request of such a job, also when Slurm places the job. Where Headway has never seen the request, the job gets
no more nodes than in its last run, or else as few as possible: both are within the bounds that its user gave.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from controller.slurm.model.cluster import SlurmNode
from controller.slurm.model.job import Phase, ResourceRequest, SlurmJob
from controller.state.identity import is_bound_form, is_same_request
from controller.state.ledger import Ledger


def is_hidden_later(request: ResourceRequest) -> bool:
    """Return whether Slurm shows less than this request once the job has run. True too if that cannot be known then."""
    return request.max_nodes > 0 or request.gpus_per_job is not None


def is_complete(job: SlurmJob) -> bool:
    """Return whether the request that Slurm shows is all of the user's own: the job waits, has not run, and looks not pinned."""
    request = job.request
    return job.phase is Phase.PENDING and job.restarts == 0 and len(request.required_nodes) != request.min_nodes


def remember_before_run(job: SlurmJob, last: SlurmJob | None, ledger: Ledger) -> bool:
    """Keep the own request of a job that has started, as it was seen before. Returns whether the ledger has changed."""
    if last is None or job.key in ledger.originals or not is_hidden_later(last.request) or not is_complete(last):
        return False
    if not is_same_request(job.request, last.request):
        return False
    ledger.originals[job.key] = last.request
    return True


def remember_after_run(job: SlurmJob, last: SlurmJob | None, ledger: Ledger, nodes: Iterable[SlurmNode]) -> bool:
    """Keep a request with a maximum of nodes for a job that has run, if its own is not known. Returns whether it was kept.

    `last`: the job that was seen before with this id. It is another job if it shows another request.
    """
    request = job.request
    if last is not None and not is_same_request(request, last.request):
        last = None
    if job.key in ledger.originals or job.restarts == 0 or request.max_nodes or request.gpus_per_job is None:
        return False
    if last is not None and is_complete(last):
        ledger.originals[job.key] = last.request
        return True
    if last is not None and last.allocated:
        most = len(last.allocated)
    else:
        largest = max((node.gpus for node in nodes), default=0) or 1
        most = -(-request.gpus_per_job // largest)
    ledger.originals[job.key] = replace(request, max_nodes=max(most, request.min_nodes, 1))
    return True


def is_outdated(former: SlurmJob, job: SlurmJob, ledger: Ledger) -> bool:
    """Return whether the user has changed the request of a job since it was given to Slurm."""
    original = ledger.originals.get(former.key)
    given = ledger.yielded.get(former.key) == former.restarts
    if not given or original is None or is_bound_form(job.request, original):
        return False
    return not is_same_request(job.request, original)
