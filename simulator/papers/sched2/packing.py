"""SCHED2's packing placement on the event loop's nodes: `policies.placement.dividing.packed` without a `ClusterState`."""

from __future__ import annotations

from policies.placement.dividing import packed
from simulator.kernel.constants import CONSOLIDATED
from simulator.kernel.job import ActiveJob
from simulator.kernel.nodes import NodePool


def pack(pool: NodePool, job: ActiveJob) -> tuple[list[int], list[int]] | None:
    """Return the nodes, rising, and the GPUs of each, where the job would go now; None where too few are free. Takes nothing."""
    gpus = job.gpus
    if gpus > pool.total:
        return None
    if pool.place(job.size, gpus, CONSOLIDATED) == 1:
        return [pool.chosen[0]], [gpus]
    rooms = [(node, free) for node, free in enumerate(pool.free) if free and pool.up[node]]
    rooms.sort(key=_most_first)
    shares = packed(rooms, gpus)
    assert shares is not None
    nodes, counts = zip(*sorted(shares), strict=True)
    return list(nodes), list(counts)


def _most_first(room: tuple[int, int]) -> tuple[int, int]:
    return -room[1], room[0]
