"""The value of an assignment, and that the search finds better ones than the order alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.learned.headway_rl.search import Assignment, Search, Terms
from policies.model import ClusterState
from policies.placement.best_fit import Capacity
from policies.selection import present_placements
from policies.speeds.contention_model import ContentionModel
from tests.unit.policies.states.cluster import Job, Node, states
from tests.unit.policies.states.profiled import LOUD, QUIET, state_of

TERMS = Terms(bulk=1.0, threshold=0.3, stop=0.02)


def search_of(state: ClusterState, values: list[float], terms: Terms = TERMS) -> Search:
    """Return a problem in which all running jobs may be stopped."""
    none = state.running[:0]
    model = ContentionModel(state, job_values=values, staying=none)
    own = present_placements(state, state.running)
    return Search(Capacity(state, staying=none), model, own, values, terms)


def worth(state: ClusterState, layout: Assignment, values: list[float], terms: Terms = TERMS) -> float:
    """Compute the value anew from its definition."""
    model = ContentionModel(state, staying=state.running[:0])
    for row, placement in layout.placed.items():
        model.add(row, placement)
    own = present_placements(state, state.running)
    disturbed = [row for row in own if layout.placed.get(row) != own[row]]
    return sum(values[row] * model.speed(row) for row in layout.placed) - terms.stop * sum(
        values[row] for row in disturbed
    )


@settings(max_examples=60, deadline=None)
@given(state=states(), data=st.data())
def test_the_value_of_a_layout_is_exact_and_the_search_only_improves_it(
    state: ClusterState, data: st.DataObject
) -> None:
    count = len(state.jobs)
    values = data.draw(st.lists(st.floats(0.1, 10.0), min_size=count, max_size=count))
    preemptible = state.jobs.preemptible[state.running].all()
    capacity = Capacity(state, staying=state.running[:0])
    own = present_placements(state, state.running)
    if not preemptible or not all(capacity.can_place_again(row, own[row]) for row in own):
        return
    search = search_of(state, values)
    rows = list(range(count))
    first = search.assign([], search.order(rows))
    best = search.best([], rows, 400)
    for layout in (first, best):
        assert layout.total == pytest.approx(worth(state, layout, values))
    assert best.total >= first.total
    assert search.best([], rows, 0) == first


def test_the_search_finds_the_best_set_of_jobs_that_do_not_disturb_each_other() -> None:
    """With single-node jobs on one node the problem is a knapsack, and the test tries all sets."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(30):
        gpus = rng.integers(1, 9, 7).tolist()
        values = rng.uniform(0.5, 4.0, 7).tolist()
        state = state_of([Node()], [(Job(gpus=count, estimate_s=60.0), QUIET) for count in gpus])
        sets = [
            rows
            for size in range(8)
            for rows in itertools.combinations(range(7), size)
            if sum(gpus[row] for row in rows) <= 8
        ]
        most = max(sum(values[row] for row in rows) for rows in sets)
        search = search_of(state, values)
        found.append(search.best([], list(range(7)), 600).total / most)
        assert search.best([], list(range(7)), 600).total >= search.best([], list(range(7)), 0).total
    assert float(np.mean(found)) > 0.98
    assert sum(share > 0.9999 for share in found) >= 24


def test_the_mutual_slowdown_of_two_jobs_counts() -> None:
    """Two jobs of twelve GPUs on three nodes would share one: the second waits if both communicate a lot, and starts otherwise."""
    jobs = [Job(gpus=12, estimate_s=60.0)] * 2
    loud = search_of(state_of([Node()] * 3, [(job, LOUD) for job in jobs]), [1.0, 1.0]).best([], [0, 1], 100)
    assert set(loud.placed) == {0}
    assert loud.deferred[1].net < TERMS.threshold
    quiet = search_of(state_of([Node()] * 3, [(job, QUIET) for job in jobs]), [1.0, 1.0]).best([], [0, 1], 100)
    assert set(quiet.placed) == {0, 1}


def test_orders_are_by_value_per_gpu_and_running_jobs_have_the_cost_of_a_stop_in_their_favour() -> None:
    jobs = [Job(gpus=2, estimate_s=60.0), Job(gpus=1, estimate_s=60.0), Job(gpus=1, occupied={0: 1}, estimate_s=60.0)]
    state = state_of([Node()], [(job, QUIET) for job in jobs])
    assert search_of(state, [1.9, 1.0, 0.99]).order([0, 1, 2]) == [2, 1, 0]
    assert search_of(state, [1.9, 1.0, 0.97]).order([0, 1, 2]) == [1, 2, 0]
    assert search_of(state, [1.9, 1.0, 0.9], Terms(0.0, 0.3, 0.02)).order([0, 1, 2]) == [0, 1, 2]
