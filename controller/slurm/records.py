"""Records of Slurm's jobs as every client reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from controller.slurm.model.cluster import SlurmNode
from controller.slurm.model.job import SlurmJob

MANY_NODES = 500_000
"""An upper bound of nodes that no cluster reaches: it stands for "none" in a job that once had a bound."""

OLDER_GRES, NEWER_GRES = "gres:", "gres/"
"""Prefixes of generic resources in requests: up to Slurm 23.02, and since then."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One record of `show job`: a job, or every task of a pending array, or one task of it."""

    raw_id: int
    jobs: tuple[SlurmJob, ...]
    comment_is_exact: bool
    """True when the admin comment can be read in only one way, so it may be rewritten."""
    shows_node_bound: bool
    """True when NumNodes= shows an upper bound. For a requeued job scontrol shows the number of nodes of its last run."""
    mixed_gres: bool
    """True when the request names generic resources besides GPUs, or several GPU types: it cannot be composed again from
    parts."""
    gres_prefix: str
    """Prefix of generic resources in this Slurm: OLDER_GRES or NEWER_GRES."""
    gpus_by_index: tuple[tuple[int, int], ...] = ()
    """Index and number of each of the GPUs that the job asks for, where types only number them (g0, g1, ...): by node, or else by
    job. Empty for every other request."""
    min_cpus_node: int | None = None
    """CPUs that each node of the job must have; None: not known."""


def largest_node(nodes: Iterable[SlurmNode]) -> int:
    """Return the GPUs of the largest node; 0 when there is none."""
    return max((node.gpus for node in nodes), default=0)


def without_false_bound(job: SlurmJob, largest: int) -> SlurmJob:
    """Return the job without a maximum of one node that Slurm only shows, where that is certain.

    Slurm refuses --nodes=1 with more GPUs than any node has, so such a job was submitted without a number of nodes. Other jobs keep
    the maximum: one node is right for them in any case. `largest` is the GPUs of the largest node; 0: not known.
    """
    request = job.request
    total = request.gpus_per_job or (request.gpus_per_task or 0) * request.num_tasks
    if not request.max_nodes_in_doubt or not largest or total <= largest:
        return job
    return replace(job, request=replace(request, max_nodes=0, max_nodes_in_doubt=False))
