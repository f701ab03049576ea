"""Sizes of the managed partitions, as the lease has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from controller.base.partition_size import NodeKind, PartitionSize
from controller.slurm.model.cluster import SlurmNode, SlurmSnapshot


class PartitionSizes:
    """Keeps the sizes of the newest snapshot. They are computed only when nodes or partitions have changed."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._sizes: tuple[PartitionSize, ...] = ()

    def of(self, snapshot: SlurmSnapshot | None, partitions: tuple[str, ...]) -> tuple[PartitionSize, ...]:
        """Return the sizes of these partitions. None without a snapshot, nor for a partition without nodes."""
        if snapshot is None:
            return ()
        read = (snapshot.nodes, snapshot.partitions, partitions)
        if any(one is not other for one, other in zip(read, self._of or (None,) * 3, strict=True)):
            self._of, self._sizes = read, sizes(snapshot, partitions)
        return self._sizes


def sizes(snapshot: SlurmSnapshot, partitions: Iterable[str]) -> tuple[PartitionSize, ...]:
    """Return the sizes of these partitions, whatever the states of their nodes. Partitions without nodes have none."""
    nodes = {node.name: node for node in snapshot.nodes}
    members = {partition.name: partition.nodes for partition in snapshot.partitions}
    found = ((name, [nodes[node] for node in members.get(name, ()) if node in nodes]) for name in partitions)
    return tuple(_size(name, there) for name, there in found if there)


def _size(name: str, nodes: list[SlurmNode]) -> PartitionSize:
    by_type: dict[str, int] = {}
    for node in nodes:
        for kind, count in node.gpus_by_type:
            by_type[kind] = max(by_type.get(kind, 0), count)
    return PartitionSize(
        name=name,
        all_gpus=sum(node.gpus for node in nodes),
        gpus=max(node.gpus for node in nodes),
        cpus=max(node.cpus for node in nodes),
        memory_mib=max(node.memory_mib for node in nodes),
        gpus_by_type=tuple(sorted(by_type.items())),
        kinds=_kinds(nodes),
    )


def _kinds(nodes: list[SlurmNode]) -> tuple[NodeKind, ...]:
    """Return the kinds of these nodes, in a fixed order."""
    found = Counter((node.gpus, node.cpus, node.memory_mib, tuple(sorted(node.gpus_by_type))) for node in nodes)
    return tuple(NodeKind(num_nodes, *kind) for kind, num_nodes in sorted(found.items()))
