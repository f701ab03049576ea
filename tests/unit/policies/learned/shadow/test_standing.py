"""The shadow of fifo-skip: it has the rule's own figures, and a policy that falls behind it is replaced until it has caught up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from policies.api import Decision, PolicySpec
from policies.learned.guard import Guard, expected_s
from policies.learned.shadow.guard import ShadowGuard
from policies.learned.shadow.standing import BEHIND, CAUGHT_UP, SPARED_S, Standing
from policies.model import ClusterState, IntColumn
from policies.selection import fill, present_placements
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Estimates, Settings
from simulator.engine.simulation import Simulation
from simulator.results.result import Result
from simulator.traces.trace import Trace
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.simulator.engine.build import trace_of

HOUR_S = 3600.0
JOBS = 120
Decide = Callable[[ClusterState], Decision]


class Watched:
    """A policy beside whose decisions a `Standing` looks on."""

    spec = PolicySpec("watched", "a test", preempts=True)

    def __init__(self, agent: Decide) -> None:
        self._agent = agent
        self.standing = Standing()

    def decide(self, state: ClusterState) -> Decision:
        self.standing.see(state, expected_s(state))
        decision = self._agent(state)
        self.standing.decided(state, expected_s(state), decision)
        return decision


class Guarded:
    """An agent with the guard, whose limits of waiting never act."""

    spec = PolicySpec("guarded", "a test", preempts=True)

    def __init__(self, agent: Decide) -> None:
        self._agent = agent
        self.guard = ShadowGuard(Guard(stretch=1e9, unknown_stretch=1e9))

    def decide(self, state: ClusterState) -> Decision:
        return self.guard.checked(state, self._agent(state))


class Alone:
    """An agent without a guard."""

    spec = PolicySpec("alone", "a test", preempts=True)

    def __init__(self, agent: Decide) -> None:
        self.decide = agent


def workload(load: float, seed: int = 1) -> Trace:
    """Jobs of 1 to 16 GPUs with a heavy tail of durations, for two nodes of 8."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 4, 8, 16], JOBS, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    durations = np.minimum(rng.lognormal(7.5, 1.3, JOBS), 3e5).round() + 1
    gap_s = (gpus * durations).mean() / 16 / load
    submitted = np.cumsum(rng.exponential(gap_s, JOBS)).round()
    return trace_of(*zip(submitted, gpus, durations, strict=True))


def average_s(policy: Watched | Guarded | Alone, trace: Trace, estimates: str = "true") -> tuple[float, Result]:
    """The average JCT on two nodes of 8 GPUs, and the result."""
    settings = Settings(preempt_cost_s=10.0, estimates=Estimates.parse(estimates))
    run = Simulation(trace, parse_cluster("2x8"), policy, settings)
    run.run()
    log = run.finished
    assert len(log.index) == len(trace)
    jct_s = (np.array(log.finish) - trace.submit_ns[np.array(log.index)]) / 1e9
    return float(jct_s.mean()), Result.of(run, policy.spec.name, 0.0)


def fifo(state: ClusterState) -> Decision:
    return fill(state, state.pending)


def longest_first(state: ClusterState) -> Decision:
    """Takes the wrong jobs first, and leaves no GPU idle."""
    return fill(state, state.pending[np.argsort(-expected_s(state)[state.pending], kind="stable")])


def one_at_a_time(state: ClusterState) -> Decision:
    """Leaves GPUs idle."""
    return Decision(present_placements(state, state.running)) if len(state.running) else fill(state, state.pending[:1])


def stopping(state: ClusterState) -> Decision:
    """Stops all jobs for the newest one."""
    jobs = state.jobs
    for row in state.running.tolist():
        jobs = jobs.stopped(row)
    order: IntColumn = np.arange(len(jobs))[::-1]
    return replace(fill(replace(state, jobs=jobs), order), queue=())


@pytest.mark.parametrize("load", [0.3, 1.2])
@pytest.mark.parametrize("estimates", ["true", "noisy:1", "history"])
def test_the_shadow_has_the_figures_of_fifo_skip(load: float, estimates: str) -> None:
    watched = Watched(fifo)
    average_s(watched, workload(load), estimates)

    assert watched.standing.own_s / watched.standing.rule_s == pytest.approx(
        1.0, abs=0.001 if estimates == "true" else 0.1
    )


@pytest.mark.parametrize("agent", [longest_first, one_at_a_time, stopping])
@pytest.mark.parametrize("load", [0.2, 0.9, 1.5])
def test_no_agent_is_much_worse_than_the_rule(agent: Decide, load: float) -> None:
    trace = workload(load)
    rule_s, _ = average_s(Alone(fifo), trace)
    guarded_s, result = average_s(Guarded(agent), trace)

    assert guarded_s <= max(1.2 * rule_s, rule_s + 2 * SPARED_S)
    assert result.guarded or guarded_s < BEHIND * rule_s


