"""Optimus decides as if it computed everything anew at every try, although it reuses results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.heuristics.allocation.optimus import Optimus, allot
from policies.model import ClusterState, Placement, Split
from policies.placement.best_fit import Capacity, free_gpus, placement_of
from policies.placement.requests import Requests
from policies.placement.rules import ANYWHERE, BEST_FIT, PlacementRule
from policies.selection import present_placements
from policies.speeds.worker_scaling import fitted
from tests.unit.policies.states.cluster import Job, Node, cluster, states

STARTED_S = 500.0


@st.composite
def elastic_states(draw: st.DrawFn) -> ClusterState:
    """Small clusters; some jobs take ranges of sizes, some of those that run are young."""
    state = draw(states(max_jobs=10))
    jobs = state.jobs
    low, high = jobs.num_gpus.copy(), jobs.num_gpus.copy()
    start = np.where(np.isnan(jobs.start_time_s), np.nan, STARTED_S)
    for row in range(len(jobs)):
        if jobs.split[row] != Split.FIXED and draw(st.booleans()):
            low[row] -= draw(st.integers(0, int(low[row]) - 1))
            high[row] += draw(st.integers(0, 6))
        start[row] += draw(st.sampled_from([0.0, 0.0, 500.0]))
    if len(jobs):
        jobs = replace(jobs, min_gpus=low, max_gpus=high, start_time_s=start)
    return replace(state, jobs=jobs, time_s=STARTED_S + 1000)


def straight(state: ClusterState, placing: PlacementRule) -> dict[int, Placement]:
    """The rules in the policy's docstring, each try computed anew."""
    jobs = state.jobs
    own = present_placements(state, state.running)
    least, most = (np.where(jobs.split == Split.FIXED, jobs.num_gpus, column).tolist() for column in jobs.sizes)
    a, b = fitted(state)
    known = np.isfinite(state.remaining_s)
    usual = np.median(state.remaining_s[known]) if known.any() else 1.0
    gains = (np.where(known, state.remaining_s, usual) * jobs.num_gpus / (a + b * jobs.num_gpus) * a).tolist()
    kept = {row for row in own if not jobs.preemptible[row] or state.time_s - jobs.start_time_s[row] < 600}
    refused: set[int] = set()
    tried: dict[int, int] = {}
    while True:
        order = [row for row in range(len(jobs)) if row not in kept | refused]
        free = Capacity(state, staying=np.array(sorted(kept), dtype=np.int64)).total_free()
        allotted = allot(order, least, most, gains, free)
        sizes = {row: min(size, tried.get(row, size)) for row, size in allotted.items()}
        stays = {row for row, size in sizes.items() if row in own and own[row].num_gpus == size}
        asked = jobs.num_gpus.copy()
        for row, size in sizes.items():
            asked[row] = size
        sized = replace(state, jobs=replace(jobs, num_gpus=asked))
        capacity = Capacity(sized, staying=np.array(sorted(kept | stays), dtype=np.int64))
        coming = sorted(sizes.keys() - stays, key=lambda row: (sizes[row], row))
        fits = placing.claim(capacity, coming)
        failed = set(coming) - fits.keys()
        if not failed:
            return {row: own[row] for row in kept | stays} | {row: placement_of(fit) for row, fit in fits.items()}
        for row in sorted(failed):
            if jobs.split[row] == Split.EVEN and sizes[row] > least[row]:
                tried[row] = sizes[row] - 1
                failed.remove(row)
        kept |= failed & own.keys()
        refused |= failed - own.keys()


@pytest.mark.parametrize(("layout", "placing"), [("consolidated", BEST_FIT), ("anywhere", ANYWHERE)])
@settings(max_examples=100)
@given(state=elastic_states())
def test_cached_decisions_equal_those_computed_anew(layout: str, placing: PlacementRule, state: ClusterState) -> None:
    assert Optimus(layout=layout).decide(state).allocation == straight(state, placing)


def test_of_a_long_queue_each_job_is_tried() -> None:
    """Four GPUs are free, one on each node: of twenty jobs of two and the last of one, only that one starts."""
    nodes = [Node(gpus=4)] * 4
    young = [Job(gpus=3, occupied={node: 3}, estimate_s=9, preemptible=False) for node in range(4)]
    state = cluster(nodes, [*young, *[Job(gpus=2)] * 20, Job(gpus=1)])
    assert sorted(Optimus().decide(state).allocation) == [0, 1, 2, 3, 24]


@given(state=states(), data=st.data())
def test_free_gpus_equal_the_capacity_that_is_left(state: ClusterState, data: st.DataObject) -> None:
    running = state.running.tolist()
    occupied = np.array([row for row in running if data.draw(st.booleans())], dtype=np.int64)
    assert free_gpus(state, occupied) == Capacity(state, staying=occupied).total_free()


@given(state=elastic_states(), data=st.data())
def test_requests_of_resized_jobs_equal_those_of_the_resized_state(state: ClusterState, data: st.DataObject) -> None:
    requests = Requests(state)
    for _ in range(2):
        rows = [row for row in range(len(state.jobs)) if data.draw(st.booleans())]
        sizes = {row: data.draw(st.integers(1, 12)) for row in rows}
        requests.of(rows[0]) if rows else None
        requests = requests.resized(sizes)
        fresh = Requests(requests.state)
        for row in range(len(state.jobs)):
            assert requests.state.jobs.num_gpus[row] == sizes.get(row, requests.state.jobs.num_gpus[row])
            assert requests.of(row) == fresh.of(row)
            for other in range(row):
                if requests.keys[row] == requests.keys[other]:
                    assert fresh.keys[row] == fresh.keys[other]
