"""BCube: servers with several ports, which forward traffic of other servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from simulator.cluster.topology.topology import Inside, Topology
from simulator.errors import ClusterError

BCUBE_GBS = (1.25, 2.5, 5.0)
"""10, 20 and 40 Gb/s by layer (MARL, section VI-D). Its k = 3 has four layers; the last figure stands for those that have none."""


@dataclass(frozen=True)
class BCubeRoutes:
    """Server `s` has digits `s_0 … s_k` to base n, and on every level i a link to the switch of those that share its others.

    Invariant: link `server * levels + i` is the server's link of level i. A path corrects digits from the highest level down (the
    one path of BCube's own routing that its authors give first); servers on the way pass it on.
    """

    n: int
    levels: int
    servers: int

    def nics(self, node: int) -> tuple[int, ...]:
        """Return the links of a node."""
        return tuple(range(node * self.levels, (node + 1) * self.levels))

    def path(self, source: int, target: int, source_group: int = 0, target_group: int = 0) -> tuple[int, ...]:  # noqa: ARG002
        """Return two links for every digit in which the servers differ."""
        return tuple(link for link, _ in self._hops(source, target))

    def ring(self, nodes: Sequence[int]) -> Mapping[int, float]:
        """Return the paths from each node to the next by number, and from the last to the first; of a link's directions the
        busier."""
        if len(nodes) < 2:
            return {}
        order = sorted(nodes)
        passes = Counter(hop for source, target in pairwise([*order, order[0]]) for hop in self._hops(source, target))
        busier: dict[int, float] = {}
        for (link, _), times in passes.items():
            busier[link] = max(busier.get(link, 0.0), float(times))
        return busier

    def _hops(self, source: int, target: int) -> Iterator[tuple[int, bool]]:
        """Yield the links on the way, each with True if bytes enter it at the server's end.

        A server on the way that is not there (the cube is not full) is passed by its switches alone.
        """
        here = source
        for level in reversed(range(self.levels)):
            unit = self.n**level
            wanted, present = target // unit % self.n, here // unit % self.n
            if wanted != present:
                there = here + (wanted - present) * unit
                for server, leaves in ((here, True), (there, False)):
                    if server < self.servers:
                        yield server * self.levels + level, leaves
                here = there


def bcube(
    gpus: Sequence[int],
    sockets: Sequence[int],
    *,
    n: int = 6,
    k: int | None = None,
    tiers_gbs: Sequence[float] = BCUBE_GBS,
    inside: Inside | None = None,
) -> Topology:
    """Make a BCube of n-port switches and levels 0 to k; without `k` the smallest that has room.

    A rack is a BCube_0 (n servers on one switch), a pod a BCube_1.
    """
    if k is None:
        k = 0
        while n > 1 and n ** (k + 1) < len(gpus):
            k += 1
    if n < 2 or k < 0 or n ** (k + 1) < len(gpus) or not tiers_gbs:
        raise ClusterError(
            f"BCube with n={n} and k={k} has room for {n ** (k + 1)} nodes, and the cluster has {len(gpus)}",
            mend="take n and k with n^(k+1) >= nodes, or leave k out",
            key="network.k",
        )
    count, levels = len(gpus), k + 1
    gbs = [tiers_gbs[min(level, len(tiers_gbs) - 1)] for level in range(levels)]
    return Topology(
        "bcube",
        tuple(gpus),
        tuple(sockets),
        tuple(node // n for node in range(count)),
        tuple(node // n**2 for node in range(count)),
        tuple(gbs * count),
        tuple(f"node {node} port {level}" for node in range(count) for level in range(levels)),
        BCubeRoutes(n, levels, count),
        inside or Inside(),
    )
