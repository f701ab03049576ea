"""GPUs that a placement's maker prefers: given where they are free, others in place of the rest, none twice."""

from __future__ import annotations

import random

import pytest

from policies.model import ClusterState, Placement
from policies.placement.gpu_choice import free_gpu_masks
from policies.placement.wished_gpus import Wishes, is_as_wished, with_wished_gpus
from tests.unit.policies.placement.test_gpu_choice import state_of
from tests.unit.policies.states.cluster import Job, Node, cluster


def named(
    state: ClusterState, starts: dict[int, Placement], free: dict[int, int], wishes: Wishes
) -> list[tuple[int, ...]]:
    return [each.gpu_masks for each in with_wished_gpus(state, starts, free, wishes).values()]


def test_wishes_are_fulfilled_and_completed() -> None:
    state = cluster([Node(8)] * 2, [])
    starts = {0: Placement((0,), (3,)), 1: Placement((0, 1), (2, 2)), 2: Placement((1,), (1,))}
    wishes: Wishes = {
        0: {0: [(0b1000, 1)]},
        1: {0: [(0b0110, 2)], 1: [(0b1100_0000, 1), (0b11, 1)]},
        2: {1: [(0b1111_0000, 1)]},
    }
    free = {0: 0b1111_1111, 1: 0b1111_1111}
    # the first job completes its one GPU only when the second has what it prefers: 0 and 4, not 1 and 2
    assert named(state, starts, free, wishes) == [(0b1_1001,), (0b0110, 0b100_0001), (0b1_0000,)]
    assert free == {0: 0b1110_0000, 1: 0b1010_1110}


def test_gpus_of_others_are_not_given() -> None:
    state = cluster([Node(4)], [])
    assert named(state, {0: Placement((0,), (2,))}, {0: 0b1011}, {0: {0: [(0b0110, 2)]}}) == [(0b0011,)]


def test_no_gpus_are_named_where_it_is_not_known_which_are_free() -> None:
    state = cluster([Node(4)] * 2, [])
    starts = {0: Placement((0,), (2,)), 1: Placement((0, 1), (1, 1)), 2: Placement((1,), (4,))}
    free = {1: 0b1111}
    assert named(state, starts, free, {0: {0: [(0b11, 2)]}, 1: {1: [(0b100, 1)]}}) == [(), (0, 0b100), ()]
    assert free == {1: 0b1011}, "a job that lacks GPUs takes none"


def test_a_job_has_the_same_gpus_on_all_its_nodes_where_its_wishes_allow_it() -> None:
    state = state_of(masks=[])
    groups = [(0b1111, 1), (0b1111_0000, 1)]
    starts = {0: Placement((0, 1), (2, 2))}
    assert named(state, starts, {0: 0b1100_1100, 1: 0b1111_1111}, {0: {0: groups, 1: groups}}) == [(0b100_0100,) * 2]
    other = {0: {0: groups, 1: [(0b1111, 2)]}}
    assert named(state, starts, {0: 0b1100_1100, 1: 0b1111_1111}, other) == [(0b100_0100, 0b11)]


def test_in_a_group_close_gpus_are_taken() -> None:
    assert named(state_of(masks=[]), {0: Placement((0,), (2,))}, {0: 0b1110_1110}, {0: {0: [(0b1111, 2)]}}) == [
        (0b1100,)
    ]


@pytest.mark.parametrize("seed", range(50))
def test_no_gpu_has_two_jobs_and_a_wish_that_nothing_contradicts_is_fulfilled(seed: int) -> None:
    draw = random.Random(seed)
    state = cluster([Node(8)] * 3, [])
    all_free = {node: draw.getrandbits(8) for node in range(3) if draw.random() < 0.9}
    left = {node: mask.bit_count() for node, mask in all_free.items()}
    starts, wishes = {}, {}
    for row in range(6):
        counts = {node: draw.randint(1, most) for node, most in left.items() if most and draw.random() < 0.5}
        if counts:
            left = {node: most - counts.get(node, 0) for node, most in left.items()}
            starts[row] = Placement.of(counts)
            wishes[row] = {node: [((mask := draw.getrandbits(8)), mask.bit_count())] for node in counts}
    free = dict(all_free)
    taken = dict.fromkeys(range(3), 0)
    for placement in with_wished_gpus(state, starts, free, wishes).values():
        for (node, count), mask in zip(placement.items(), placement.gpu_masks, strict=True):
            assert mask.bit_count() == count
            assert not mask & ~all_free[node] and not mask & taken[node]
            taken[node] |= mask
    assert all(free[node] == all_free[node] & ~taken[node] for node in all_free)


def test_whether_a_wish_is_fulfilled() -> None:
    placement = Placement((0, 1), (1, 2), gpu_masks=(0b1, 0b110))
    assert is_as_wished(placement, {0: [(0b1, 1)], 1: [(0b10, 1), (0b100, 1)]})
    assert not is_as_wished(placement, {0: [(0b1, 1)], 1: [(0b10, 1)]})
    assert not is_as_wished(placement, {1: [(0b110, 2)]})
    assert is_as_wished(Placement((0,), (1,)), {})


def test_free_gpus_are_known_without_a_layout_too() -> None:
    state = cluster([Node(4), Node(4, foreign_gpus=1), Node(65)], [Job(gpus=2, occupied={0: 2}), Job(occupied={1: 1})])
    assert free_gpu_masks(state, []) == {}
    assert free_gpu_masks(state, [], laid_out=False) == {0: 0b1111}
    assert free_gpu_masks(state, [0], laid_out=False) == {}
    known = state_of(Job(gpus=1, occupied={0: 1}), masks=[0b100])
    assert free_gpu_masks(known, [0], laid_out=False) == {0: 0b1111_1011, 1: 0b1111_1111}
