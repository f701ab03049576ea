"""Relative features stay the same on a cluster of twice the size or at half the speed, and no feature is ever NaN."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings

from policies.learned.headway_rl.features import NAMES, features
from policies.learned.headway_rl.network import ValueFunction, empty
from policies.model import ClusterState
from policies.speeds.contention_model import ContentionModel
from tests.unit.policies.learned.headway_rl.policies_of_weights import network
from tests.unit.policies.states.cluster import Job, Node, states
from tests.unit.policies.states.profiled import LOUD, QUIET, UNKNOWN, state_of


def seen(state: ClusterState) -> np.ndarray:
    return features(state, ContentionModel(state))


def column(state: ClusterState, name: str) -> list[float]:
    return [round(value, 9) for value in seen(state)[:, NAMES.index(name)].tolist()]


@settings(max_examples=100, deadline=None)
@given(state=states())
def test_every_feature_and_value_is_finite(state: ClusterState) -> None:
    found = seen(state)
    assert found.shape == (len(state.jobs), len(NAMES))
    assert np.isfinite(found).all()
    weights = empty()
    weights["linear"][:] = 100.0
    values = ValueFunction(weights).values(found)
    assert np.isfinite(values).all() and (values > 0).all()


def test_features_have_the_documented_values() -> None:
    jobs = [
        (Job(gpus=8, occupied={0: 8}, estimate_s=300.0, service_s=150.0), QUIET),
        (Job(gpus=12, estimate_s=300.0), LOUD),
        (Job(gpus=4, estimate_s=300.0), UNKNOWN),
        (Job(gpus=4), QUIET),
    ]
    state = state_of([Node()] * 2, jobs, time_s=302.0)
    assert column(state, "remaining") == [
        round(np.log(0.5), 9),
        0.0,
        0.0,
        0.0,
    ]  # the last counts as one like the others
    assert column(state, "gpus") == [0.0, round(np.log(1.5), 9), round(np.log(0.5), 9), round(np.log(0.5), 9)]
    assert column(state, "waited")[2] == round(np.log(2.0), 9)
    assert column(state, "runs") == [1.0, 0.0, 0.0, 0.0]
    pressed = np.log1p(20 / 16)
    assert column(state, "gpus_pressure") == [round(pressed * each, 9) for each in np.log([1.0, 1.5, 0.5, 0.5])]
    coarse = (8**2 + 12**2 + 4**2 + 4**2) / (8 + 12 + 4 + 4) / 16
    assert column(state, "gpus_coarse")[1] == round(np.log(1.5) * coarse, 9)
    assert column(state, "share") == [0.5, 0.75, 0.25, 0.25]
    assert column(state, "odd") == [0.0, 1.0, 1.0, 1.0]
    assert column(state, "wide") == [0.0, 1.0, 0.0, 0.0]
    stake = column(state, "at_stake")
    assert stake[1] > stake[2] > stake[0] > 0


def test_durations_are_in_units_of_the_jobs_own() -> None:
    def at_pace(pace: float) -> ClusterState:
        jobs = [Job(gpus=8, estimate_s=300.0 * pace), Job(gpus=4, estimate_s=100.0 * pace)]
        state = state_of([Node()] * 2, [(job, QUIET) for job in jobs], time_s=500.0 * pace)
        return dataclasses.replace(
            state, jobs=dataclasses.replace(state.jobs, submit_time_s=state.jobs.submit_time_s * pace)
        )

    assert np.allclose(seen(at_pace(1.0)), seen(at_pace(10.0)))


def test_only_ratios_of_values_count() -> None:
    state = state_of([Node()] * 2, [(Job(gpus=gpus, estimate_s=60.0), QUIET) for gpus in (8, 4, 2)])
    values = network(gpus=1.0).values(seen(state))
    assert np.allclose(values / values[0], [1.0, 0.5, 0.25])
    larger = state_of([Node()] * 2, [(Job(gpus=gpus, estimate_s=600.0), QUIET) for gpus in (8, 4, 2)])
    assert np.allclose(network(gpus=1.0, remaining=3.0).values(seen(larger)), values)
