"""In a simulation of contention, a policy sees what agents would measure on a cluster."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.api import Decision
from policies.model import ClusterState, Placement
from policies.wire.messages import parse_state, serialize_state
from simulator.cluster.cluster import parse_cluster
from simulator.engine.simulation import Simulation
from simulator.slowdown.profiles.model_profiles import MeasuredInterference, ModelProfile, ModelProfiles
from simulator.slowdown.registry import build
from tests.unit.simulator.engine.build import FREE, trace_of

PAIR = {("a,8,2", "b,8,2"): 0.4, ("b,8,2", "a,8,2"): 0.8}
PROFILES = ModelProfiles(
    {"a": ModelProfile(0.1, 4e8), "b": ModelProfile(0.25, 1e8)}, PAIR, MeasuredInterference((0, 0, 0), (0, 0), 0)
)
TOGETHER = {0: Placement((0, 1), (4, 4)), 1: Placement((0, 1), (4, 4))}
APART = {0: Placement((0, 1), (4, 4)), 1: Placement((2, 3), (4, 4))}


def simulation(
    *slowdown: str, model: tuple[str, str] = ("a", "b"), profiles: ModelProfiles | None = PROFILES
) -> Simulation:
    """Two jobs of eight GPUs each, and one that waits for more than there is free."""
    cluster = parse_cluster("4x8")
    trace = trace_of((0, 8, 1000), (0, 8, 1000), (0, 32, 10), model=[*model, "a"])
    models = build(slowdown, topology=cluster.topology, profiles=PROFILES) if slowdown else None
    made = Simulation(trace, cluster, None, FREE, models, profiles)
    assert made.advance()
    return made


def placed(made: Simulation, allocation: dict[int, Placement]) -> ClusterState:
    made.state()
    made.apply(Decision(allocation))
    return made.state()


def sensitivity(state: ClusterState) -> list[float]:
    assert state.jobs.contention_sensitivity is not None
    return state.jobs.contention_sensitivity.tolist()


def test_sensitivity_is_how_much_slower_a_job_is_than_alone() -> None:
    state = placed(simulation("pair-table"), TOGETHER)
    np.testing.assert_allclose(sensitivity(state), [1 / 0.4, 1 / 0.8, math.nan])
    assert state.jobs.contention_confidence is not None
    assert state.jobs.contention_confidence.tolist() == [1.0, 1.0, 0.0]
    seen = parse_state(serialize_state(state)).jobs
    np.testing.assert_array_equal(seen.contention_sensitivity, state.jobs.contention_sensitivity)
    np.testing.assert_array_equal(seen.throughput_steps_per_s, state.jobs.throughput_steps_per_s)


def test_without_neighbours_a_job_is_undisturbed() -> None:
    assert sensitivity(placed(simulation("pair-table"), APART))[:2] == [1.0, 1.0]


def test_what_a_job_s_own_placement_costs_is_no_contention() -> None:
    """On a live cluster the ideal is what the job achieves alone on such nodes."""
    made = simulation("pair-table", "locality")
    state = placed(made, TOGETHER)
    assert [job.speed < pair for job, pair in zip(made.jobs(), (0.4, 0.8), strict=False)] == [True, True]
    np.testing.assert_allclose(sensitivity(state)[:2], [1 / 0.4, 1 / 0.8])
    assert sensitivity(placed(simulation("locality"), TOGETHER))[:2] == [1.0, 1.0]


def test_throughput_is_that_of_the_profile_at_the_present_speed() -> None:
    made = simulation("pair-table", model=("a", "unheard of"))
    state = placed(made, TOGETHER)
    assert state.jobs.throughput_steps_per_s is not None
    # Eight GPUs fit on one node at best, where nothing passes between nodes: a step computes for 0.1 s.
    job = made.jobs()[0]
    assert state.jobs.throughput_steps_per_s[0] == pytest.approx(job.speed / 0.1)
    assert np.isnan(state.jobs.throughput_steps_per_s[1:]).all()


def test_without_profiles_no_step_is_known_and_without_models_nothing_is() -> None:
    state = placed(simulation("pair-table", profiles=None), TOGETHER)
    np.testing.assert_allclose(sensitivity(state), [1 / 0.4, 1 / 0.8, math.nan])
    assert state.jobs.throughput_steps_per_s is not None
    assert np.isnan(state.jobs.throughput_steps_per_s).all()
    assert placed(simulation(), TOGETHER).jobs.contention_sensitivity is None
    assert simulation("pair-table").state().jobs.contention_sensitivity is None  # no job runs yet


def test_forks_see_their_own_jobs() -> None:
    made = simulation("pair-table")
    placed(made, TOGETHER)
    twin = made.fork()
    state = placed(twin, {0: TOGETHER[0]})
    assert sensitivity(state)[0] == 1.0
    np.testing.assert_allclose(sensitivity(made.state())[:2], [1 / 0.4, 1 / 0.8])
