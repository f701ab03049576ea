"""Copies of a run are equal to it, independent of it, and cost no more than its active jobs."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.api import Decision, Forkable, load_policy
from policies.model import ClusterState
from policies.selection import present_placements
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Estimates, Settings
from simulator.engine.simulation import Simulation
from simulator.kernel.job import ActiveJob
from simulator.results.result import Result
from simulator.traces.trace import NS_PER_S, Trace
from tests.unit.simulator.engine.build import (
    BASELINES,
    FREE,
    Asked,
    Sharing,
    allocation,
    baseline,
    logs,
    outcomes,
    spans_s,
    trace_of,
)
from tests.unit.simulator.engine.scenarios import Scenario, scenarios

drawn = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def advanced(simulation: Simulation, instants: int, *, decided: bool) -> Simulation:
    """The run so many instants later, before or after the decision about the last."""
    for instant in range(instants):
        if not simulation.advance():
            break
        if decided or instant + 1 < instants:
            simulation.decide()
    return simulation


def end(simulation: Simulation) -> tuple[object, ...]:
    """Return all results of a run."""
    simulation.run()
    return outcomes(simulation), simulation.now_s, simulation.decisions, simulation.unfinished


class TestEqual:
    @given(scenarios(failures=True), st.integers(0, 25), st.booleans())
    @drawn
    def test_a_fork_goes_on_as_the_original_does(self, scenario: Scenario, instants: int, decided: bool) -> None:
        original = advanced(scenario.start(), instants, decided=decided)
        fork = original.fork()
        straight = end(scenario.start())
        assert end(fork) == straight
        assert end(original) == straight

    @given(scenarios(failures=True), st.integers(0, 10), st.integers(0, 10))
    @drawn
    def test_so_does_the_fork_of_a_fork(self, scenario: Scenario, first: int, second: int) -> None:
        fork = advanced(advanced(scenario.start(), first, decided=True).fork(), second, decided=False).fork()
        assert end(fork) == end(scenario.start())

    @given(scenarios(failures=True), st.integers(0, 20), st.sampled_from(BASELINES))
    @drawn
    def test_two_forks_and_the_original_do_not_disturb_each_other(
        self, scenario: Scenario, instants: int, other: str
    ) -> None:
        original = advanced(scenario.start(), instants, decided=True)
        one, changed = original.fork(), original.fork(scenario.under(other).policy)
        alone = end(advanced(scenario.start(), instants, decided=True).fork(scenario.under(other).policy))
        going = [original, one, changed]
        while going:  # turn by turn
            for each in tuple(going):
                if each.advance():
                    each.decide()
                else:
                    going.remove(each)
        assert end(original) == end(one) == end(scenario.start())
        assert end(changed) == alone

    @given(scenarios(failures=True), st.sampled_from(BASELINES))
    @drawn
    def test_a_fork_before_the_start_is_a_run_of_the_other_policy(self, scenario: Scenario, other: str) -> None:
        assert end(scenario.start().fork(scenario.under(other).policy)) == end(scenario.under(other).start())


class TestUnderAnotherPolicy:
    def test_running_jobs_run_on_and_the_queue_has_the_new_order(self) -> None:
        trace = trace_of((0, 1, 100), (1, 1, 50), (2, 1, 10))
        original = advanced(Simulation(trace, parse_cluster("1x1"), baseline("fifo"), FREE), 3, decided=True)
        fork = original.fork(baseline("sjf"))
        fork.run()
        original.run()
        assert spans_s(fork) == {"j0": (0, 100), "j2": (100, 110), "j1": (110, 160)}
        assert spans_s(original) == {"j0": (0, 100), "j1": (100, 150), "j2": (150, 160)}

    def test_a_fork_asks_its_policy_at_once_if_the_caller_wants(self) -> None:
        trace = trace_of((0, 1, 100), (1, 1, 50))
        original = advanced(Simulation(trace, parse_cluster("1x1"), baseline("fifo"), FREE), 2, decided=True)
        fork = original.fork(baseline("srtf"))
        fork.decide()
        fork.run()
        assert spans_s(fork) == {"j0": (0, 150), "j1": (1, 51)}

    def test_rounds_are_those_of_the_new_policy(self) -> None:
        """Rounds of 10 s begin with the fork; without them B would wait for A's end."""
        trace = trace_of((0, 1, 100), (1, 1, 100))
        original = advanced(Simulation(trace, parse_cluster("1x1"), baseline("fifo"), FREE), 2, decided=True)
        las, none = original.fork(baseline("las", round_s=10.0)), original.fork(baseline("srtf"))
        assert las.advance()
        assert las.now_s == 10
        back = las.fork(baseline("fifo"))
        back.decide()
        assert [each.advance() for each in (none, back)] == [True, True]
        assert (none.now_s, back.now_s) == (100, 100)

    def test_a_caller_may_hand_over_to_a_policy(self) -> None:
        trace = trace_of((0, 1, 10), (0, 1, 5))
        original = Simulation(trace, parse_cluster("1x1"), None, FREE)
        assert original.advance()
        original.state()
        fork = original.fork(baseline("sjf"))
        fork.run()
        assert spans_s(fork) == {"j0": (5, 15), "j1": (0, 5)}
        original.apply(allocation(r0={0: 1}))
        assert [job.occupied for job in original.jobs()] == [1, 0]

    def test_rows_mean_the_same_jobs_in_the_copy(self) -> None:
        original = Simulation(trace_of((0, 1, 10), (0, 1, 5)), parse_cluster("1x1"), None, FREE)
        assert original.advance()
        original.state()
        fork = original.fork()
        fork.apply(allocation(r1={0: 1}))
        assert [job.occupied for job in fork.jobs()] == [0, 1]
        assert [job.occupied for job in original.jobs()] == [0, 0]


