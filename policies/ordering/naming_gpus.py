"""The option `gpus` of policies that start jobs and stop none: which GPUs of its nodes a job gets."""

from __future__ import annotations

from dataclasses import replace

from policies.api import Decision
from policies.model import ClusterState, JobState, Placement
from policies.placement.gpu_choice import free_gpu_masks, with_packed_gpus
from policies.state.gpu_layout import Link

GPUS = ("any", "packed")
"""Values of the option: Slurm chooses, or the policy names GPUs that are close to each other."""
_LINKS = {
    Link.NVLINK: "joined by NVLink",
    Link.SWITCH: "below one PCIe switch",
    Link.SOCKET: "on one socket",
    Link.BETWEEN_SOCKETS: "on several sockets",
}


def with_gpus_named(state: ClusterState, decision: Decision) -> Decision:
    """Return the decision with the GPUs of the jobs that it starts, in its order; the reasons say how these
    are connected.

    None are named on nodes whose layout is not known, or where it is not known which GPUs are free.
    """
    runs = (state.jobs.state == JobState.RUNNING).tolist()
    free = free_gpu_masks(state, [row for row in decision.allocation if runs[row]])
    starts = {row: placement for row, placement in decision.allocation.items() if not runs[row]}
    named = with_packed_gpus(state, starts, free)
    reasons = dict(decision.reasons)
    for row, placement in named.items():
        if placement.gpu_masks:
            reasons[row] = "; ".join(filter(None, (reasons.get(row, ""), _text(state, placement))))
    return replace(decision, allocation={**decision.allocation, **named}, reasons=reasons)


def _text(state: ClusterState, placement: Placement) -> str:
    """Return how the job's GPUs on a node are connected, at worst; "" if it has one on each."""
    layouts = state.nodes.gpu_layout
    links = [
        state.gpu_layouts[int(layouts[node])].farthest(mask)
        for node, mask in zip(placement.nodes, placement.gpu_masks, strict=True)
        if mask and layouts is not None
    ]
    farthest = max((link for link in links if link is not None), default=None)
    return "" if farthest is None else f"its GPUs are {_LINKS[farthest]}"
