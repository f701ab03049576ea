"""Placements of jobs: the rules one by one, and the effects of taking and freeing resources."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.model import ClusterState, Placement, Split
from policies.placement.best_fit import Capacity, explain, placement_of
from policies.placement.requests import Requests
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.reference import Cluster


def place(nodes: list[Node], job: Job, *others: Job) -> dict[int, int] | None:
    """The placement of the job beside those that run."""
    placement = Capacity(cluster(nodes, [*others, job])).place(len(others))
    return None if placement is None else dict(placement.items())


def test_small_job_goes_to_the_fitting_node_with_fewest_free_gpus() -> None:
    running = Job(gpus=9, occupied={0: 2, 1: 5, 2: 2})
    assert place([Node()] * 3, Job(gpus=3), running) == {1: 3}


def test_lowest_index_wins_ties() -> None:
    assert place([Node()] * 3, Job(gpus=3), Job(gpus=10, occupied={0: 6, 1: 2, 2: 2})) == {1: 3}


def test_large_job_takes_whole_empty_nodes_and_best_fit_for_the_remainder() -> None:
    running = Job(gpus=8, occupied={0: 1, 2: 3, 4: 4})
    assert place([Node()] * 5, Job(gpus=20), running) == {1: 8, 3: 8, 4: 4}


def test_remainder_takes_a_node_of_its_own() -> None:
    assert place([Node()] * 2, Job(gpus=20)) is None
    assert place([Node()] * 3, Job(gpus=20)) == {0: 8, 1: 8, 2: 4}


def test_job_that_would_fit_when_scattered_waits() -> None:
    assert place([Node()] * 2, Job(gpus=8), Job(gpus=2, occupied={0: 1, 1: 1})) is None


def test_more_nodes_asked_for_than_needed_spreads_evenly() -> None:
    assert place([Node()] * 3, Job(gpus=7, min_nodes=3)) == {0: 3, 1: 2, 2: 2}


def test_number_of_nodes_that_no_whole_nodes_give_is_spread_too() -> None:
    # Of nodes of 4 it would take two, of nodes of 2 four; three are asked for.
    assert place([Node(gpus=2), Node(gpus=2), Node(gpus=4)], Job(gpus=7, min_nodes=3, max_nodes=3)) == {
        0: 2,
        1: 2,
        2: 3,
    }


def test_fewer_nodes_allowed_than_needed_is_impossible() -> None:
    assert place([Node()] * 3, Job(gpus=16, max_nodes=1)) is None


def test_fixed_split_is_best_fit_for_each_share() -> None:
    running = Job(gpus=6, occupied={1: 4, 2: 2})
    assert place([Node()] * 4, Job(gpus=8, split=Split.FIXED, min_nodes=2), running) == {1: 4, 2: 4}


def test_fixed_split_of_whole_nodes_takes_the_lowest_empty_ones() -> None:
    running = Job(gpus=1, occupied={1: 1})
    assert place([Node()] * 4, Job(gpus=16, split=Split.FIXED, min_nodes=2), running) == {0: 8, 2: 8}


@pytest.mark.parametrize(
    ("gpus", "low", "high", "expected"),
    [
        (12, 1, 4, {0: 6, 1: 6}),
        (8, 1, 4, {0: 8}),
        (9, 1, 4, {0: 3, 1: 3, 2: 3}),
        (8, 2, 4, {0: 4, 1: 4}),
        (6, 4, 5, None),
        (22, 1, 4, None),
    ],
)
def test_even_split_takes_the_fewest_nodes_that_divide(
    gpus: int, low: int, high: int, expected: dict[int, int] | None
) -> None:
    job = Job(gpus=gpus, split=Split.EVEN, min_nodes=low, max_nodes=high)
    assert place([Node()] * 4, job) == expected


def test_even_split_waits_for_its_division_rather_than_spread() -> None:
    # 6 + 6 is what an empty cluster would give; 4 + 4 + 4 would fit now.
    running = Job(gpus=9, occupied={0: 3, 1: 3, 2: 3})
    assert place([Node()] * 3, Job(gpus=12, split=Split.EVEN), running) is None


def test_unavailable_nodes_and_foreign_use_are_left_alone() -> None:
    nodes = [Node(available=False), Node(foreign_gpus=5), Node()]
    assert place(nodes, Job(gpus=3)) == {1: 3}
    assert place(nodes, Job(gpus=4)) == {2: 4}


def test_only_nodes_of_the_node_set_are_used() -> None:
    assert place([Node()] * 3, Job(gpus=2, nodes=frozenset({2}))) == {2: 2}
    assert place([Node()] * 3, Job(gpus=16, nodes=frozenset({2}))) is None
    assert place([Node()] * 3, Job(gpus=2, nodes=frozenset())) is None


def test_exclusive_job_needs_empty_nodes_and_nothing_fits_beside_it() -> None:
    nodes = [Node(foreign_cpus=1), Node(), Node()]
    exclusive, other = Job(gpus=2, exclusive=True), Job(gpus=1)
    state = cluster(nodes, [Job(gpus=1, occupied={1: 1}), exclusive, exclusive, other])
    capacity = Capacity(state)
    placement = capacity.place(1)
    assert placement == Placement((2,), (2,))
    capacity.take(1, placement)
    assert capacity.free_gpus(2) == 0
    assert capacity.place(2) is None
    assert capacity.place(3) == Placement((1,), (1,))
    capacity.give_back(1, placement)
    assert capacity.place(2) == placement


def test_cpus_and_memory_limit_where_they_are_known() -> None:
    nodes = [Node(cpus=8), Node(cpus=32, memory_mib=1000), Node(memory_mib=4000), Node()]
    assert place(nodes, Job(gpus=4, cpus_per_gpu=2)) == {0: 4}
    assert place(nodes, Job(gpus=4, cpus_per_gpu=4)) == {1: 4}
    assert place(nodes, Job(gpus=4, cpus_per_gpu=4, memory_mib_per_gpu=500)) == {2: 4}
    assert place(nodes, Job(gpus=4, cpus_per_gpu=9, memory_mib_per_gpu=1500)) == {3: 4}


def test_cpus_of_other_jobs_count() -> None:
    running = Job(gpus=2, occupied={0: 2}, cpus_per_gpu=3)
    assert place([Node(cpus=8)] * 2, Job(gpus=2, cpus_per_gpu=2), running) == {1: 2}
    assert place([Node(cpus=8, foreign_cpus=5)], Job(gpus=2, cpus_per_gpu=2)) is None


def test_fractions_of_cpus_add_up() -> None:
    # 16 CPUs over 3 GPUs do not divide evenly in floating point; they still fit a node of 16 CPUs.
    assert place([Node(cpus=16)], Job(gpus=3, cpus_per_gpu=16 / 3)) == {0: 3}


def test_cpus_limit_the_share_of_a_large_job_on_a_node() -> None:
    assert place([Node(cpus=16)] * 3, Job(gpus=8, cpus_per_gpu=4)) == {0: 4, 1: 4}


def test_different_nodes_make_different_whole_nodes() -> None:
    nodes = [Node(gpus=4), Node(gpus=8), Node(gpus=4), Node(gpus=4)]
    assert place(nodes, Job(gpus=8)) == {1: 8}
    # Two nodes of 8 there are not, so the job is made of nodes of 4.
    assert place(nodes, Job(gpus=16)) == {0: 4, 1: 4, 2: 4, 3: 4}


def test_a_job_class_that_failed_is_tried_again_after_resources_come_free() -> None:
    state = cluster([Node()], [Job(gpus=8, occupied={0: 8}), Job(gpus=4), Job(gpus=4)])
    capacity = Capacity(state)
    assert capacity.place(1) is None
    capacity.give_back(0, Placement((0,), (8,)))
    assert capacity.place(1) == capacity.place(2) == Placement((0,), (4,))


def test_copies_of_the_capacity_are_independent() -> None:
    state = cluster([Node()], [Job(gpus=8), Job(gpus=8)])
    capacity = Capacity(state)
    twin = capacity.copy()
    placement = twin.place(0)
    assert placement is not None
    twin.take(0, placement)
    assert twin.place(1) is None
    assert capacity.place(1) == placement
    assert (capacity.total_free(), twin.total_free()) == (8, 0)


def test_reasons_are_short_sentences() -> None:
    state = cluster([Node()] * 3, [Job(gpus=6, occupied={1: 6}), Job(gpus=2), Job(gpus=16)])
    capacity = Capacity(state)
    assert explain(state, capacity.fit(Placement((1,), (2,)))) == "best fit: node n1 had 2 GPUs free"
    assert explain(state, ((1, 1, 1),)) == "best fit: node n1 had 1 GPU free"
    assert explain(state, capacity.fit(Placement((0, 2), (8, 8)))) == "consolidated: 16 GPUs on 2 nodes, n0 to n2"


@settings(max_examples=80)
@given(state=states(), data=st.data())
def test_every_step_agrees_with_a_new_count(state: ClusterState, data: st.DataObject) -> None:
    """The next placement depends only on the present jobs, not on resources that were taken and given back before."""
    reference, requests = Cluster(state), Requests(state)
    capacity = Capacity(state, requests=requests)
    occupied = {job: reference.own_place(job) for job in state.running.tolist()}
    for _ in range(data.draw(st.integers(0, 12))):
        if not len(state.jobs):
            return
        job = data.draw(st.integers(0, len(state.jobs) - 1))
        if job in occupied:
            capacity.give_back(job, Placement.of(occupied.pop(job)))
            continue
        wanted = reference.place(job, occupied)
        got = capacity.place(job)
        assert (None if got is None else dict(got.items())) == wanted
        if got is not None:
            capacity.take(job, got)
            occupied[job] = wanted
        for node in range(len(state.nodes)):
            assert capacity.free_gpus(node) == reference.free(node, occupied)[0]


@settings(max_examples=80)
@given(state=states(), strict=st.booleans(), data=st.data())
def test_claiming_several_jobs_equals_placing_them_one_by_one(
    state: ClusterState, strict: bool, data: st.DataObject
) -> None:
    rows = data.draw(st.permutations(state.pending.tolist()))
    one_by_one, at_once = Capacity(state), Capacity(state)
    placed = {}
    for row in rows:
        placement = one_by_one.place(row)
        if placement is not None:
            placed[row] = (placement, sorted(one_by_one.fit(placement)))
            one_by_one.take(row, placement)
        elif strict:
            break
    fits = at_once.claim(rows, strict=strict)
    assert {row: (placement_of(fit), sorted(fit)) for row, fit in fits.items()} == placed
    # What is free, and what was found not to fit, is the same from here on too.
    assert [at_once.free_gpus(node) for node in range(len(state.nodes))] == [
        one_by_one.free_gpus(node) for node in range(len(state.nodes))
    ]
    assert [at_once.place(row) for row in rows] == [one_by_one.place(row) for row in rows]
    for row, (placement, _) in placed.items():
        one_by_one.give_back(row, placement)
        at_once.give_back(row, placement)
    assert [at_once.place(row) for row in rows] == [one_by_one.place(row) for row in rows]


@settings(max_examples=60)
@given(state=states())
def test_jobs_share_a_class_exactly_when_they_ask_for_the_same(state: ClusterState) -> None:
    jobs, keys = state.jobs, Requests(state).keys
    asked = [
        tuple(
            getattr(jobs, name)[row].item()
            for name in (
                "num_gpus",
                "split",
                "min_nodes",
                "max_nodes",
                "gpus_per_node",
                "cpus_per_gpu",
                "memory_mib_per_gpu",
                "exclusive",
                "node_set",
            )
        )
        for row in range(len(jobs))
    ]
    for first in range(len(jobs)):
        for second in range(first):
            assert (keys[first] == keys[second]) == (asked[first] == asked[second])


def test_classes_stay_distinct_when_columns_need_more_than_64_bits() -> None:
    wide = [
        Job(gpus=2**20 - 1 - row, min_nodes=1 + row % 1000, max_nodes=2**20 - row, memory_mib_per_gpu=float(row))
        for row in range(3000)
    ]
    state = cluster([Node()], [*wide, *wide])
    keys = Requests(state).keys
    assert len(set(keys)) == 3000
    assert keys[:3000] == keys[3000:]
