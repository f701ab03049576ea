"""The GPUs that decisions name: by the option `gpus` of policies that start jobs and stop none, or as an agent chose them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from policies.api import Decision
from policies.model import ClusterState, JobState, Placement
from policies.placement.gpu_choice import free_gpu_masks, with_packed_gpus
from policies.placement.wished_gpus import Wish, Wishes, is_as_wished, with_wished_gpus
from policies.selection import present_placements
from policies.state.gpu_layout import Link

GPUS = ("any", "packed")
"""Values of the option: Slurm chooses, or the policy names GPUs that are close to each other."""
_LINKS = {
    Link.NVLINK: "joined by NVLink",
    Link.SWITCH: "below one PCIe switch",
    Link.SOCKET: "on one socket",
    Link.BETWEEN_SOCKETS: "on several sockets",
}
_OTHERS = "not all of its GPUs are those that the agent chose"
_NOT_NAMED = "Slurm chooses its GPUs, because it is not known which are free, or how they are connected"


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


def with_agents_gpus(state: ClusterState, decision: Decision, wishes: Wishes, *, laid_out: bool) -> Decision:
    """Return the decision with the GPUs of all jobs that start or change: those that an agent chose, as far as they are free.

    Running jobs that stay name none, and so keep theirs. No GPUs are named on nodes where it is not known which are free; with
    `laid_out` also none where the layout is not known.
    """
    own = present_placements(state, state.running)
    coming = {row: placement for row, placement in decision.allocation.items() if own.get(row) != placement}
    staying = [row for row in decision.allocation if row not in coming]
    named = with_wished_gpus(state, coming, free_gpu_masks(state, staying, laid_out=laid_out), wishes)
    reasons: dict[int, str] = dict(decision.reasons)
    for row, placement in named.items():
        added = _remarks(state, placement, wishes.get(row, {}))
        reasons[row] = "; ".join(filter(None, (reasons.get(row, ""), *added)))
    return replace(decision, allocation={**decision.allocation, **named}, reasons=reasons)


def _remarks(state: ClusterState, placement: Placement, wish: Mapping[int, Wish]) -> tuple[str, ...]:
    if not placement.gpu_masks:
        return (_NOT_NAMED,)
    return _text(state, placement), "" if is_as_wished(placement, wish) else _OTHERS


def _text(state: ClusterState, placement: Placement) -> str:
    """Return how the job's GPUs on a node are connected, at worst; "" if it has one on each."""
    layouts = state.nodes.gpu_layout
    links = [
        state.gpu_layouts[int(layouts[node])].farthest(mask)
        for node, mask in zip(placement.nodes, placement.gpu_masks, strict=True)
        if mask and layouts is not None and layouts[node] >= 0
    ]
    farthest = max((link for link in links if link is not None), default=None)
    return "" if farthest is None else f"its GPUs are {_LINKS[farthest]}"
