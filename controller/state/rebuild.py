"""Rebuilds, from Slurm's data, the own requests of jobs that Headway may have pinned, after a journal was lost. Pure.

Slurm shows a pin of Headway and a user's own `--nodelist` alike: as a list of as many nodes as the job takes. When the user's own
request is lost, the list is kept for some time, but not for ever:

- A job that has not run is placed on those nodes, as a user who named them wants. When it no longer fits on them (down, drained,
  too small) but fits on other nodes, it may go anywhere, like every job with a relocation constraint.
- A job that runs, or has run, was placed there by Headway. If it is requeued, it may go anywhere.

The job keeps the number of GPUs and nodes that Slurm shows. But where its user has given it fewer GPUs than these nodes since, it
could never run: then it takes as many nodes as GPUs at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from controller.base.apart import apart
from controller.slurm.model.job import JobKey, Phase, ResourceRequest, SlurmJob
from controller.state.ledger import Ledger
from controller.state.preemption import RelocationConstraint
from controller.state.user_changes import with_possible_nodes


def rebuild(jobs: Iterable[SlurmJob], ledger: Ledger, may_lack: Callable[[JobKey], bool]) -> list[JobKey]:
    """Give jobs that look pinned, and whose own request may be lost, a request without nodes. Returns these jobs."""
    found = []
    for job in jobs:
        if job.phase is Phase.ENDED or job.key in ledger.originals:
            continue
        with apart("jobs of a lost journal", job.key.job_id):
            # A job with the mark was pinned, whatever the journal says: its row may be an older one that was left in a damaged
            # file.
            if _looks_pinned(job.request) and (may_lack(job.key) or job.has_pin_mark):
                _rebuild(job, ledger)
                found.append(job.key)
    return found


def _rebuild(job: SlurmJob, ledger: Ledger) -> None:
    # Once the job has run, Slurm no longer shows the maximum of nodes, which is that of the pin.
    most = job.request.max_nodes or len(job.request.required_nodes)
    ledger.originals[job.key] = with_possible_nodes(replace(job.request, required_nodes=(), max_nodes=most))
    if job.phase is Phase.PENDING and job.restarts == 0 and job.key not in ledger.relocations:
        ledger.relocations[job.key] = RelocationConstraint(only=frozenset(job.request.required_nodes))


def _looks_pinned(request: ResourceRequest) -> bool:
    """Return whether the request names exactly as many nodes as the job takes, as a pin does."""
    return 0 < len(request.required_nodes) == request.min_nodes
