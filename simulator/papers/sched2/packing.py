"""Packing placement (Luan et al., SCHED2, section II-B) on the event loop's nodes.

"The algorithm first tries to find the server with the fewest free GPUs that can satisfy the job's GPU demand if possible. If
there is no such server, the algorithm chooses the server with the most amount of free GPUs, and then the remaining GPU requirement
will be satisfied by the above logic again." Ties, which the paper leaves open, go to the lowest index. It is
`policies.placement.paper_rules.PACKING` without a `ClusterState`, for those who decide a million times.
"""

from __future__ import annotations

from simulator.kernel.constants import CONSOLIDATED
from simulator.kernel.job import ActiveJob
from simulator.kernel.nodes import NodePool


def pack(pool: NodePool, job: ActiveJob) -> tuple[list[int], list[int]] | None:
    """Nodes, rising, and GPUs of each, where the job would go now; None where too few are free. Takes nothing."""
    gpus = job.gpus
    if gpus > pool.total:
        return None
    if pool.place(job.size, gpus, CONSOLIDATED) == 1:
        return [pool.chosen[0]], [gpus]
    return _scattered({node: free for node, free in enumerate(pool.free) if free and pool.up[node]}, gpus)


def _scattered(rooms: dict[int, int], gpus: int) -> tuple[list[int], list[int]]:
    """On these nodes, rising, of so many free GPUs, which are enough."""
    shares: list[tuple[int, int]] = []
    while gpus:
        fitting = [node for node, room in rooms.items() if room >= gpus]
        node = min(fitting, key=rooms.__getitem__) if fitting else max(rooms, key=rooms.__getitem__)
        share = min(rooms.pop(node), gpus)
        shares.append((node, share))
        gpus -= share
    shares.sort()
    nodes, counts = zip(*shares, strict=True)
    return list(nodes), list(counts)
