"""CASSINI's choice among placements in cases computed by hand, its scores against the links, and that every decision is valid."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings

from policies.heuristics.baselines.cassini import Cassini
from policies.model import ClusterState, Placement
from policies.speeds.interleaving.link_fit import LinkFit
from tests.unit.policies.states.cluster import Job, Node, states
from tests.unit.policies.states.profiled import LOUD, QUIET, state_of
from tests.unit.policies.states.valid import check

HALF, FEW = LOUD, QUIET


def world(nodes: int, jobs: list[tuple[Job, int]], rack: list[int] | None = None) -> ClusterState:
    """Jobs on NICs of 10 GB/s: HALF computes for 1 s and sends for 1 s on two nodes, FEW computes for 9 s and sends for 1 s."""
    state = state_of([Node(gpus=2)] * nodes, jobs, rack=rack)
    assert state.profiles is not None
    profiles = dataclasses.replace(
        state.profiles, compute_s=np.array([1.0, 9.0]), bytes_per_step=np.array([1e10, 1e10])
    )
    return dataclasses.replace(
        state, profiles=profiles, nodes=dataclasses.replace(state.nodes, uplink_gbyte_s=np.full(nodes, 10.0))
    )


def beside(*where: int, estimate_s: float = 1e6) -> Job:
    return Job(gpus=len(where), occupied=dict.fromkeys(where, 1), estimate_s=estimate_s)


def full(node: int) -> Job:
    return Job(gpus=1, occupied={node: 1}, estimate_s=1e6)


def test_two_jobs_that_send_half_of_their_time_fit_on_a_link_and_three_do_not() -> None:
    pair = Placement((0, 1), (1, 1))
    state = world(2, [(beside(0, 1), HALF), (Job(gpus=2), HALF), (Job(gpus=2), HALF)])
    links = LinkFit(state, {0: pair})
    assert links.score(1, pair, least=False) == 1.0
    links.add(1, pair)
    assert links.score(2, pair, least=False) == pytest.approx(0.5)
    assert links.score(2, Placement((0,), (2,)), least=True) == 1.0
    links.remove(1)
    assert links.score(2, pair, least=True) == 1.0
    assert links.crowd(0) == 1 and links.crowd(5) == 0


def test_the_score_is_of_all_links_that_are_connected() -> None:
    """A third on the links 0 and 1 gets 1/2 there; its other link 2 is shared with one that fits."""
    state = world(4, [(beside(0, 1), HALF), (beside(0, 1), HALF), (beside(2, 3), HALF), (Job(gpus=2), HALF)])
    links = LinkFit(state, {0: Placement((0, 1), (1, 1)), 1: Placement((0, 1), (1, 1)), 2: Placement((2, 3), (1, 1))})
    crossing = Placement((1, 2), (1, 1))
    assert links.score(3, crossing, least=True) == pytest.approx(0.5)
    mean = links.score(3, crossing, least=False)
    assert mean is not None and 0.5 < mean < 1.0


def test_a_loop_of_links_is_discarded() -> None:
    state = world(3, [(beside(0, 1), HALF), (beside(1, 2), HALF), (Job(gpus=2), HALF)])
    links = LinkFit(state, {0: Placement((0, 1), (1, 1)), 1: Placement((1, 2), (1, 1))})
    assert links.score(2, Placement((0, 2), (1, 1)), least=False) is None
    assert links.score(2, Placement((0, 1), (1, 1)), least=False) is not None


CROWDED = [
    *[(beside(0, 1), HALF), (beside(0, 1), HALF)],
    *[(beside(2, 3), HALF)],
]


def test_a_job_goes_where_its_sending_fits_between_that_of_others() -> None:
    """Four nodes of three GPUs: one GPU is free on nodes 0 and 1, which two jobs share, and two on nodes 2 and 3, which one has."""
    state = world(4, [*CROWDED, (full(2), FEW), (full(3), FEW), (Job(gpus=2, estimate_s=10.0), HALF)])
    wide = dataclasses.replace(state, nodes=dataclasses.replace(state.nodes, gpus=np.full(4, 3)))
    for score in ("mean", "least"):
        decision = Cassini(order="fifo", score=score).decide(wide)
        assert decision.allocation[5] == Placement((2, 3), (1, 1))
        assert decision.reasons[5] == "interleaved: 2 GPUs on 2 nodes, n2 to n3"


def test_equal_scores_and_a_single_candidate_go_to_best_fit() -> None:
    state = world(4, [*CROWDED, (full(2), FEW), (full(3), FEW), (Job(gpus=2, estimate_s=10.0), HALF)])
    wide = dataclasses.replace(state, nodes=dataclasses.replace(state.nodes, gpus=np.full(4, 3)))
    first = Cassini(order="fifo", candidates=1).decide(wide).allocation[5]
    assert first == Placement((0, 1), (1, 1))
    assert Cassini(order="fifo").decide(world(2, [(Job(gpus=2), HALF)])).allocation[0] == Placement((0,), (2,))


def test_a_placement_on_which_the_job_alone_is_much_slower_is_no_candidate() -> None:
    """Beside one job on nodes 0 and 1 the score is lower; two racks would fit, but their uplinks are slow."""
    jobs = [
        (beside(0, 1), HALF),
        (beside(0, 1), HALF),
        (full(2), FEW),
        (full(3), FEW),
        (Job(gpus=2, estimate_s=9.0), HALF),
    ]
    state = world(4, jobs, rack=[0, 0, 1, 2])
    nodes = dataclasses.replace(state.nodes, gpus=np.array([3, 3, 2, 2]), uplink_gbyte_s=np.full(4, 5.0))
    slow = dataclasses.replace(state, nodes=nodes)
    assert Cassini(order="fifo").decide(slow).allocation[4] == Placement((0, 1), (1, 1))
    assert Cassini(order="fifo", slack=1.0).decide(slow).allocation[4] == Placement((2, 3), (1, 1))


def test_orders_and_options_are_checked() -> None:
    assert Cassini(order="las", round_s=60.0).spec.round_s == 60.0
    assert Cassini(order="fifo").spec.needs == {"profile"}
    assert Cassini().spec.needs == {"profile", "duration_estimate"}
    with pytest.raises(ValueError, match="order is 'sjf'"):
        Cassini(order="sjf")
    with pytest.raises(ValueError, match="score is 'best'"):
        Cassini(score="best")
    with pytest.raises(ValueError, match="candidates is 0"):
        Cassini(candidates=0)


def test_a_shorter_job_stops_a_longer_one() -> None:
    state = world(1, [(Job(gpus=2, occupied={0: 2}, estimate_s=1e6), HALF), (Job(gpus=2, estimate_s=10.0), HALF)])
    assert set(Cassini().decide(state).allocation) == {1}
    assert set(Cassini(order="fifo").decide(state).allocation) == {0}


@given(states(max_jobs=10))
@settings(max_examples=40, deadline=None)
def test_every_decision_is_valid(state: ClusterState) -> None:
    policy = Cassini()
    decision = policy.decide(state)
    assert policy.decide(state) == decision
    check(state, decision, policy.spec)
