"""Chooses GPUs that are near each other in the tree: best fit, level by level."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.cluster.topology.gpu_links import GpuLinks

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def nearest(links: GpuLinks, free: Flags, count: int) -> Ints:
    """Return `count` of the free GPUs: in the smallest of socket, node and rack that has as many, the one with the fewest free.

    Where no single part has as many, the part with the most free ones is taken whole, and the rest is chosen in the same way.
    Raises ValueError if fewer are free.
    """
    if count > free.sum():
        raise ValueError(f"{count} GPUs of {int(free.sum())} free ones")
    return np.sort(_chosen((links.socket, links.node, links.rack), np.flatnonzero(free), count))


def _chosen(levels: tuple[Ints, ...], free: Ints, count: int) -> Ints:
    """Choose among these GPUs; `levels` has the part of each GPU at each level, from the smallest parts up."""
    for place, level in enumerate(levels):
        names, sizes = np.unique(level[free], return_counts=True)
        if (fits := sizes >= count).any():
            best = names[fits][np.argmin(sizes[fits])]
            return _filled(levels[:place], free[level[free] == best], count)
    return _filled(levels, free, count)


def _filled(levels: tuple[Ints, ...], free: Ints, count: int) -> Ints:
    """Choose among GPUs of which no part at these levels has as many."""
    if not levels or count == len(free):
        return free[:count]
    part = levels[-1][free]
    names, sizes = np.unique(part, return_counts=True)
    whole = part == names[np.argmax(sizes)]
    return np.concatenate([free[whole], _chosen(levels, free[~whole], count - int(whole.sum()))])