class TestSlowdown:
    def test_a_job_that_finished_just_before_the_fork_slows_no_job_in_it(self) -> None:
        """At 10 A finishes; forked before the policy has decided about that. B ran 10 s at 0.5 before, and runs alone after."""
        trace = trace_of((0, 1, 5), (0, 1, 20))
        original = Simulation(trace, parse_cluster("1x2"), baseline("fifo"), FREE, [Sharing(0.5)])  # type: ignore[list-item]
        advanced(original, 2, decided=False)
        assert original.now_s == 10
        fork = original.fork()
        for each in (fork, original):
            each.run()
            assert spans_s(each) == {"j0": (0, 10), "j1": (0, 25)}


class TestHistory:
    def trace(self) -> Trace:
        """User u runs jobs of 10, 20 and 30 s, one after the other, and then two more."""
        rows = [(0, 1, 10), (10, 1, 20), (30, 1, 30), (60, 1, 40), (70, 1, 50)]
        return trace_of(*rows, user=["u"] * 5)

    def estimates(self, simulation: Simulation) -> list[float]:
        return [job.estimate / NS_PER_S for job in simulation.jobs()]

    @pytest.mark.parametrize("instants", range(1, 5))
    def test_forks_learn_what_they_see_finish(self, instants: int) -> None:
        reported = Settings(preempt_cost_s=0.0, estimates=Estimates("history"))
        simulation = Simulation(self.trace(), parse_cluster("1x1"), baseline("fifo"), reported)
        fork = advanced(simulation, instants, decided=True).fork().fork()
        while fork.now_s < 70 and fork.advance():
            fork.decide()
        # Two are active at 70: the fourth came when 10, 20, 30 were known, the fifth no later than the fourth's end.
        assert self.estimates(fork) == [20.0, 20.0]
        assert simulation.now_s < 70

    def test_what_a_fork_learns_stays_with_it(self) -> None:
        reported = Settings(preempt_cost_s=0.0, estimates=Estimates("history"))
        original = advanced(Simulation(self.trace(), parse_cluster("1x1"), baseline("fifo"), reported), 1, decided=True)
        fork = original.fork()
        fork.run()
        assert original.advance()
        assert self.estimates(original) == [10.0]


