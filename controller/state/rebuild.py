"""What is put together from Slurm's picture when a journal was lost: the own requests of jobs that Headway may have pinned. Pure.

Slurm shows a pin of ours and a user's own `--nodelist` alike: a list of as many nodes as the job takes. Where the user's request is
not known any more, the list is therefore kept for now and not for ever:

- A job that has not run is placed on those nodes, as a user who named them wants. When they can no longer hold it (down, drained,
  too small) and others can, it may go anywhere, as every job that was sent to certain nodes.
- A job that runs, or has run, was placed there by Headway: if it comes back into the queue, it may go anywhere.

How many GPUs and nodes a job has stays as Slurm shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from controller.slurm.client import JobKey, Phase, ResourceRequest, SlurmJob
from controller.state.ledger import Ledger
from controller.state.preemption import RelocationConstraint


def rebuild(jobs: Iterable[SlurmJob], ledger: Ledger, may_lack: Callable[[JobKey], bool]) -> list[JobKey]:
    """Give jobs that look pinned, and whose own request may be lost, a request without their nodes. Returns these jobs."""
    found = []
    for job in jobs:
        if job.phase is Phase.ENDED or job.key in ledger.originals or not _looks_pinned(job.request):
            continue
        if not may_lack(job.key):
            continue
        ledger.originals[job.key] = replace(job.request, required_nodes=())
        if job.phase is Phase.PENDING and job.restarts == 0 and job.key not in ledger.elsewhere:
            ledger.elsewhere[job.key] = RelocationConstraint(only=frozenset(job.request.required_nodes))
        found.append(job.key)
    return found


def _looks_pinned(request: ResourceRequest) -> bool:
    """A pin names exactly the nodes that the job takes."""
    return 0 < len(request.required_nodes) == request.min_nodes
