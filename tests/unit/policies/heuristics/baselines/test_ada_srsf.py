"""Ada-SRSF: its order, LWF-k and AdaDUAL in cases computed by hand, and that every decision is valid."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from policies.heuristics.baselines.ada_srsf import AdaSrsf
from policies.model import ClusterState, Placement, Split
from tests.unit.policies.states.cluster import Job, Node, states
from tests.unit.policies.states.profiled import LOUD, QUIET, UNKNOWN, state_of
from tests.unit.policies.states.valid import check


def placed(state: ClusterState, row: int, **options: float) -> Placement | None:
    return AdaSrsf(**options).decide(state).allocation.get(row)  # type: ignore[arg-type] # options by name


RUNS = Job(gpus=12, occupied={0: 8, 1: 4}, estimate_s=1500.0, service_s=500.0)
"""Has 1,000 s left, on both NICs."""


@pytest.mark.parametrize(
    ("left_s", "starts"), [(400.0, True), (499.0, True), (500.0, False), (900.0, False), (3000.0, False)]
)
def test_a_job_shares_a_link_if_it_has_less_than_half_to_send_of_what_the_other_has(
    left_s: float, starts: bool
) -> None:
    state = state_of([Node()] * 3, [(RUNS, LOUD), (Job(gpus=12, estimate_s=left_s), LOUD)])
    decision = AdaSrsf().decide(state)
    assert decision.allocation[0] == Placement((0, 1), (8, 4))
    if starts:
        assert decision.allocation[1] == Placement((1, 2), (4, 8))
        assert decision.reasons[1] == "least work: 12 GPUs on 2 nodes, n1 to n2"
    else:
        assert 1 not in decision.allocation
        assert decision.reasons[1] == "deferred: it would share a link with a job that has not much more to send"


def test_what_counts_is_what_jobs_send_not_how_long_they_run() -> None:
    """1 MB in a step of 1 s against 10 GB in steps of 1.2 s: it may run ten times as long."""
    state = state_of([Node()] * 3, [(RUNS, LOUD), (Job(gpus=12, estimate_s=10_000.0), QUIET)])
    assert placed(state, 1) == Placement((1, 2), (4, 8))


def test_the_threshold_is_an_option() -> None:
    state = state_of([Node()] * 3, [(RUNS, LOUD), (Job(gpus=12, estimate_s=400.0), LOUD)])
    assert placed(state, 1, threshold=0.0) is None
    assert placed(state, 1, threshold=0.39) is None
    assert placed(state, 1, threshold=0.41) is not None
    with pytest.raises(ValueError, match="threshold is -1"):
        AdaSrsf(threshold=-1)


def test_no_job_is_the_third_on_a_link() -> None:
    pair = Job(gpus=6, occupied={0: 3, 1: 3}, estimate_s=1e6)
    state = state_of([Node()] * 2, [(pair, LOUD), (pair, LOUD), (Job(gpus=4, estimate_s=1.0), LOUD)])
    assert AdaSrsf().decide(state).reasons[2] == "deferred: it would be the third job on a link"
    alone = state_of([Node()] * 2, [(pair, LOUD), (pair, LOUD), (Job(gpus=2, estimate_s=1.0), LOUD)])
    assert placed(alone, 2) == Placement((0,), (2,))  # on one node it uses no link


def test_small_jobs_go_to_the_node_with_the_least_work_that_holds_them() -> None:
    """n0 has 4 GPUs x 100 s of work, n1 has 1 x 100 s; best fit would take n0."""
    busy = [
        (Job(gpus=4, occupied={0: 4}, estimate_s=100.0), QUIET),
        (Job(gpus=1, occupied={1: 1}, estimate_s=100.0), QUIET),
    ]
    assert placed(state_of([Node()] * 2, [*busy, (Job(gpus=2, estimate_s=9.0), QUIET)]), 2) == Placement((1,), (2,))
    two = [(Job(gpus=4, estimate_s=9.0), QUIET), (Job(gpus=2, estimate_s=40.0), QUIET)]
    decision = AdaSrsf().decide(state_of([Node()] * 2, [*busy, *two]))
    assert decision.allocation[2] == Placement((1,), (4,))
    assert decision.allocation[3] == Placement((1,), (2,))  # 100 + 36 is still less than 400


def test_jobs_of_at_most_k_gpus_take_them_one_by_one() -> None:
    """Work 30 and 60; the job itself brings 50 for each GPU: n0 first, then n1, where 60 < 30 + 50."""
    jobs = [
        (Job(occupied={0: 1}, estimate_s=30.0), QUIET),
        (Job(occupied={1: 1}, estimate_s=60.0), QUIET),
        (Job(gpus=2, estimate_s=50.0), QUIET),
    ]
    state = state_of([Node()] * 2, jobs)
    assert placed(state, 2, k=1) == Placement((0,), (2,))
    assert placed(state, 2, k=2) == Placement((0, 1), (1, 1))


def test_larger_jobs_take_all_of_the_nodes_with_the_least_work() -> None:
    jobs = [
        (Job(gpus=2, occupied={0: 2}, estimate_s=10.0), QUIET),
        (Job(gpus=1, occupied={2: 1}, estimate_s=90.0), QUIET),
        (Job(gpus=15, estimate_s=5000.0), QUIET),
    ]
    # n1 has no work, n0 20 GPU-seconds, n2 90
    assert placed(state_of([Node()] * 3, jobs), 2) == Placement((0, 1, 2), (6, 8, 1))


def test_a_shorter_job_stops_a_longer_one() -> None:
    jobs = [(Job(gpus=8, occupied={0: 8}, estimate_s=1000.0), QUIET), (Job(gpus=8, estimate_s=10.0), QUIET)]
    decision = AdaSrsf().decide(state_of([Node()], jobs))
    assert set(decision.allocation) == {1} and decision.reasons[0].startswith("stopped")


def test_no_job_is_stopped_for_one_that_its_links_refuse() -> None:
    """The second would need the last node, but has 80 s to send beside one with 100 s."""
    jobs = [
        (Job(gpus=10, occupied={0: 5, 1: 5}, estimate_s=100.0), LOUD),
        (Job(gpus=12, estimate_s=80.0), LOUD),
        (Job(gpus=8, occupied={2: 8}, estimate_s=1000.0), LOUD),
    ]
    assert set(AdaSrsf().decide(state_of([Node()] * 3, jobs)).allocation) == {0, 2}
    jobs[1] = (Job(gpus=12, estimate_s=40.0), LOUD)
    assert set(AdaSrsf().decide(state_of([Node()] * 3, jobs)).allocation) == {0, 1}


def test_a_job_without_an_estimate_comes_last_and_shares_no_link() -> None:
    unknown = Job(gpus=12, occupied={0: 8, 1: 4})
    state = state_of([Node()] * 3, [(unknown, LOUD), (Job(gpus=12), UNKNOWN), (Job(gpus=1), QUIET)])
    decision = AdaSrsf().decide(state)
    assert set(decision.allocation) == {0, 2}
    known = state_of([Node()] * 3, [(unknown, LOUD), (Job(gpus=12, estimate_s=100.0), LOUD)])
    assert placed(known, 1) is not None


def test_a_job_that_must_be_divided_evenly_gets_a_consolidated_placement() -> None:
    even = Job(gpus=8, split=Split.EVEN, min_nodes=2, max_nodes=2, estimate_s=10.0)
    busy = Job(gpus=4, occupied={0: 4}, estimate_s=10.0)
    assert placed(state_of([Node()] * 3, [(busy, QUIET), (even, QUIET)]), 1) == Placement((0, 1), (4, 4))


@given(states(max_jobs=10))
@settings(max_examples=60)
def test_every_decision_is_valid(state: ClusterState) -> None:
    policy = AdaSrsf(k=2)
    decision = policy.decide(state)
    assert policy.decide(state) == decision
    check(state, decision, policy.spec)
