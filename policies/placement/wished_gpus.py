"""The GPUs of placements whose maker prefers some: these as far as they are free, and others of the node in place of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from policies.model import ClusterState, Placement
from policies.placement.gpu_choice import lowest, packed

Wish = Sequence[tuple[int, int]]
"""Sets of GPUs of a node, as masks, and how many of each. The sets have no GPU in common."""
Wishes = Mapping[int, Mapping[int, Wish]]
"""Wishes of jobs by row, then by node."""


def with_wished_gpus(
    state: ClusterState, starts: Mapping[int, Placement], free: dict[int, int], wishes: Wishes
) -> dict[int, Placement]:
    """Return the placements with GPUs named, each taking what it gets from `free`; none on nodes that are not in it.

    First all jobs get what is free of their wishes, in that order; then the jobs that lack GPUs get others. A job gets the same
    GPUs on each of its nodes where its wishes allow it, because Slurm can be told no others.
    """
    masks: dict[int, list[int]] = {row: [] for row in starts}
    for row, placement in starts.items():
        wish = wishes.get(row, {})
        for node, count in placement.items():
            before = masks[row][-1] if masks[row] else 0
            found = _wished(state, node, free.get(node, 0), count, wish.get(node, ()), before)
            masks[row].append(found)
            _take(free, node, found)
    for row, placement in starts.items():
        for place, (node, count) in enumerate(placement.items()):
            found, has = masks[row][place], free.get(node, 0)
            left = count - found.bit_count()
            if left > has.bit_count():
                _take(free, node, -found)
                masks[row][place] = 0
            elif left:
                rest = _some(state, node, has, left)
                masks[row][place] = found | rest
                _take(free, node, rest)
    return {
        row: replace(placement, gpu_masks=tuple(masks[row])) if any(masks[row]) else placement
        for row, placement in starts.items()
    }


def is_as_wished(placement: Placement, wish: Mapping[int, Wish]) -> bool:
    """Return whether all GPUs that the placement names are of the sets of the wish."""
    return not any(
        mask & ~sum(each for each, _ in wish.get(node, ()))
        for node, mask in zip(placement.nodes, placement.gpu_masks, strict=False)
    )


def _wished(state: ClusterState, node: int, has: int, count: int, wish: Wish, before: int) -> int:
    """Return the free GPUs of the wish, at most `count`; those of `before`, the GPUs of another node, if they fulfil it."""
    fulfils = all((before & mask).bit_count() == number for mask, number in wish) and not before & ~has
    if fulfils and sum(number for _, number in wish) == count == before.bit_count():
        return before
    found = 0
    for mask, number in wish:
        here = mask & has
        found |= _some(state, node, here, min(number, here.bit_count(), count - found.bit_count()))
    return found


def _some(state: ClusterState, node: int, free: int, count: int) -> int:
    """Return `count` of these GPUs: close to each other if the layout of the node is known, else the lowest."""
    layouts = state.nodes.gpu_layout
    row = -1 if layouts is None else int(layouts[node])
    return packed(state.gpu_layouts[row], free, count) if row >= 0 and count else lowest(free, count)


def _take(free: dict[int, int], node: int, mask: int) -> None:
    """Take the GPUs of a mask; those of a negative one come back."""
    if node in free:
        free[node] -= mask
