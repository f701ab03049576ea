"""Topologies of the papers.

Bandwidths are GB/s in each direction of one link; papers' Gb/s are divided by 8. Nodes fill a topology in order, rack by rack;
one with more places than nodes has the rest of them empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.cluster.topology.topology import Inside, Topology
from simulator.cluster.topology.tree import LinkList, TreeRoutes
from simulator.errors import ClusterError

NIC_GBS = 12.5
"""100 Gb/s: InfiniBand EDR, the card-to-rack link of RL-TAPS (table 1)."""
UPLINK_GBS = 6.25
"""Rack to director switch of RL-TAPS (table 1)."""
FAT_TREE_GBS = (1.25, 2.5, 5.0)
"""10, 20 and 40 Gb/s: server to edge, edge to aggregation, aggregation to core (MARL, section VI)."""
VL2_GBS = (0.125, 1.25, 1.25)
"""1, 10 and 10 Gb/s: server to rack, rack to aggregation, aggregation to intermediate switch (MARL, section VI-D)."""
VL2_SERVERS = 20
"""Servers of a rack (MARL, section VI-D)."""


def flat(
    gpus: Sequence[int], sockets: Sequence[int], *, nic_gbs: float = NIC_GBS, inside: Inside | None = None
) -> Topology:
    """Make one rack of all nodes, on one switch that is never the bottleneck."""
    return rack_tree(gpus, sockets, [0] * len(gpus), nic_gbs=nic_gbs, inside=inside, kind="flat")


def rack_tree(
    gpus: Sequence[int],
    sockets: Sequence[int],
    racks: Sequence[int],
    *,
    nic_gbs: float = NIC_GBS,
    uplink_gbs: float = UPLINK_GBS,
    nics: int = 1,
    inside: Inside | None = None,
    kind: str = "racks",
) -> Topology:
    """Make racks on one director switch that is never the bottleneck, with one uplink for each rack."""
    links = LinkList()
    nic_links = links.add_nics(range(len(gpus)), nic_gbs, nics)
    uplinks = [links.add(f"rack {rack} uplink", uplink_gbs) for rack in range(max(racks) + 1)]
    above = tuple((uplinks[rack],) for rack in racks)
    return _tree(kind, gpus, sockets, racks, racks, links, TreeRoutes(nic_links, above), inside)


def rl_taps(num_racks: int = 4, machines: int = 2) -> Topology:
    """Make the cluster of RL-TAPS (table 1, section 5.1): machines of 4 GPUs and 2 sockets, each socket with its own card."""
    count = num_racks * machines
    return rack_tree(
        [4] * count,
        [2] * count,
        [node // machines for node in range(count)],
        nics=2,
        inside=Inside(pcie_gbs=40.0, socket_gbs=38.5),
        kind="rl-taps",
    )


def fat_tree(
    gpus: Sequence[int],
    sockets: Sequence[int],
    *,
    k: int | None = None,
    tiers_gbs: Sequence[float] = FAT_TREE_GBS,
    inside: Inside | None = None,
) -> Topology:
    """Make a k-ary fat-tree: k pods of k/2 edge switches with k/2 servers each; without `k` the smallest that is large enough.

    Parallel switches are fused, as in MARL (section VI): an edge switch has k/2 links up, a pod (k/2)^2; traffic is spread evenly
    over them. Racks are the edge switches.
    """
    if k is None:
        k = 2
        while k**3 // 4 < len(gpus):
            k += 2
    half = k // 2
    if k < 2 or k % 2 or half * half * k < len(gpus):
        raise ClusterError(
            f"a fat-tree with k={k} has room for {half * half * k} nodes, and the cluster has {len(gpus)}",
            mend="take an even k with k^3/4 >= nodes, or leave k out",
            key="network.k",
        )
    return _pods("fat-tree", gpus, sockets, (half, half), _tiers(tiers_gbs, 1, half, half * half), inside)


def vl2(
    gpus: Sequence[int],
    sockets: Sequence[int],
    *,
    k: int | None = None,
    servers: int = VL2_SERVERS,
    tiers_gbs: Sequence[float] = VL2_GBS,
    inside: Inside | None = None,
) -> Topology:
    """Make VL2 with k aggregation switches: k^2/4 racks with two links up; without `k` the smallest that is large enough.

    Traffic is spread evenly (Valiant), so a pod is a fused aggregation switch: k/4 racks below it, k/2 links to the intermediate
    switches above.
    """
    if k is None:
        k = 4
        while k * k // 4 * servers < len(gpus):
            k += 4
    if k < 4 or k % 4 or k * k // 4 * servers < len(gpus):
        raise ClusterError(
            f"VL2 with k={k} has room for {k * k // 4 * servers} nodes, and the cluster has {len(gpus)}",
            mend=f"take a k divisible by 4 with k^2/4 * {servers} >= nodes, or leave k out",
            key="network.k",
        )
    return _pods("vl2", gpus, sockets, (servers, k // 4), _tiers(tiers_gbs, 1, 2, k // 2), inside)


def _tiers(tiers_gbs: Sequence[float], *parallel: int) -> tuple[float, ...]:
    """Return the capacities of the fused links of each tier."""
    if len(tiers_gbs) != len(parallel):
        raise ClusterError(
            f"{len(tiers_gbs)} bandwidths given for the {len(parallel)} tiers of links",
            mend="give one for each tier, from the servers up",
            key="network.tiers_gbs",
        )
    return tuple(gbs * links for gbs, links in zip(tiers_gbs, parallel, strict=True))


def _pods(
    kind: str,
    gpus: Sequence[int],
    sockets: Sequence[int],
    fan: tuple[int, int],
    tiers: Sequence[float],
    inside: Inside | None,
) -> Topology:
    """Make a tree of `fan[0]` nodes a rack and `fan[1]` racks a pod, with those capacities for nodes, racks and pods."""
    per_rack, per_pod = fan
    racks = [node // per_rack for node in range(len(gpus))]
    pods = [rack // per_pod for rack in racks]
    links = LinkList()
    nic_links = links.add_nics(range(len(gpus)), tiers[0])
    rack_links = [links.add(f"rack {rack} uplink", tiers[1]) for rack in range(racks[-1] + 1)]
    pod_links = [links.add(f"pod {pod} uplink", tiers[2]) for pod in range(pods[-1] + 1)]
    above = tuple((rack_links[rack], pod_links[pod]) for rack, pod in zip(racks, pods, strict=True))
    return _tree(kind, gpus, sockets, racks, pods, links, TreeRoutes(nic_links, above), inside)


def _tree(
    kind: str,
    gpus: Sequence[int],
    sockets: Sequence[int],
    racks: Sequence[int],
    pods: Sequence[int],
    links: LinkList,
    routes: TreeRoutes,
    inside: Inside | None,
) -> Topology:
    return Topology(
        kind,
        tuple(gpus),
        tuple(sockets),
        tuple(racks),
        tuple(pods),
        tuple(links.gbs),
        tuple(links.names),
        routes,
        inside or Inside(),
    )
