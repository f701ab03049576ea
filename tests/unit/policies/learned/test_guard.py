"""The guard of learned policies: a rule decides where the agent leaves jobs waiting for long that would fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from policies.api import Decision
from policies.learned.guard import Guard, guard_of
from policies.model import ClusterState, Placement
from policies.selection import present_placements
from policies.wire.messages import decode_decision, encode_decision
from tests.unit.policies.states.cluster import Job, Node, cluster

NOW_S = 10_000.0
HOUR_S = 3600.0


@dataclass(frozen=True)
class Seen:
    """A job, and the time since its submission."""

    job: Job
    age_s: float


def state(*jobs: Seen) -> ClusterState:
    """One node of 8 GPUs with these jobs."""
    made = cluster([Node()], [each.job for each in jobs], time_s=NOW_S)
    submitted_s = np.array([NOW_S - each.age_s for each in jobs])
    return replace(made, jobs=replace(made.jobs, submit_time_s=submitted_s))


def waiting(gpus: int, waited_s: float, expected_s: float = HOUR_S) -> Seen:
    return Seen(Job(gpus=gpus, estimate_s=expected_s), waited_s)


def running(gpus: int) -> Seen:
    return Seen(Job(gpus=gpus, occupied={0: gpus}, estimate_s=HOUR_S), 9_500.0)


def idle(at: ClusterState) -> Decision:
    """An agent that starts nothing."""
    return Decision(present_placements(at, at.running), {0: "not now"}, tuple(at.pending.tolist()))


def test_a_job_that_has_not_waited_for_long_is_the_agents() -> None:
    at = state(waiting(2, waited_s=HOUR_S - 1), waiting(2, waited_s=59, expected_s=1.0))

    decision = idle(at)
    assert Guard().checked(at, decision) is decision


def test_where_a_job_is_overdue_and_fits_the_shortest_jobs_start() -> None:
    at = state(waiting(6, waited_s=HOUR_S), waiting(4, 0, expected_s=9 * HOUR_S), waiting(2, 0, expected_s=60.0))

    decision = Guard().checked(at, idle(at))
    assert decision.allocation == {2: Placement((0,), (2,)), 0: Placement((0,), (6,))}
    assert decision.guard.startswith(f"job {at.jobs.ids[0]} fits and is overdue")
    assert all(decision.guard in decision.reasons[row] for row in decision.allocation)


def test_an_overdue_job_that_does_not_fit_is_the_agents() -> None:
    at = state(running(6), waiting(4, waited_s=9000, expected_s=60.0), waiting(2, waited_s=5, expected_s=60.0))

    assert Guard().checked(at, idle(at)).guard == ""


def test_gpus_that_the_agent_gives_to_others_are_not_idle() -> None:
    at = state(waiting(4, waited_s=9000, expected_s=60.0), waiting(6, waited_s=5, expected_s=60.0))
    agents = Decision({1: Placement((0,), (6,))})

    assert Guard().checked(at, agents) is agents


def test_running_jobs_go_on_where_the_rule_decides() -> None:
    at = state(running(2), waiting(4, waited_s=9000, expected_s=60.0))
    stops = Decision({})  # the agent wants to stop the running job, and starts nothing

    assert Guard().checked(at, stops).allocation == {0: Placement((0,), (2,)), 1: Placement((0,), (4,))}


@pytest.mark.parametrize(("known_s", "overdue"), [((60.0, 60.0), True), ((90_000.0, 90_000.0), False), ((), True)])
def test_a_job_without_an_estimate_is_as_long_as_the_others(known_s: tuple[float, ...], overdue: bool) -> None:
    others = [waiting(1, waited_s=0, expected_s=each) for each in known_s]
    at = state(waiting(2, waited_s=HOUR_S, expected_s=math.nan), *others)

    assert bool(Guard().checked(at, idle(at)).guard) == overdue


def test_the_same_state_gives_the_same_decision() -> None:
    at, guard = state(waiting(6, waited_s=HOUR_S)), Guard()

    assert guard.checked(at, idle(at)) == guard.checked(at, idle(at))


def test_it_is_part_of_the_message() -> None:
    at = state(waiting(6, waited_s=HOUR_S))
    decision = Guard().checked(at, idle(at))

    assert decode_decision(encode_decision(decision, at.sequence), at).guard == decision.guard


def test_it_can_be_switched_off_and_agents_in_training_decide_alone() -> None:
    assert guard_of(True, alone=False) == Guard()
    assert guard_of(True, alone=True) is guard_of(False, alone=False) is None
    with pytest.raises(ValueError, match="guard is 'no'; give true or false"):
        guard_of("no", alone=False)
    with pytest.raises(ValueError, match="stretch is -1"):
        Guard(stretch=-1.0)


def test_outside_of_the_trained_range_a_job_is_overdue_earlier() -> None:
    at = state(waiting(2, waited_s=400.0), waiting(2, waited_s=300.0))

    assert Guard().checked(at, idle(at)).guard == ""
    assert Guard().checked(at, idle(at), is_known=False).guard.startswith(f"job {at.jobs.ids[0]} fits")


@pytest.mark.parametrize(("looks_ahead", "guarded"), [(True, True), (False, False)])
def test_outside_of_it_a_job_that_would_be_overdue_before_the_next_end_starts_now(
    looks_ahead: bool, guarded: bool
) -> None:
    """Where nothing happens before the running job ends, nothing is decided either."""
    at = state(running(2), waiting(2, waited_s=0.0))

    assert Guard(looks_ahead=looks_ahead).checked(at, idle(at), is_known=False).guard.startswith("job") == guarded
    assert Guard(looks_ahead=looks_ahead).checked(at, idle(at)).guard == ""


def test_jobs_that_were_stopped_count_by_what_is_left_of_them() -> None:
    at = state(waiting(8, waited_s=HOUR_S, expected_s=2 * HOUR_S), waiting(8, waited_s=HOUR_S, expected_s=HOUR_S))
    stopped = replace(at, jobs=replace(at.jobs, service_s=np.array([1.9 * HOUR_S, 0.0])))

    assert Guard().ruled(at).allocation.keys() == {1}
    assert Guard().ruled(stopped).allocation.keys() == {0}
