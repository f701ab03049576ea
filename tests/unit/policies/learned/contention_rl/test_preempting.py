"""The threshold on contention sensitivity: which job is stopped, and what the agent observes then."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.learned.contention_rl.encoder import Encoding
from policies.learned.contention_rl.policy import RlBase, RlHybrid
from policies.learned.contention_rl.preempting import sensitivities, too_slow
from policies.model import ClusterState
from tests.unit.policies.learned.contention_rl.agents import agent_of
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.profiled import LOUD, QUIET, state_of
from tests.unit.policies.states.valid import check

SPREAD = {0: 2, 1: 2}
KNOB = 0.6
"""Share of its speed alone below which a job is too slow, as in the published code."""


def slowed(*by: float, preemptible: bool = True) -> ClusterState:
    """Jobs on the same two nodes, so many times slower than alone; the state is 500 s after they started."""
    jobs = [Job(gpus=4, occupied=SPREAD, measured=(each, 0.9, 1.0), preemptible=preemptible) for each in by]
    return cluster([Node()] * 4, [*jobs, Job(gpus=4)])


def test_the_slowest_job_is_stopped_if_it_is_too_slow() -> None:
    assert too_slow(slowed(1.2, 2.0, 1.7), KNOB) == 1
    assert too_slow(slowed(1.2, 2.0, 2.0), KNOB) == 1
    assert too_slow(slowed(1.2, 1.65, 1.4), KNOB) is None
    assert too_slow(slowed(3.0), KNOB) is None, "no job is near it"
    assert too_slow(slowed(2.0, 2.0, preemptible=False), KNOB) is None


def test_a_new_run_is_left_alone() -> None:
    state = slowed(2.0, 2.0)
    state.jobs.start_time_s[:2] = [state.time_s - 299.0, state.time_s - 300.0]
    assert too_slow(state, KNOB) == 1
    state.jobs.start_time_s[1] = state.time_s - 1.0
    assert too_slow(state, KNOB) is None


def test_speeds_that_were_not_measured_are_predicted() -> None:
    job = Job(gpus=4, occupied=SPREAD)
    state = state_of([Node()] * 4, [(job, LOUD), (job, LOUD), (job, QUIET), (Job(gpus=4, occupied={2: 2, 3: 2}), LOUD)])
    found = sensitivities(state, [0, 1, 2, 3])
    assert found[0] == pytest.approx(found[1]) and 1.8 < found[0] < 3.0
    assert found[2] == pytest.approx(1.0, abs=0.01)
    assert found[3] == 1.0
    assert too_slow(state, KNOB) == 0
    # One number that was measured goes before what is predicted
    measured = np.array([1.0, math.nan, math.nan, math.nan])
    assert too_slow(replace(state, jobs=replace(state.jobs, contention_sensitivity=measured)), KNOB) == 1


@settings(max_examples=50, deadline=None)
@given(state=states())
def test_a_job_that_is_stopped_in_a_state_waits_and_others_keep_their_nodes(state: ClusterState) -> None:
    for row in state.running.tolist():
        other = replace(state, jobs=state.jobs.stopped(row))
        assert other.jobs.placement(row) is None and row in other.pending
        rest = [each for each in range(len(state.jobs)) if each != row]
        assert [other.jobs.placement(each) for each in rest] == [state.jobs.placement(each) for each in rest]
        assert set(other.running.tolist()) == set(state.running.tolist()) - {row}


def test_a_stopped_job_frees_its_gpus_and_runs_again() -> None:
    state = slowed(1.2, 2.0)
    waits = RlBase(agent_of(Encoding(), wait=1e6), preempt_below=KNOB)
    decision = waits.decide(state)
    assert set(decision.allocation) == {0}
    assert (
        decision.reasons[1]
        == "stopped: it runs at less than 60% of the speed that it would have alone; it starts again later"
    )
    check(state, decision, waits.spec, moves=True)
    # RL-Hybrid places it anew at once, on as few nodes as can be
    moved = RlHybrid(agent_of(Encoding(), wait=1e6), preempt_below=KNOB).decide(state)
    assert set(moved.allocation) == {0, 1, 2} and len(moved.allocation[1].nodes) == 1
    # Without the threshold no job is
    assert set(RlBase(agent_of(Encoding(), wait=1e6)).decide(state).allocation) == {0, 1}
    assert not RlBase(agent_of(Encoding())).spec.preempts and waits.spec.preempts


@settings(max_examples=25, deadline=None)
@given(state=states(), kind=st.sampled_from([RlBase, RlHybrid]), seed=st.integers(0, 3))
def test_decisions_stay_valid(state: ClusterState, kind: type[RlBase], seed: int) -> None:
    if state.nodes.gpus.max() == 0:
        return
    known = Encoding(num_nodes=len(state.nodes), gpus_per_node=int(state.nodes.gpus.max()))
    policy = kind(agent_of(known, seed), preempt_below=0.99)
    decision = policy.decide(state)
    check(state, decision, policy.spec, moves=True)
    assert policy.decide(state) == decision


@pytest.mark.parametrize("wrong", [1.5, 1, -2.0, math.inf, "much"])
def test_impossible_options_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="preempt_below is"):
        RlBase(agent_of(Encoding()), preempt_below=wrong)
