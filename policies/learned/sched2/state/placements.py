"""The k = 4 placements that a job is profiled under, from concentrated to scattered (SCHED2, section III-B).

The paper profiles each job by "executing it for a few mini-batches" and does not say under which placements. Here they are, for a
job that needs n nodes at least: n nodes; one more; two more; and as many as there are, racks in turn. The first three fill rack by
rack, the largest first. GPUs are divided evenly. A job has no more nodes than GPUs, so that small jobs repeat their last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, zip_longest

NUM_PLACEMENTS = 4


@lru_cache(1024)  # for the present nodes and all sizes; nodes come and go for months
def fewest_nodes(node_gpus: tuple[int, ...], gpus: int) -> int:
    """Return the number of nodes of a job with its best locality, on nodes with so many GPUs each."""
    there = accumulate(sorted(node_gpus, reverse=True))
    return next((count for count, total in enumerate(there, start=1) if total >= gpus), len(node_gpus))


class ProfiledPlacements:
    """The profiled placements of jobs of every size, on nodes with so many GPUs in those racks."""

    def __init__(self, node_gpus: Sequence[int], racks: Sequence[int]) -> None:
        self._gpus = tuple(node_gpus)
        by_name: dict[int, list[int]] = {}
        for node, rack in enumerate(racks):
            by_name.setdefault(rack, []).append(node)
        by_rack = sorted(by_name.values(), key=lambda nodes: (-len(nodes), nodes[0]))
        self._close = [node for nodes in by_rack for node in nodes]
        self._apart = [node for nodes in zip_longest(*by_rack) for node in nodes if node is not None]

    def of(self, gpus: int) -> list[list[int]]:
        """Return the nodes of each placement, for a job of so many GPUs."""
        needed, most = fewest_nodes(self._gpus, gpus), min(gpus, len(self._gpus))
        close = [self._roomy(self._close, gpus, min(needed + more, most)) for more in range(NUM_PLACEMENTS - 1)]
        return [*close, self._roomy(self._apart, gpus, most)]

    def _roomy(self, order: Sequence[int], gpus: int, count: int) -> list[int]:
        """Return the first `count` nodes of that order; nodes that are too small for an even share are passed over."""
        share = -(-gpus // count)
        fit = [node for node in order if self._gpus[node] >= share]
        return fit[:count] if len(fit) >= count else list(order)[:count]
