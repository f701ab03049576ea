"""The guard of agents that stop and resize jobs, on made decisions and around networks that start nothing more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.api import Decision, Policy
from policies.learned.dl2.policy import Dl2
from policies.learned.resizing_guard import ResizingGuard, resizing_guard_of
from policies.learned.rl_taps.policy import RlTaps
from policies.model import ClusterState, Placement
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.policies.states.valid import check_resizing

NOW_S = 10_000.0
ROUND_S = 600.0


def state_of(*jobs: Job, nodes: Iterable[Node] = (Node(8),), age_s: float = 9_000.0) -> ClusterState:
    """A cluster whose jobs were all submitted `age_s` ago, and whose running jobs started then."""
    made = cluster(list(nodes), list(jobs), time_s=NOW_S)
    ages = np.full(len(jobs), NOW_S - age_s)
    starts = np.where(np.isnan(made.jobs.start_time_s), np.nan, ages)
    return replace(made, jobs=replace(made.jobs, submit_time_s=ages, start_time_s=starts))


def waiting(gpus: int, estimate_s: float = 600.0, sizes: tuple[int, int] | None = None) -> Job:
    return Job(gpus=gpus, estimate_s=estimate_s, sizes=sizes)


def running(gpus: int, has: int, sizes: tuple[int, int] | None = None, *, preemptible: bool = True) -> Job:
    return Job(gpus=gpus, sizes=sizes, occupied={0: has}, estimate_s=9_000.0, preemptible=preemptible)


def keeping(state: ClusterState) -> Decision:
    """An agent that changes nothing."""
    return Decision({row: state.jobs.placement(row) or Placement((), ()) for row in state.running.tolist()})


def sizes(decision: Decision) -> dict[int, int]:
    return {row: each.num_gpus for row, each in sorted(decision.allocation.items())}


def test_jobs_that_are_not_overdue_are_the_agents() -> None:
    state = state_of(waiting(2), age_s=599.0)

    decision = keeping(state)
    assert ResizingGuard(ROUND_S).checked(state, decision) is decision


def test_an_overdue_job_starts_on_free_gpus_with_as_many_as_it_may_have() -> None:
    state = state_of(running(4, 4), waiting(6, sizes=(2, 8)), waiting(1, estimate_s=60.0))

    decision = ResizingGuard(ROUND_S).checked(state, keeping(state))
    assert sizes(decision) == {0: 4, 1: 3, 2: 1}
    assert decision.guard.startswith(f"job {state.jobs.ids[1]} fits and is overdue")


def test_gpus_beyond_what_a_job_requests_go_to_overdue_jobs() -> None:
    state = state_of(running(2, 8, sizes=(1, 8)), waiting(4))

    assert sizes(ResizingGuard(ROUND_S).checked(state, keeping(state))) == {0: 2, 1: 4}


def test_a_job_that_may_not_be_stopped_keeps_its_gpus() -> None:
    state = state_of(running(2, 8, sizes=(1, 8), preemptible=False), waiting(4))

    assert ResizingGuard(ROUND_S).checked(state, keeping(state)).guard == ""


def test_outside_of_the_trained_range_an_overdue_job_starts_before_those_that_the_agent_prefers() -> None:
    state = state_of(waiting(8, estimate_s=9_000.0), waiting(8))
    decision = Decision({0: Placement((0,), (8,))})

    assert ResizingGuard(ROUND_S).checked(state, decision) is decision
    ruled = ResizingGuard(ROUND_S).checked(state, decision, is_known=False)
    assert sizes(ruled) == {1: 8}
    assert ruled.guard.startswith(f"job {state.jobs.ids[1]} fits and is overdue")


def test_where_the_rule_would_start_none_of_them_either_the_agent_decides() -> None:
    state = state_of(waiting(8), waiting(8, estimate_s=9_000.0))
    decision = Decision({0: Placement((0,), (8,))})

    assert ResizingGuard(ROUND_S).checked(state, decision, is_known=False) is decision


def test_running_jobs_go_on_where_the_agent_would_stop_all() -> None:
    state = state_of(running(4, 4), waiting(4))

    decision = ResizingGuard(ROUND_S).checked(state, Decision({}))
    assert sizes(decision) == {0: 4, 1: 4}


def test_gpus_that_the_agent_gives_to_others_are_not_idle() -> None:
    state = state_of(waiting(8), waiting(4, estimate_s=60.0))

    decision = Decision({0: Placement((0,), (8,))})
    assert ResizingGuard(ROUND_S).checked(state, decision) is decision


def test_the_agent_decides_where_the_rule_would_not_start_an_overdue_job_either() -> None:
    # The short job needs the node, so that the overdue one would not start under the rule.
    state = state_of(waiting(8, estimate_s=600.0), waiting(8, estimate_s=60.0))
    late = replace(state, jobs=replace(state.jobs, submit_time_s=np.array([NOW_S - 9_000.0, NOW_S - 1.0])))

    assert ResizingGuard(ROUND_S).checked(late, Decision({})).guard == ""


def test_it_can_be_switched_off() -> None:
    assert resizing_guard_of(False, ROUND_S) is None
    with pytest.raises(ValueError, match="guard is 'no'"):
        resizing_guard_of("no", ROUND_S)


def starting_nothing(name: str, *, guard: bool) -> Policy:
    """Return a served policy whose network gives no GPU to any job."""
    if name == "dl2":
        dl2 = Dl2(guard=guard)
        _, columns, trained = dl2._served

        def void(states: torch.Tensor, _masks: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(len(states), columns.actions)
            logits[:, -1] = 1.0
            return logits

        dl2._served = void, columns, trained
        return dl2
    taps = RlTaps(guard=guard)
    logits = torch.nn.functional.one_hot(torch.zeros(32, dtype=torch.int64), 11).float()[None]
    taps._network.logits = lambda _images: logits  # type: ignore[method-assign]
    return taps


@pytest.mark.parametrize("name", ["dl2", "rl-taps"])
def test_a_network_that_starts_nothing_is_guarded(name: str) -> None:
    jobs = (Job(gpus=4, occupied={0: 4}, estimate_s=90_000.0), *(waiting(2, estimate_s=60.0) for _ in range(5)))
    state = state_of(*jobs, nodes=[Node(4)] * 8)

    alone = starting_nothing(name, guard=False).decide(state)
    assert alone.guard == "" and not set(alone.allocation) - {0}
    guarded = starting_nothing(name, guard=True)
    decision = guarded.decide(state)
    assert decision.guard and set(decision.allocation) == set(range(6))
    check_resizing(guarded, state, settled=lambda _row: True)


def elastic(count: int, *, nodes: int, age_s: float) -> ClusterState:
    """Jobs that wait, as in the trainings, on nodes of 4 GPUs."""
    return state_of(*[waiting(2, 300.0, sizes=(1, 8))] * count, nodes=[Node(4)] * nodes, age_s=age_s)


@pytest.mark.parametrize(("name", "nodes"), [("dl2", 2), ("rl-taps", 8)])
def test_a_state_outside_of_the_trained_range_is_remarked(name: str, nodes: int) -> None:
    policy = {"dl2": Dl2, "rl-taps": RlTaps}[name]()

    assert "GPUs on a node (trained: 4)" in policy.decide(state_of(waiting(1), nodes=[Node(8)] * 4)).outside
    assert policy.decide(elastic(1, nodes=nodes, age_s=1.0)).outside == ""
    fixed = state_of(waiting(2, 300.0), nodes=[Node(4)] * nodes, age_s=1.0)
    assert policy.decide(fixed).outside == "1 of 1 jobs have a fixed size (trained: none)"


def test_rl_taps_decides_alone_inside_the_trained_range() -> None:
    policy = starting_nothing("rl-taps", guard=True)

    # Overdue jobs wait on idle GPUs, as they may in the training; but not for longer than twice as long as there.
    inside = policy.decide(elastic(5, nodes=8, age_s=9_000.0))
    assert (inside.guard, inside.outside) == ("", "")
    policy = starting_nothing("rl-taps", guard=True)  # the other one has fallen behind fifo-skip by then
    beyond = policy.decide(replace(elastic(5, nodes=8, age_s=9_000.0), time_s=NOW_S + 30_000.0))
    assert "fits and is overdue" in beyond.guard
    assert "a job has waited for 39,000 s" in beyond.outside
    assert len(beyond.allocation) == 5


def test_rl_taps_with_weights_of_an_unknown_range_is_guarded() -> None:
    policy = starting_nothing("rl-taps", guard=True)
    policy._trained = {}  # type: ignore[attr-defined]

    assert "fits and is overdue" in policy.decide(elastic(5, nodes=8, age_s=9_000.0)).guard
