"""GPU groups that follow the sockets of a layout: what the agents see, and the GPUs that a decision names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from policies.learned.marl.policy import Marl
from policies.learned.marl.serving.batch import Batch
from policies.learned.marl.serving.cluster_graphs import graphs_of
from policies.learned.marl.serving.job_columns import job_columns
from policies.learned.marl.serving.occupancy import Occupancy
from policies.learned.marl.serving.schedulers import RACKS, SOCKETS, schedulers_of
from policies.model import ClusterState
from policies.placement.wished_gpus import Wish
from policies.state.gpu_layout import GpuLayout
from tests.unit.policies.states.cluster import Job, Node, cluster

HALVES = GpuLayout((0, 0, 1, 1), (0, 0, 1, 1), (0,) * 4)
CROSSED = GpuLayout((0, 1, 0, 1), (0, 1, 0, 1), (0,) * 4)
THREE = GpuLayout((0, 1, 1, 2), (0, 1, 1, 2), (0,) * 4)


def state_of(
    layouts: Sequence[GpuLayout | None], *jobs: Job, masks: tuple[int, ...] = (), foreign: dict[int, int] | None = None
) -> ClusterState:
    """Nodes of four GPUs in racks of two, with these GPUs of running and of foreign jobs."""
    nodes = [Node(4, foreign_gpus=(foreign or {}).get(node, 0).bit_count()) for node in range(len(layouts))]
    found = cluster(nodes, jobs)
    known = tuple(dict.fromkeys(each for each in layouts if each is not None))
    column = np.array([-1 if each is None else known.index(each) for each in layouts])
    foreign_masks = np.array([(foreign or {}).get(node, 0) for node in range(len(layouts))], dtype=np.uint64)
    held = np.array(masks or (0,) * len(found.jobs.placement_node), dtype=np.uint64)
    racks = np.arange(len(layouts)) // 2
    seen = replace(found.nodes, gpu_layout=column, foreign_gpu_mask=foreign_masks, rack=racks)
    return replace(found, nodes=seen, gpu_layouts=known, jobs=replace(found.jobs, placement_gpu_mask=held))


def test_groups_are_the_sockets_of_each_node() -> None:
    parts = schedulers_of(state_of([CROSSED, None, THREE, HALVES]), RACKS, SOCKETS)
    assert parts.group_mask == (0b0101, 0b1010, 0b1111, 0b0001, 0b0110, 0b1000, 0b0011, 0b1100)
    assert parts.group_node.tolist() == [0, 0, 1, 2, 2, 2, 3, 3]
    assert parts.group_gpus.tolist() == [2, 2, 4, 1, 2, 1, 2, 2]
    assert parts.first.tolist() == [0, 3, 8]
    assert [list(parts.groups_on(node)) for node in range(4)] == [[0, 1], [2], [3, 4, 5], [6, 7]]
    alone = schedulers_of(cluster([Node(4), Node(0), Node(2)], []), RACKS, SOCKETS)
    assert alone.group_mask == (0b1111, 0b11) and list(alone.groups_on(1)) == []


def test_running_and_foreign_jobs_are_in_the_groups_of_their_gpus() -> None:
    state = state_of([CROSSED] * 2, Job(gpus=2, occupied={0: 2}), masks=(0b1010,), foreign={1: 0b0011})
    parts = schedulers_of(state, RACKS, SOCKETS)
    columns = job_columns(state, graphs_of(state, parts).layouts[0])
    occupancy = Occupancy(state, parts, columns)
    assert occupancy.free_gpus.tolist() == [2, 0, 1, 1]
    assert list(occupancy.own[0]) == [1]
    unknown = replace(state, nodes=replace(state.nodes, foreign_gpu_mask=None))
    assert Occupancy(unknown, parts, columns).free_gpus.tolist() == [2, 0, 2, 0]


def test_sockets_of_consecutive_gpus_are_the_groups_of_the_number_two() -> None:
    jobs = [Job(gpus=1 + row % 4) for row in range(9)]
    state = state_of([HALVES] * 8, Job(gpus=2, occupied={0: 2}), *jobs, masks=(0b0110,))
    sockets, two = Marl(guard=False, groups=SOCKETS), Marl(guard=False, groups=2)
    assert sockets.spec.exact_gpus and not two.spec.exact_gpus
    found = sockets.decide(state).allocation
    assert {row: replace(each, gpu_masks=()) for row, each in found.items()} == two.decide(state).allocation
    assert all(found[row].gpu_masks for row in found if row)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("guard", [True, False])
def test_the_decision_keeps_the_groups_that_the_agents_chose(
    seed: int, guard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: dict[int, dict[int, Wish]] = {}
    wish = Batch.wish
    monkeypatch.setattr(Batch, "wish", lambda self, row: chosen.setdefault(row, wish(self, row)))
    rng = np.random.default_rng(seed)
    layouts = [(CROSSED, THREE, HALVES)[number] for number in rng.integers(0, 3, 6)]
    held = {node: int(rng.integers(0, 16)) for node in range(6)}
    ours = [node for node in range(0, 6, 2) if held[node]]
    jobs = [Job(gpus=held[node].bit_count(), occupied={node: held[node].bit_count()}) for node in ours]
    asked = [Job(gpus=int(rng.integers(1, 5))) for _ in range(5)]
    state = state_of(
        layouts, *jobs, *asked, masks=tuple(held[node] for node in ours), foreign={node: held[node] for node in (1, 3, 5)}
    )  # fmt: skip
    decision = Marl(guard=guard, groups=SOCKETS).decide(state)
    taken = Counter[int]()
    for row, placement in decision.allocation.items():
        if row < len(jobs):
            assert placement == state.jobs.placement(row), "running jobs name none"
            continue
        is_agents = {node: sum(count for _, count in parts) for node, parts in chosen.get(row, {}).items()}
        for (node, count), mask in zip(placement.items(), placement.gpu_masks, strict=True):
            assert mask.bit_count() == count and not mask & (held[node] | taken[node])
            taken[node] |= mask
            if is_agents == dict(placement.items()):
                assert [(mask & group).bit_count() for group, _ in chosen[row][node]] == [
                    n for _, n in chosen[row][node]
                ]
    assert chosen or guard


def test_where_no_layout_is_known_no_gpus_are_named() -> None:
    decision = Marl(guard=False, groups=SOCKETS).decide(cluster([Node(4)] * 2, [Job(gpus=2)]))
    assert decision.allocation[0].gpu_masks == ()
    assert decision.reasons[0].endswith(
        "Slurm chooses its GPUs, because it is not known which are free, or how they are connected"
    )


def test_the_link_of_a_jobs_gpus_is_in_its_reason() -> None:
    decision = Marl(guard=False, groups=SOCKETS).decide(state_of([CROSSED] * 2, Job(gpus=4, max_nodes=1)))
    assert decision.allocation[0].gpu_masks == (0b1111,)
    assert decision.reasons[0].endswith("; its GPUs are on several sockets")
