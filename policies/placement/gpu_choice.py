"""The GPUs of one node for one job: as close to each other as possible, and from groups that are already in use.

The closest kind of link decides first: NVLink, one PCIe switch, one socket. Of the groups of that link that have enough free
GPUs, the one with the fewest is taken, the lowest on ties, and within it whole smaller groups before parts of others. A job that
fits in no group takes the fullest groups first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from policies.model import ClusterState, Placement
from policies.state.gpu_layout import MOST_GPUS, GpuLayout, Link


def packed(layout: GpuLayout, free: int, count: int) -> int:
    """Return the mask of `count` of the free GPUs. At least so many must be free."""
    for link in Link:
        fitting = [there for group in layout.groups(link) if (there := group & free).bit_count() >= count]
        if fitting:
            best = min(fitting, key=lambda there: (there.bit_count(), there & -there))
            return _within(layout, best, count, link)
    raise ValueError(f"{count} GPUs of {free.bit_count()} free ones")


def _within(layout: GpuLayout, free: int, count: int, link: Link) -> int:
    """Return `count` of these GPUs, whole groups of closer links before parts of groups."""
    if count == 0 or free.bit_count() == count:
        return free if count else 0
    closer = [each for each in Link if each < link]
    if not closer:
        return lowest(free, count)
    parts = [there for group in layout.groups(closer[-1]) if (there := group & free)]
    alone = free & ~sum(parts)  # GPUs without that link, each a group of its own
    parts += [1 << gpu for gpu in range(alone.bit_length()) if alone >> gpu & 1]
    fitting = [part for part in parts if part.bit_count() >= count]
    if fitting:
        best = min(fitting, key=lambda there: (there.bit_count(), there & -there))
        return _within(layout, best, count, closer[-1])
    largest = max(parts, key=lambda there: (there.bit_count(), -(there & -there)))
    return largest | _within(layout, free & ~largest, count - largest.bit_count(), link)


def lowest(mask: int, count: int) -> int:
    """Return the lowest `count` GPUs of a mask."""
    chosen = 0
    for _ in range(count):
        bit = mask & -mask
        chosen |= bit
        mask ^= bit
    return chosen


def free_gpu_masks(state: ClusterState, staying: Iterable[int], *, laid_out: bool = True) -> dict[int, int]:
    """Return by node the GPUs that are free beside foreign jobs and the running jobs of these rows.

    Nodes are left out where it is not known which GPUs a job has, or that have more GPUs than can be named; with `laid_out` also
    those whose layout is not known.
    """
    nodes, jobs = state.nodes, state.jobs
    if not laid_out:
        known = nodes.gpus <= MOST_GPUS
    elif nodes.gpu_layout is not None:
        known = nodes.gpu_layout >= 0
    else:
        return {}
    free = {node: (1 << int(nodes.gpus[node])) - 1 for node in np.flatnonzero(known).tolist()}
    for node in np.flatnonzero(nodes.foreign_gpus).tolist():
        mask = 0 if nodes.foreign_gpu_mask is None else int(nodes.foreign_gpu_mask[node])
        _take(free, node, mask, int(nodes.foreign_gpus[node]))
    offset = jobs.placement_offset.tolist()
    where, counts, masks = (
        column.tolist() for column in (jobs.placement_node, jobs.placement_gpus, jobs.placement_gpu_mask)
    )
    for row in staying:
        for entry in range(offset[row], offset[row + 1]):
            _take(free, where[entry], masks[entry], counts[entry])
    return free


def _take(free: dict[int, int], node: int, mask: int, count: int) -> None:
    if mask.bit_count() != count:
        free.pop(node, None)
    elif node in free:
        free[node] &= ~mask


def with_packed_gpus(
    state: ClusterState, starts: Mapping[int, Placement], free: dict[int, int]
) -> dict[int, Placement]:
    """Return the placements with GPUs named, in that order, each taking what it gets from `free`; none on nodes that are not
    in it."""
    layouts = state.nodes.gpu_layout
    named = {}
    for row, placement in starts.items():
        masks = []
        for node, count in placement.items():
            has = free.get(node, 0)
            known = layouts is not None and has.bit_count() >= count
            mask = packed(state.gpu_layouts[int(layouts[node])], has, count) if known and layouts is not None else 0
            if node in free:
                free[node] = has & ~mask
            masks.append(mask)
        named[row] = replace(placement, gpu_masks=tuple(masks)) if any(masks) else placement
    return named
