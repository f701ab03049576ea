"""PAL and PM-First: nodes by hand, the jobs that get the fast ones, and that every decision is valid."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings

from policies.api import Decision
from policies.heuristics.baselines.pal import Pal, by_product, pm_first
from policies.model import ClusterState, Placement
from tests.unit.policies.states.cluster import Job, Node, states
from tests.unit.policies.states.profiled import LOUD, QUIET, UNKNOWN, state_of
from tests.unit.policies.states.valid import check


def decide(speeds: Sequence[float], jobs: Sequence[tuple[Job, int]], **options: object) -> Decision:
    """Decide on nodes of 8 GPUs of these speeds; jobs of the profile LOUD feel all of it, QUIET nothing."""
    state = state_of([Node()] * len(speeds), jobs)
    assert state.profiles is not None
    profiles = dataclasses.replace(state.profiles, speed_sensitivity=np.array([1.0, 0.0]))
    nodes = dataclasses.replace(state.nodes, gpu_speed=np.array(speeds))
    return Pal(**options).decide(dataclasses.replace(state, nodes=nodes, profiles=profiles))  # type: ignore[arg-type] # by name


ROOMS = [(0, 4), (1, 8), (2, 4)]
SLOWNESS = [1.0, 1.5, 1.0]


class TestPlacing:
    @pytest.mark.parametrize(
        ("gpus", "penalty", "shares"),
        [
            (4, 1.7, [(0, 4)]),  # 1.0 on one node
            (8, 1.7, [(1, 8)]),  # 1.5 on one node, 1.7 on two
            (8, 1.2, [(0, 4), (2, 4)]),  # 1.2 on two nodes, 1.5 on one
            (8, 1.5, [(1, 8)]),  # equal: one node comes first
            (6, 1.2, [(0, 4), (2, 2)]),
            (7, 9.0, [(1, 7)]),
            (17, 1.2, None),
        ],
    )
    def test_pal_takes_the_least_product_of_slowness_and_penalty(
        self, gpus: int, penalty: float, shares: list[tuple[int, int]] | None
    ) -> None:
        assert by_product(ROOMS, gpus, SLOWNESS, penalty) == shares

    def test_equally_fast_nodes_are_filled_up(self) -> None:
        assert by_product([(0, 8), (1, 5)], 3, [1.0, 1.0], 1.7) == [(1, 3)]

    @pytest.mark.parametrize(
        ("gpus", "shares"),
        [(2, [(0, 2)]), (3, [(2, 3)]), (5, [(2, 3), (0, 2)]), (6, [(2, 3), (0, 2), (1, 1)]), (14, None)],
    )
    def test_pm_first_takes_the_fastest_gpus(self, gpus: int, shares: list[tuple[int, int]] | None) -> None:
        assert pm_first([(0, 2), (1, 8), (2, 3)], gpus, [1.0, 1.2, 1.0]) == shares


def test_the_sensitive_job_gets_the_fast_node_though_it_comes_later() -> None:
    decision = decide([0.8, 1.0], [(Job(gpus=8), QUIET), (Job(gpus=8), LOUD)])
    assert decision.allocation == {0: Placement((0,), (8,)), 1: Placement((1,), (8,))}
    assert decision.reasons[1] == "fast nodes: 8 GPUs on node n1"
    alike = decide([0.8, 1.0], [(Job(gpus=8), LOUD), (Job(gpus=8), LOUD)])
    assert alike.allocation[0] == Placement((1,), (8,))  # in their order


def test_only_the_jobs_that_fill_the_cluster_count() -> None:
    decision = decide([0.8, 1.0], [(Job(gpus=8), QUIET), (Job(gpus=8), QUIET), (Job(gpus=8), LOUD)])
    assert set(decision.allocation) == {0, 1}
    by_time = [(Job(gpus=8, estimate_s=left_s), QUIET) for left_s in (30.0, 20.0, 10.0)]
    assert set(decide([0.8, 1.0], by_time, order="srtf").allocation) == {1, 2}


def test_a_job_that_feels_nothing_takes_the_fullest_node_whatever_its_speed() -> None:
    busy = Job(gpus=4, occupied={0: 4})
    assert decide([0.5, 1.0], [(busy, QUIET), (Job(gpus=4), QUIET)]).allocation[1] == Placement((0,), (4,))
    assert decide([0.5, 1.0], [(busy, QUIET), (Job(gpus=4), LOUD)]).allocation[1] == Placement((1,), (4,))
    assert decide([0.5, 1.0], [(busy, QUIET), (Job(gpus=4), UNKNOWN)]).allocation[1] == Placement((1,), (4,))


def test_pal_stays_on_a_slower_node_where_distance_costs_more() -> None:
    """n0 and n2 are fast and half free; n1, at 0.8 of their speed, holds all of the job: 1.25 against a penalty of 1.7."""
    busy = [(Job(gpus=4, occupied={node: 4}), QUIET) for node in (0, 2)]
    assert decide([1.0, 0.8, 1.0], [*busy, (Job(gpus=8), LOUD)]).allocation[2] == Placement((1,), (8,))
    two = Placement((0, 2), (4, 4))
    assert decide([1.0, 0.8, 1.0], [*busy, (Job(gpus=8), LOUD)], penalty=1.2).allocation[2] == two
    assert decide([1.0, 0.8, 1.0], [*busy, (Job(gpus=8), LOUD)], rule="pm-first").allocation[2] == two


def test_the_penalty_can_follow_the_profile() -> None:
    """On two nodes LOUD runs six times as slow, and feels the speed of nodes; QUIET loses nothing, and feels nothing."""
    busy = [(Job(gpus=4, occupied={node: 4}), QUIET) for node in (0, 2)]
    loud = decide([1.0, 0.2, 1.0], [*busy, (Job(gpus=8), LOUD)], penalty=0)
    assert loud.allocation[2] == Placement((1,), (8,))  # 5.0 against 6.0
    assert decide([1.0, 0.15, 1.0], [*busy, (Job(gpus=8), LOUD)], penalty=0).allocation[2] == Placement((0, 2), (4, 4))


def test_speeds_within_two_percent_count_as_equal() -> None:
    busy = Job(gpus=4, occupied={0: 4})
    assert decide([0.99, 1.0], [(busy, QUIET), (Job(gpus=4), LOUD)]).allocation[1] == Placement((0,), (4,))
    assert decide([0.97, 1.0], [(busy, QUIET), (Job(gpus=4), LOUD)]).allocation[1] == Placement((1,), (4,))


def test_running_jobs_stay_where_they_are() -> None:
    runs = Job(gpus=8, occupied={0: 8})
    assert decide([0.5, 1.0], [(runs, LOUD)]).allocation == {0: Placement((0,), (8,))}


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"penalty is 0\.5; give 1 or more"):
        Pal(penalty=0.5)
    with pytest.raises(ValueError, match="order is 'sjf'"):
        Pal(order="sjf")


@pytest.mark.parametrize("rule", ["pal", "pm-first"])
@given(state=states(max_jobs=10))
@settings(max_examples=40)
def test_every_decision_is_valid(state: ClusterState, rule: str) -> None:
    speeds = np.linspace(1.0, 0.7, len(state.nodes))
    state = dataclasses.replace(state, nodes=dataclasses.replace(state.nodes, gpu_speed=speeds))
    policy = Pal(order="las", rule=rule)
    decision = policy.decide(state)
    assert policy.decide(state) == decision
    check(state, decision, policy.spec)
