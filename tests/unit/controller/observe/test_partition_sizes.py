"""Sizes of partitions, from nodes in any state."""

from __future__ import annotations

from dataclasses import replace

from controller.base.partition_size import NodeKind, PartitionSize
from controller.observe.partition_sizes import PartitionSizes, sizes
from controller.slurm.model.cluster import SlurmPartition
from tests.unit.controller.examples.build import node, snapshot

SMALL = node("n1", gpus=4, cpus=128, gpus_by_type=(("a100", 4),), available=False, state="DOWN")
LARGE = node("n2", gpus=8, cpus=64, memory_mib=512_000, gpus_by_type=(("a100", 2), ("h100", 6)))
KINDS = (NodeKind(1, 4, 128, SMALL.memory_mib, (("a100", 4),)), NodeKind(1, 8, 64, 512_000, (("a100", 2), ("h100", 6))))


def test_a_size_is_the_most_of_each_resource_on_any_node() -> None:
    assert sizes(snapshot(nodes=(SMALL, LARGE)), ["dl"]) == (
        PartitionSize("dl", 12, 8, 128, 512_000, (("a100", 4), ("h100", 6)), KINDS),
    )


def test_nodes_with_the_same_resources_are_one_kind() -> None:
    nodes = (SMALL, LARGE, replace(SMALL, name="n3", state="IDLE", available=True), replace(LARGE, name="n4"))
    (found,) = sizes(snapshot(nodes=nodes), ["dl"])
    assert found.kinds == (replace(KINDS[0], num_nodes=2), replace(KINDS[1], num_nodes=2))


def test_a_partition_without_nodes_or_that_slurm_does_not_have_has_no_size() -> None:
    seen = snapshot(partitions=(SlurmPartition("dl", frozenset(), up=True, max_time_s=None),))
    assert sizes(seen, ["dl", "other"]) == ()


def test_sizes_are_computed_again_only_when_nodes_or_partitions_change() -> None:
    kept, partitions = PartitionSizes(), ("dl",)
    assert kept.of(None, partitions) == ()
    seen = snapshot(nodes=(SMALL, LARGE))
    first = kept.of(seen, partitions)
    assert kept.of(replace(seen, time_s=seen.time_s + 1), partitions) is first
    assert kept.of(replace(seen, nodes=(SMALL,)), partitions)[0].gpus == 4
    assert kept.of(seen, ("other",)) == ()