class TestCost:
    """Counted, not timed."""

    def simulation(self, jobs: int, active: int) -> Simulation:
        """A run late in a long trace: all but the last `active` jobs have finished."""
        submit = [row * 10 * NS_PER_S for row in range(jobs - active)] + [jobs * 10 * NS_PER_S] * active
        users = [f"u{row % 50}" for row in range(jobs)]
        trace = Trace.of("long", [f"j{row}" for row in range(jobs)], submit, [1] * jobs, [NS_PER_S] * jobs, user=users)
        reported = Settings(preempt_cost_s=0.0, estimates=Estimates("history"))
        simulation = Simulation(trace, parse_cluster("4x8"), baseline("srtf"), reported, [Sharing()])  # type: ignore[list-item]
        simulation.run(until_s=jobs * 10 - 5)
        assert simulation.advance()
        simulation.decide()
        assert len(simulation.unfinished) == active
        return simulation

    def forked_bytes(self, simulation: Simulation) -> int:
        simulation.fork()
        gc.collect()
        tracemalloc.start()
        forks = [simulation.fork() for _ in range(10)]
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(forks) == 10
        return size

    @staticmethod
    def active_jobs() -> int:
        """Count objects by exact type: objects of other tests in this process warn when their class is read."""
        return sum(type(each) is ActiveJob for each in gc.get_objects())

    def test_only_active_jobs_are_copied(self) -> None:
        simulation = self.simulation(500, 60)
        gc.collect()
        before = self.active_jobs()
        fork = simulation.fork()
        assert self.active_jobs() - before == 60
        assert len(fork.finished.index) == 0
        assert fork.finished.prefix is simulation.finished

    def test_a_fork_is_as_large_however_long_the_trace(self) -> None:
        short, long = (self.forked_bytes(self.simulation(jobs, 60)) for jobs in (500, 20_000))
        assert long <= short * 1.05

    def test_it_grows_with_active_jobs(self) -> None:
        few, many = (self.forked_bytes(self.simulation(3_000, active)) for active in (200, 2_000))
        assert few * 5 < many < few * 11

    def chain(self, simulation: Simulation, forks: int, each: int) -> Simulation:
        """The run so many forks later, each of the one before, with so many instants between them."""
        for _ in range(forks):
            simulation = advanced(simulation.fork(), each, decided=True)
        return simulation

    def test_forks_of_forks_leave_nothing_behind(self) -> None:
        simulation = self.chain(self.simulation(300, 20), 300, 0)
        gc.collect()
        tracemalloc.start()
        simulation = self.chain(simulation, 300, 0)
        few, _ = tracemalloc.get_traced_memory()
        simulation = self.chain(simulation, 2_000, 0)
        many, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert many < few * 1.05
        assert len(logs(simulation.finished)) == 2

    @pytest.mark.parametrize("instants", [1, 3, 70])
    def test_a_chain_of_forks_has_every_finished_job(self, instants: int) -> None:
        jobs = 600
        trace = trace_of(*[(row * 5, 1 + row % 3, 7 + row % 11) for row in range(jobs)])
        straight = Simulation(trace, parse_cluster("1x4"), baseline("srtf"), FREE)
        chain = self.chain(straight.fork(), 2 * jobs // instants + 1, instants)
        straight.run()
        assert outcomes(chain) == outcomes(straight)
        assert len(outcomes(chain)) == jobs
        assert len(logs(chain.finished)) <= 2 + 2 * jobs // 64
        assert Result.of(chain, "srtf", 0.0).nodes() == Result.of(straight, "srtf", 0.0).nodes()


def test_the_copy_of_an_asked_policy_is_asked_too() -> None:
    trace = trace_of((0, 1, 10), (5, 1, 1))
    simulation = advanced(Simulation(trace, parse_cluster("1x1"), Asked(baseline("srtf")), FREE), 1, decided=True)
    fork = simulation.fork()
    fork.run()
    assert spans_s(fork) == {"j0": (0, 11), "j1": (5, 6)}
    assert len(fork.decision_ns) == 3


class Guarded:
    """Decides as fifo does, and reports every decision as a guard's."""

    def __init__(self) -> None:
        self.fifo = load_policy("fifo")
        self.spec = self.fifo.spec

    def decide(self, state: ClusterState) -> Decision:
        return replace(
            self.fifo.decide(state), guard="a rule decides", outside="two jobs" if len(state.jobs) > 1 else ""
        )


def test_a_copy_goes_on_counting_decisions_and_those_of_a_guard() -> None:
    trace = trace_of((0, 1, 10), (5, 1, 10), (7, 1, 1))
    original = advanced(Simulation(trace, parse_cluster("1x1"), Guarded(), FREE), 3, decided=True)
    fork = original.fork()
    for each in (fork, original):
        each.run()
        assert each.guarded == each.decisions == 6
        assert (each.outside, each.guarded_inside) == (3, 3)


class EverySecond:
    """Decides as fifo does at every second instant, and keeps the present allocation at the others."""

    def __init__(self, instants: int = 0) -> None:
        self.instants = instants
        self.fifo = load_policy("fifo")
        self.spec = self.fifo.spec

    def fork(self) -> EverySecond:
        return EverySecond(self.instants)

    def decide(self, state: ClusterState) -> Decision:
        self.instants += 1
        return self.fifo.decide(state) if self.instants % 2 else Decision(present_placements(state, state.running))


class TestPoliciesThatRemember:
    @pytest.mark.parametrize("instants", [1, 2])
    def test_a_look_ahead_is_unknown_to_the_original_and_begins_with_what_it_knows(self, instants: int) -> None:
        jobs = [(at, 1 + at % 3, 5 + at) for at in range(9)]

        def begun() -> Simulation:
            simulation = Simulation(trace_of(*jobs), parse_cluster("1x4"), EverySecond(), Settings())
            return advanced(simulation, instants, decided=True)

        straight = end(begun())
        original = begun()
        assert end(original.fork()) == straight
        assert end(original) == straight

    @pytest.mark.parametrize("name", ["dally", "optimus", "sched2-dsif"])
    def test_the_policies_that_remember_have_forks(self, name: str) -> None:
        policy = load_policy(name)
        assert isinstance(policy, Forkable)
        jobs = [(at, 1 + at % 4, 50 + at) for at in range(12)]
        columns = {"min_gpus": [1] * 12, "max_gpus": [4] * 12}
        simulation = Simulation(trace_of(*jobs, **columns), parse_cluster("2x4"), policy, Settings())
        advanced(simulation, 8, decided=True)
        twin, before = policy.fork(), repr(vars(policy))
        state = simulation.state()
        later = replace(state, time_s=state.time_s + 30.0)
        assert twin.decide(state).allocation == policy.fork().decide(state).allocation
        twin.decide(later)
        assert repr(vars(policy)) == before
