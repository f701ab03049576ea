"""Checks of the GPUs that a decision names: which GPUs of a node, not only how many. Pure.

A decision that only counts GPUs costs one look at each placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, Placement
from policies.state.gpu_layout import mask_problem

Binds = Callable[[int, Placement], bool]
"""Return whether Slurm can be told which GPUs the job of that row gets by that placement. Otherwise the choice is only advice."""


def always_binds(_row: int, _placement: Placement) -> bool:
    """Return True: nothing else is known."""
    return True


def same_gpus(state: ClusterState, row: int, wanted: Placement, own: Placement) -> bool:
    """Return whether a running job that occupies `own` would stay where it is. A GPU that is not known counts as the wanted one."""
    if (wanted.nodes, wanted.gpus, wanted.servers) != (own.nodes, own.gpus, own.servers):
        return False
    begin, end = state.jobs.placement_offset[row : row + 2].tolist()
    present = state.jobs.placement_gpu_mask[begin:end].tolist()
    return all(not mask or not has or mask == has for mask, has in zip(wanted.gpu_masks, present, strict=False))


def named_gpus_problem(state: ClusterState, decision: Decision, spec: PolicySpec, leaving: Iterable[int]) -> str:
    """Return what is wrong with the GPUs that the decision names; "" if nothing is. `leaving`: running jobs that stop or move."""
    named = {row: placement for row, placement in decision.allocation.items() if placement.gpu_masks}
    if not named:
        return ""
    ids = state.jobs.ids
    if not spec.exact_gpus:
        return (
            f"job {ids[next(iter(named))]}: GPUs are named, but {spec.name} describes itself as a policy that only counts them; "
            "set exact_gpus in its spec"
        )
    staying = set(state.running.tolist()) - set(leaving)
    taken = taken_gpus(state, staying - named.keys())
    for row, placement in named.items():
        for node, count, mask in zip(placement.nodes, placement.gpus, placement.gpu_masks, strict=True):
            problem = mask_problem(mask, count, int(state.nodes.gpus[node]), taken.get(node, 0))
            if problem:
                return f"job {ids[row]}: node {state.nodes.names[node]}: {problem}"
            taken[node] = taken.get(node, 0) | mask
    return ""


def taken_gpus(state: ClusterState, rows: Iterable[int]) -> dict[int, int]:
    """Return by node the mask of the GPUs that foreign jobs and the jobs of these rows have, as far as it is known."""
    nodes, jobs = state.nodes, state.jobs
    taken = dict(enumerate(nodes.foreign_gpu_mask.tolist())) if nodes.foreign_gpu_mask is not None else {}
    offset, where, masks = (
        jobs.placement_offset.tolist(),
        jobs.placement_node.tolist(),
        jobs.placement_gpu_mask.tolist(),
    )
    for row in rows:
        for entry in range(offset[row], offset[row + 1]):
            taken[where[entry]] = taken.get(where[entry], 0) | masks[entry]
    return taken
