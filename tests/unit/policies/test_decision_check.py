"""The check of a decision by itself, and the programs that apply decisions: what one of them refuses, all refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from controller.cycle.decision.plan import Plan, Rejection, make_plan
from policies.api import Decision, PolicySpec
from policies.decision_check import decision_problem
from policies.errors import WireError
from policies.model import JobState, Placement
from policies.wire.messages import decode_decision, encode_decision
from simulator.cluster.cluster import parse_cluster
from simulator.engine.simulation import Simulation
from simulator.errors import DecisionError
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.simulator.engine.build import trace_of

HERE = Placement((0,), (4,))
STATE = cluster([Node(), Node()], [Job(gpus=4, occupied={0: 4}), Job(gpus=4), Job(gpus=4)])
"""Job 0 runs; jobs 1 and 2 wait."""
FAULTY: list[tuple[Any, str]] = [
    (None, "it is of type NoneType; return a Decision"),
    (Decision({0: HERE}, queue=(1, 1)), "queue: has job {1} twice"),
    (Decision({0: HERE}, queue=(1, 0)), "queue: has job {0}, which does not wait"),
    (Decision({0: HERE}, queue=(7,)), "queue: has row 7, which is no job: there are 3 jobs"),
    (Decision({0: HERE}, queue=(-1,)), "queue: has row -1, which is no job"),
    (Decision({0: HERE}, queue=(1.0,)), "queue: has 1.0 (float)"),
    (Decision({0: HERE}, queue=(True,)), "queue: has True (bool)"),
    (Decision({0: HERE}, queue={1, 2}), "queue: is of type set"),
    (Decision({0: HERE}, {7: "far away"}), "reasons: has row 7, which is no job"),
    (Decision({0: HERE}, {0: 5}), "reasons: that of job {0} is of type int; give a text"),
    (Decision({0: HERE}, {0: "\ud800"}), "reasons: that of job {0} has characters that UTF-8 cannot express"),
    (Decision({0: HERE}, ["first"]), "reasons: is of type list"),
    (Decision({0: HERE}, guard=5), "guard is of type int; give a text"),
    (Decision({0: HERE}, outside=None), "outside is of type NoneType; give a text"),
    (Decision([HERE]), "allocation: is of type list"),
    (Decision({0.0: HERE}), "allocation: has 0.0 (float) as the row of a job"),
    (Decision({0: (0, 4)}), "job {0}: its placement is of type tuple"),
    (Decision({0: HERE, 1: Placement((1,), (4.0,))}), "job {1}: gpus of its placement has 4.0 (float)"),
    (Decision({0: HERE, 1: Placement((0, 1), (4,))}), "job {1}: 1 numbers of GPUs for 2 nodes"),
    (Decision({0: HERE, 1: Placement((1,), (4,), gpu_masks=(1, 2))}), "job {1}: 2 sets of GPUs for 1 nodes"),
    (Decision({0: HERE, 1: Placement((1,), (4,), server_nodes=(1,))}), "job {1}: 0 numbers of parameter servers for 1"),
]
FINE = [
    Decision({0: HERE, 1: Placement((1,), (4,))}, {1: "room", 2: "waits, because später"}, (1, 2)),
    Decision({np.int64(0): HERE, np.int64(1): Placement((np.int64(1),), (np.int64(4),))}, queue=(np.int64(1),)),
    Decision({0: HERE}, queue=np.array([2, 1])),  # type: ignore[arg-type]
]
SPEC = PolicySpec(name="test", source="tests")


def simulation() -> Simulation:
    """A run at the same state."""
    run = Simulation(trace_of((0, 4, 100), (1, 4, 100), (2, 4, 100)), parse_cluster("2x8"), None)
    run.advance()
    run.state()
    run.apply(Decision({0: HERE}))
    run.advance()
    run.advance()
    assert [job.occupied for job in run.jobs()] == [4, 0, 0]
    return run


@pytest.mark.parametrize(("decision", "problem"), FAULTY)
def test_a_faulty_decision_is_refused_with_the_same_words_by_the_controller_and_the_simulator(
    decision: Any, problem: str
) -> None:
    refused = make_plan(STATE, decision, SPEC)
    assert isinstance(refused, Rejection)
    assert refused.reason.startswith(problem.format(*STATE.jobs.ids))
    run = simulation()
    with pytest.raises(DecisionError) as raised:
        run.apply(decision)
    assert f"cannot be carried out: {problem.format(*run.trace.job_ids)}" in str(raised.value)


@pytest.mark.parametrize("decision", FINE)
def test_a_decision_without_faults_is_applied(decision: Decision) -> None:
    assert decision_problem(decision, STATE.jobs.state == JobState.PENDING, STATE.jobs.ids) == ""
    simulation().apply(decision)
    assert decode_decision(encode_decision(decision, 1), STATE).allocation == decision.allocation


def test_a_decision_without_faults_is_planned() -> None:
    assert isinstance(make_plan(STATE, FINE[0], SPEC), Plan)


@pytest.mark.parametrize(("decision", "problem"), FAULTY[1:4])
def test_a_message_of_a_faulty_decision_is_refused_with_the_same_words(decision: Decision, problem: str) -> None:
    with pytest.raises(WireError) as raised:
        decode_decision(encode_decision(decision, 1), STATE)
    assert str(raised.value).startswith(problem.format(*STATE.jobs.ids))