def test_an_agent_that_is_as_good_as_the_rule_decides_alone() -> None:
    assert average_s(Guarded(fifo), workload(1.2))[1].guarded == 0


def state_at(time_s: float, *jobs: Job, available: bool = True) -> ClusterState:
    """One node of 8 GPUs with these jobs, all submitted at 0."""
    made = cluster([Node(8, available=available)], jobs, time_s=time_s)
    return replace(made, jobs=replace(made.jobs, submit_time_s=np.zeros(len(jobs))))


def waits(gpus: int, estimate_s: float = HOUR_S) -> Job:
    return Job(gpus=gpus, estimate_s=estimate_s)


def idle(state: ClusterState) -> Decision:
    return Decision(present_placements(state, state.running))


def test_while_behind_the_rule_decides_until_the_policy_has_caught_up() -> None:
    guard = ShadowGuard(Guard(stretch=1e9))
    first, later = state_at(0.0, waits(4, 60.0)), state_at(500.0, waits(4, 60.0))

    assert guard.checked(first, idle(first)).guard == ""
    decision = guard.checked(later, idle(later))
    assert decision.guard.startswith("jobs stay 8.33 times as long as under fifo-skip")
    assert decision.allocation.keys() == {0}
    assert guard.checked(later, idle(later)) == decision  # asked again

    as_the_rule = fill(later, later.pending)
    assert guard.checked(later, as_the_rule) is as_the_rule


def test_a_copy_remembers_for_itself() -> None:
    guard = ShadowGuard(Guard(stretch=1e9))
    first, later = state_at(0.0, waits(4, 60.0)), state_at(500.0, waits(4, 60.0))
    guard.checked(first, idle(first))
    copied = guard.fork()

    assert copied.checked(later, idle(later)).guard
    assert guard.checked(state_at(1.0, waits(4, 60.0)), idle(first)).guard == ""


def test_an_earlier_state_begins_anew() -> None:
    standing = Standing()
    for time_s in (0.0, 500.0):
        standing.see(state_at(time_s, waits(4, 60.0)), np.array([60.0]))
        standing.decided(state_at(time_s, waits(4, 60.0)), expected_s(state_at(time_s, waits(4, 60.0))), Decision({}))
    assert standing.is_behind

    standing.see(state_at(400.0, waits(4, 60.0)), np.array([60.0]))
    assert not standing.is_behind
    assert standing.ratio == 1.0


def test_a_job_that_is_cancelled_while_it_waits_leaves_the_shadow() -> None:
    standing = Standing()
    both = (waits(8), waits(8))
    standing.see(state_at(0.0, *both), np.full(2, HOUR_S))
    standing.decided(state_at(0.0, *both), expected_s(state_at(0.0, *both)), fifo(state_at(0.0, *both)))
    running = Job(gpus=8, occupied={0: 8}, estimate_s=HOUR_S, service_s=1800.0, attained_gpu_s=8 * 1800.0)
    standing.see(state_at(1800.0, running), np.full(1, HOUR_S))
    standing.decided(state_at(1800.0, running), expected_s(state_at(1800.0, running)), idle(state_at(1800.0, running)))
    standing.see(state_at(5400.0), np.zeros(0))
    assert standing.own_s == 2 * 1800.0 + 3600.0
    assert standing.rule_s == 2 * 1800.0 + 1800.0


def test_where_nodes_are_down_the_shadow_starts_nothing_either() -> None:
    standing = Standing()
    for time_s in (0.0, 5000.0):
        at = state_at(time_s, waits(8, 60.0), available=False)
        standing.see(at, np.array([60.0]))
        standing.decided(at, expected_s(at), idle(at))
    assert not standing.is_behind


def test_jobs_that_came_while_all_nodes_were_down_start_in_the_shadow_when_they_are_up() -> None:
    standing = Standing()
    for time_s, available in ((0.0, False), (100.0, True), (4000.0, True)):
        at = state_at(time_s, waits(8, 600.0), available=available)
        standing.see(at, np.array([600.0]))
        standing.decided(at, expected_s(at), idle(at))
    assert (standing.own_s, standing.rule_s) == (4000.0, 700.0)
    assert standing.is_behind


def test_a_job_that_runs_for_longer_than_its_limit_is_not_the_policys_fault() -> None:
    standing = Standing()
    standing._are_exact = False
    for time_s in (0.0, 3600.0, 36_000.0):
        job = Job(
            gpus=8,
            occupied={0: 8} if time_s else None,
            estimate_s=600.0,
            service_s=time_s,
            attained_gpu_s=8 * time_s,
        )
        at = state_at(time_s, job)
        standing.see(at, np.array([600.0]))
        standing.decided(at, expected_s(at), fifo(at))
    assert standing.ratio < BEHIND


def test_limits() -> None:
    assert 1.0 <= CAUGHT_UP < BEHIND <= 1.2
