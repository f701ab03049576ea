"""The GPUs of a node: those with the closest links, from groups in use; none are named where it is not known which are free."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.api import Decision, load_policy
from policies.errors import PolicyLoadError
from policies.model import ClusterState, Placement
from policies.placement.gpu_choice import packed
from policies.rule import rule_of
from policies.state.gpu_layout import GpuLayout, Link, gpus_text, indices
from tests.unit.policies.states.cluster import Job, Node, cluster

TREE = GpuLayout((0,) * 4 + (1,) * 4, (0, 0, 1, 1, 2, 2, 3, 3), (0,) * 8)
"""Two sockets of two PCIe switches of two GPUs."""
NVLINK = replace(TREE, nvlink=(1, 1, 1, 1, 2, 2, 2, 2))
CROSSED = replace(TREE, nvlink=(1, 2, 0, 0, 1, 2, 0, 0))
"""NVLink between sockets: GPUs 0 and 4, 1 and 5."""


@pytest.mark.parametrize(
    ("layout", "free", "count", "chosen"),
    [
        (TREE, 0b1111_1111, 2, "0-1"),
        (TREE, 0b1111_1110, 1, "1"),
        (TREE, 0b1111_1110, 2, "2-3"),
        (TREE, 0b1111_1110, 3, "1-3"),
        (TREE, 0b1111_0110, 3, "4-6"),
        (TREE, 0b0110_0110, 2, "1-2"),
        (TREE, 0b1111_1111, 5, "0-4"),
        (TREE, 0b1111_0111, 6, "0-1,4-7"),
        (NVLINK, 0b1111_1110, 2, "1-2"),
        (NVLINK, 0b1111_1110, 4, "4-7"),
        (NVLINK, 0b1101_1110, 4, "1-3,4"),
        (CROSSED, 0b1111_1111, 2, "0,4"),
        (CROSSED, 0b1111_1100, 2, "2-3"),
    ],
)
def test_close_gpus_are_chosen(layout: GpuLayout, free: int, count: int, chosen: str) -> None:
    assert gpus_text(packed(layout, free, count)) == chosen.replace("1-3,4", "1-4")


@given(layout=st.sampled_from([TREE, NVLINK, CROSSED]), free=st.integers(1, 255), data=st.data())
def test_no_other_gpus_have_a_closer_farthest_link(layout: GpuLayout, free: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, free.bit_count()))
    chosen = packed(layout, free, count)
    assert chosen & ~free == 0
    assert chosen.bit_count() == count
    if count > 1:
        others = [sum(1 << gpu for gpu in gpus) for gpus in combinations(indices(free), count)]
        assert layout.farthest(chosen) == min(map(layout.farthest, others))  # type: ignore[type-var]


def test_links_and_speeds_of_a_layout() -> None:
    layout = replace(NVLINK, nvlink_gbyte_s=50.0, between_sockets_gbyte_s=8.0)
    assert [layout.link(0, other) for other in (1, 3, 4)] == [Link.NVLINK, Link.NVLINK, Link.BETWEEN_SOCKETS]
    assert [TREE.link(0, other) for other in (1, 3, 4)] == [Link.SWITCH, Link.SOCKET, Link.BETWEEN_SOCKETS]
    assert [layout.gbyte_s(link) for link in Link] == [50.0, None, None, 8.0]
    assert layout.farthest(0b1) is None
    with pytest.raises(ValueError, match="3 GPUs of 2 free ones"):
        packed(TREE, 0b11, 3)


def state_of(*jobs: Job, masks: list[int], nodes: int = 2) -> ClusterState:
    seen = cluster([Node()] * nodes, jobs)
    known = replace(seen.jobs, placement_gpu_mask=np.array(masks, dtype=np.uint64))
    rows = np.zeros(nodes, dtype=np.int64)
    return replace(seen, jobs=known, nodes=replace(seen.nodes, gpu_layout=rows), gpu_layouts=(TREE,))


@pytest.mark.parametrize("name", ["fifo-skip", "backfill"])
def test_a_policy_names_the_gpus_of_the_jobs_that_it_starts(name: str) -> None:
    state = state_of(Job(gpus=1, occupied={0: 1}), Job(gpus=2), Job(gpus=3), Job(gpus=8), masks=[0b10])
    policy = load_policy(name, {"gpus": "packed"})
    assert policy.spec.exact_gpus
    assert rule_of(policy) is None, "the rule alone names no GPUs, so a simulator must ask the policy"
    decision = policy.decide(state)
    assert decision.allocation == {
        0: Placement((0,), (1,)),
        1: Placement((0,), (2,), gpu_masks=(0b1100,)),
        2: Placement((0,), (3,), gpu_masks=(0b111_0000,)),
        3: Placement((1,), (8,), gpu_masks=(0b1111_1111,)),
    }
    assert decision.reasons[1].endswith("; its GPUs are below one PCIe switch")
    assert decision.reasons[3].endswith("; its GPUs are on several sockets")


@pytest.mark.parametrize("name", ["fifo-skip", "backfill"])
def test_by_default_policies_only_count(name: str) -> None:
    policy = load_policy(name)
    assert rule_of(policy) is not None
    assert not policy.spec.exact_gpus
    with pytest.raises(PolicyLoadError, match="gpus is 'nearest'; give any or packed"):
        load_policy(name, {"gpus": "nearest"})


def test_nothing_is_named_where_it_is_not_known_what_is_free() -> None:
    unknown = state_of(Job(gpus=1, occupied={0: 1}), Job(gpus=2), masks=[0])
    assert _named(unknown) == Placement((0,), (2,))
    foreign = replace(unknown, nodes=replace(unknown.nodes, foreign_gpus=np.array([0, 1])))
    assert _named(replace(foreign, jobs=foreign.jobs.stopped(0)), row=1) == Placement((1,), (2,))
    masks = np.array([0, 1], dtype=np.uint64)
    known = replace(foreign, nodes=replace(foreign.nodes, foreign_gpu_mask=masks))
    assert _named(replace(known, jobs=known.jobs.stopped(0)), row=1) == Placement((1,), (2,), gpu_masks=(0b1100,))
    assert _named(replace(unknown, nodes=replace(unknown.nodes, gpu_layout=None), gpu_layouts=())) == Placement(
        (0,), (2,)
    )


def _named(state: ClusterState, row: int = 1) -> Placement:
    decision: Decision = load_policy("fifo-skip", {"gpus": "packed"}).decide(state)
    return decision.allocation[row]
