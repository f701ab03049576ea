"""Decisions from outside: stops, moves and resizes; and those that are refused."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.api import Decision
from policies.model import ClusterState, Placement
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import NodeChange, Settings
from simulator.engine.simulation import Simulation
from simulator.errors import DecisionError, SettingError
from simulator.slowdown.api import Resident
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.trace import NS_PER_S, Trace
from tests.unit.simulator.engine.build import (
    Does,
    Sharing,
    allocation,
    audit_gpus,
    audit_jobs,
    baseline,
    outcomes,
    ran,
    spans,
    spans_s,
    trace_of,
)


class Replaced(Does):
    """A policy of which every first decision is impossible, with a fallback."""

    def __init__(self, first: Decision, instead: Decision | None) -> None:
        super().__init__(lambda state: first if len(state.pending) else Decision({}), name="replaced")
        self._instead = instead
        self.problems: list[str] = []

    def decide_instead(self, state: ClusterState, problem: str) -> Decision | None:
        self.problems.append(problem)
        return self._instead


class Scaling:
    """A slowdown model: throughput is the number of GPUs over the number that was asked for."""

    only_between_nodes = False
    needs_gpus = False

    def __init__(self) -> None:
        self._factors: dict[int, float] = {}
        self._news: set[int] = set()

    def enter(self, resident: Resident) -> None:
        self._factors[resident.job] = sum(resident.counts) / resident.requested_gpus
        self._news.add(resident.job)

    def leave(self, job: int) -> None:
        del self._factors[job]
        self._news.discard(job)

    def changed(self) -> list[int]:
        news, self._news = sorted(self._news), set()
        return news

    def factor(self, job: int) -> float:
        return self._factors[job]

    def fork(self) -> Scaling:
        twin = Scaling()
        twin._factors, twin._news = dict(self._factors), set(self._news)
        return twin


def by_hand(
    trace: Trace, cluster: str = "2x4", *, cost: float = 0.0, slowdown: object = None, **more: object
) -> Simulation:
    """A simulation whose caller decides, at its first instant."""
    reported = Settings(**({"preempt_cost_s": cost, "record": True} | more))  # type: ignore[arg-type]
    models = [slowdown] if slowdown is not None else None
    simulation = Simulation(trace, parse_cluster(cluster), None, reported, models)  # type: ignore[arg-type]
    assert simulation.advance()
    simulation.state()
    return simulation


def step(simulation: Simulation, decision: Decision) -> None:
    """To the next instant, and that decision there."""
    assert simulation.advance()
    simulation.state()
    simulation.apply(decision)


class TestSteps:
    def test_the_whole_life_of_a_job(self) -> None:
        """Starts at 0, moves at 10, is stopped at 20, starts at 30: three runs, one move, one stop, 2 x 5 s of overhead."""
        trace = trace_of((0, 4, 100), *[(at, 1, 1) for at in (10, 20, 30)])
        simulation = by_hand(trace, cost=5)
        simulation.apply(allocation(r0={0: 4}))
        step(simulation, allocation(r0={1: 4}))
        step(simulation, Decision({}))
        step(simulation, allocation(r0={0: 4}))
        assert simulation.advance()
        assert simulation.now_s == 30 + 5 + (100 - 10 - 5)
        log = simulation.finished
        assert (log.moves[0], log.stops[0], log.resizes[0], log.overhead[0]) == (1, 1, 0, 10 * NS_PER_S)
        assert [(span.start // NS_PER_S, span.occupied) for span in spans(simulation)] == [
            (0, {0: 4}),
            (10, {1: 4}),
            (30, {0: 4}),
        ]
        assert simulation.unfinished == ["j1", "j2", "j3"]

    def test_two_jobs_change_places(self) -> None:
        trace = trace_of((0, 4, 100), (0, 4, 100), (10, 1, 1))
        simulation = by_hand(trace)
        simulation.apply(allocation(r0={0: 4}, r1={1: 4}))
        step(simulation, allocation(r0={1: 4}, r1={0: 4}))
        while simulation.advance():
            pass
        assert [occupied for *_, occupied in outcomes(simulation).values()] == [{1: 4}, {0: 4}]
        assert list(simulation.finished.moves) == [1, 1]
        audit_gpus(simulation)
        audit_jobs(simulation)

    def test_jobs_change_places_under_a_model_that_counts_gpus(self) -> None:
        """Models are notified of moves after all departures: no node ever has more GPUs in use than it has."""
        where = parse_cluster("3x4")
        slowdown = build(["link-sharing"], topology=where.topology, profiles=paper_profiles())
        trace = trace_of((0, 6, 100), (0, 6, 100), (10, 1, 1))
        simulation = Simulation(trace, where, None, Settings(preempt_cost_s=0.0), slowdown)
        assert simulation.advance()
        simulation.state()
        simulation.apply(allocation(r0={0: 4, 1: 2}, r1={1: 2, 2: 4}))
        step(simulation, allocation(r0={1: 2, 2: 4}, r1={0: 4, 1: 2}))
        speeds = [job.speed for job in simulation.jobs() if job.nodes]
        assert speeds == [speeds[0]] * 2 and 0 < speeds[0] < 1
        while simulation.advance():
            pass
        assert list(simulation.finished.moves) == [1, 1]

    def test_elastic_jobs_grow_and_shrink(self) -> None:
        """10 s at 4 GPUs, 10 s at 8 (twice the speed), then 70 s of work at 2 (half the speed)."""
        trace = trace_of((0, 4, 100), (10, 1, 1), (20, 1, 1), min_gpus=[2, 1, 1], max_gpus=[8, 1, 1])
        simulation = by_hand(trace, slowdown=Scaling())
        simulation.apply(allocation(r0={0: 4}))
        step(simulation, allocation(r0={0: 4, 1: 4}))
        step(simulation, allocation(r0={1: 2}))
        assert simulation.advance()
        assert simulation.now_s == 20 + (100 - 10 - 20) * 2
        log = simulation.finished
        assert (log.resizes[0], log.moves[0], log.stops[0]) == (2, 0, 0)
        assert log.attained[0] == (10 * 4 + 10 * 8 + 140 * 2) * NS_PER_S

    def test_a_resize_costs_what_a_stop_costs(self) -> None:
        trace = trace_of((0, 4, 100), (10, 1, 1), max_gpus=[8, 1])
        simulation = by_hand(trace, cost=7, slowdown=Scaling())
        simulation.apply(allocation(r0={0: 4}))
        step(simulation, allocation(r0={0: 4, 1: 4}))
        assert simulation.advance()
        assert simulation.now_s == 10 + 7 + 90 / 2

    def test_a_job_that_a_decision_does_not_change_runs_on(self) -> None:
        """Without a decision nothing changes, and jobs that share a node are still affected by each other's end."""
        trace = trace_of((0, 1, 5), (0, 1, 20), (50, 1, 1))
        simulation = by_hand(trace, "1x2", slowdown=Sharing(0.5))
        simulation.apply(allocation(r0={0: 1}, r1={0: 1}))
        instants = []
        while simulation.advance():
            instants.append(simulation.now_s)
        assert instants == [10, 25, 50]
        assert spans_s(simulation) == {"j0": (0, 10), "j1": (0, 25)}
        assert simulation.unfinished == ["j2"]

    def test_several_decisions_at_one_instant(self) -> None:
        simulation = by_hand(trace_of((0, 4, 10), (0, 4, 10)))
        simulation.apply(allocation(r0={0: 4}))
        simulation.apply(allocation(r0={0: 4}, r1={1: 4}))
        while simulation.advance():
            pass
        assert spans_s(simulation) == {"j0": (0, 10), "j1": (0, 10)}
        assert simulation.finished.stops.tolist() == [0, 0]


class TestRefused:
    """A decision is refused whole: the text says why, and nothing has changed."""

    TRACE = trace_of(
        (0, 4, 100), (0, 4, 100), (0, 2, 100), (0, 6, 100), preemptible=[True, False, True, True], max_gpus=[4, 4, 3, 6]
    )
    CHANGES = (NodeChange(0.0, 3, "drain"),)

    def simulation(self, **spec: object) -> Simulation:
        """Four nodes of 4, the last drained; rows 0 (node 0) and 1 (node 1, not preemptible) run, rows 2 and 3 wait."""
        policy = Does(lambda state: Decision({}), **spec) if spec else None
        simulation = Simulation(
            self.TRACE, parse_cluster("4x4"), policy, Settings(changes=self.CHANGES, preempt_cost_s=3.0)
        )
        assert simulation.advance()
        simulation.state()
        simulation.apply(allocation(r0={0: 4}, r1={1: 4}))
        return simulation

    @pytest.mark.parametrize(
        ("decision", "text"),
        [
            (
                allocation(r1={1: 4}, r2={2: 2}, r4={2: 1}),
                "it places a job of a row that is not one of the 4 active ones",
            ),
            (Decision({-1: Placement((0,), (1,))}), "it stops job j1, which is not preemptible"),
            (
                Decision({-1: Placement((0,), (1,)), 1: Placement((1,), (4,))}),
                "a row that is not one of the 4 active ones",
            ),
            (allocation(r0={0: 4}), "it stops job j1, which is not preemptible"),
            (allocation(r1={0: 4}), "it moves job j1, which is not preemptible"),
            (
                allocation(r0={0: 4}, r1={1: 4}, r2={3: 2}),
                "it places job j2 on node 3, which does not exist or is not up",
            ),
            (
                allocation(r0={0: 4}, r1={1: 4}, r2={4: 2}),
                "it places job j2 on node 4, which does not exist or is not up",
            ),
            (
                Decision({1: Placement((1,), (4,)), 2: Placement((-1,), (2,))}),
                "on node -1, which does not exist or is not up",
            ),
            (allocation(r0={0: 4}, r1={1: 4}, r2={1: 2}), "it gives job j2 2 GPUs of node 1, which has 0 free"),
            (allocation(r1={1: 4}, r2={2: 2}, r3={0: 3, 2: 3}), "it gives job j3 3 GPUs of node 2, which has 2 free"),
            (allocation(r1={1: 4}, r3={2: 6}), "it gives job j3 6 GPUs of node 2, which has 4 free"),
            (allocation(r1={1: 4}, r3={2: 4, 0: 1}), "it gives job j3 5 GPUs; it takes 6"),
            (allocation(r1={1: 4}, r2={2: 4}), "it gives job j2 4 GPUs; it takes 2 to 3"),
            (
                Decision({1: Placement((1,), (4,)), 2: Placement((2, 2), (1, 1))}),
                "on nodes (2, 2); name each node once",
            ),
            (Decision({1: Placement((1,), (4,)), 2: Placement((0, 2), (0, 2))}), "it gives job j2 0 GPUs of node 0"),
            (Decision({1: Placement((1,), (4,)), 2: Placement((0, 2), (-1, 3))}), "it gives job j2 -1 GPUs of node 0"),
            (Decision({1: Placement((1,), (4,)), 2: Placement((), ())}), "it gives job j2 0 GPUs; it takes 2 to 3"),
        ],
    )
    def test_a_caller_may_decide_instead_of_a_policy(self, decision: Decision, text: str) -> None:
        simulation = self.simulation()
        before = self.look(simulation)
        with pytest.raises(DecisionError) as raised:
            simulation.apply(decision)
        assert str(raised.value).startswith("decision 2 of the caller, at 0 s, cannot be carried out: it ")
        assert text in str(raised.value)
        assert self.look(simulation) == before
        simulation.apply(allocation(r0={0: 4}, r1={1: 4}, r2={2: 3}))  # and the next one is carried out
        assert [job.occupied for job in simulation.jobs()] == [4, 4, 3, 0]

    @pytest.mark.parametrize(
        ("decision", "text"),
        [
            (allocation(r1={1: 4}), "it stops job j0, and its spec says that it does not preempt"),
            (allocation(r0={2: 4}, r1={1: 4}), "it moves job j0, and its spec says that it does not preempt"),
            (allocation(r0={0: 4}, r1={1: 4}, r2={2: 3}), "it gives job j2 3 GPUs; it takes 2"),
        ],
    )
    def test_a_decision_beyond_the_spec_of_the_policy_is_refused(self, decision: Decision, text: str) -> None:
        simulation = self.simulation(name="meek", preempts=False)
        before = self.look(simulation)
        with pytest.raises(DecisionError) as raised:
            simulation.apply(decision)
        assert str(raised.value) == f"decision 2 of meek, at 0 s, cannot be carried out: {text}"
        assert self.look(simulation) == before

    def test_a_decision_within_the_spec_of_the_policy_is_applied(self) -> None:
        simulation = self.simulation(name="bold", preempts=True, resizes=True)
        simulation.apply(allocation(r1={1: 4}, r2={2: 3}))
        assert [job.occupied for job in simulation.jobs()] == [0, 4, 3, 0]

    def test_a_policy_that_decides_so_ends_the_run_with_the_same_words(self) -> None:
        policy = Does(lambda state: allocation(r0={0: 9}), name="greedy")
        with pytest.raises(
            DecisionError,
            match="decision 1 of greedy, at 0 s, cannot be carried out: it gives job j0 9 GPUs; it takes 4",
        ):
            ran(trace_of((0, 4, 10)), "1x4", policy)

    def test_a_fallback_decides_in_place_of_an_impossible_decision(self) -> None:
        policy = Replaced(allocation(r0={0: 9}), allocation(r0={0: 4}))
        simulation = ran(trace_of((0, 4, 10)), "1x4", policy)
        assert list(simulation.finished.finish) == [10 * NS_PER_S]
        assert policy.problems == [
            "decision 1 of replaced, at 0 s, cannot be carried out: it gives job j0 9 GPUs; it takes 4"
        ]

    @pytest.mark.parametrize("instead", [allocation(r0={0: 8}), None])
    def test_a_fallback_that_decides_no_better_ends_the_run(self, instead: Decision | None) -> None:
        policy = Replaced(allocation(r0={0: 9}), instead)
        gpus = 9 if instead is None else 8
        with pytest.raises(DecisionError, match=f"it gives job j0 {gpus} GPUs"):
            ran(trace_of((0, 4, 10)), "1x4", policy)
        assert len(policy.problems) == 1

    def test_a_decision_about_another_instant_is_refused(self) -> None:
        simulation = by_hand(trace_of((0, 4, 10), (0, 4, 50), (20, 4, 1)), "1x4")
        simulation.apply(allocation(r0={0: 4}))
        assert simulation.advance()
        with pytest.raises(
            DecisionError, match="time has gone on since the state was read; read the state of this instant"
        ):
            simulation.apply(allocation(r0={0: 4}))  # row 0 is another job now
        simulation.state()
        simulation.apply(allocation(r0={0: 4}))
        assert [job.index for job in simulation.jobs() if job.occupied] == [1]

    def test_without_a_policy_asking_for_a_decision_is_refused(self) -> None:
        simulation = by_hand(trace_of((0, 4, 10)))
        with pytest.raises(SettingError, match="this simulation has no policy that could decide"):
            simulation.run()
        with pytest.raises(SettingError, match="this simulation has no policy that could decide"):
            simulation.decide()

    @staticmethod
    def look(simulation: Simulation) -> tuple[object, ...]:
        """All that a decision could change."""
        loop = simulation.loop
        fields = (
            "index",
            "state",
            "occupied",
            "left",
            "overhead",
            "stops",
            "moves",
            "resizes",
            "finish",
            "start",
            "key",
        )
        jobs = [
            [getattr(job, name) for name in fields] + [list(job.nodes), list(job.counts)] for job in simulation.jobs()
        ]
        queues = [[job.index for job in queue] for queue in loop.queues]
        return jobs, queues, list(loop.pool.free), loop.pool.total, loop.num_waiting, loop.timer, simulation.decisions


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_decisions_leave_a_sound_run(data: st.DataObject) -> None:
    """After random decisions, most of them impossible, the records add up in the original and in forks."""
    rows = data.draw(
        st.lists(st.tuples(st.integers(0, 60), st.integers(1, 6), st.integers(1, 40)), min_size=1, max_size=8)
    )
    trace = trace_of(
        *rows, max_gpus=[min(8, row[1] + 2) for row in rows], min_gpus=[max(1, row[1] - 2) for row in rows]
    )
    simulation = Simulation(trace, parse_cluster("2x4"), None, Settings(preempt_cost_s=1.5, record=True), [Scaling()])  # type: ignore[list-item]
    refused = 0
    for _ in range(30):
        if not simulation.advance():
            break
        jobs = simulation.jobs()
        wanted: dict[int, Placement] = {}
        for row in range(len(jobs)):
            occupied = data.draw(st.dictionaries(st.integers(0, 1), st.integers(1, 4), max_size=2))
            if occupied:
                wanted[row] = Placement.of(occupied)
        fork = simulation.fork()
        try:
            simulation.apply(Decision(wanted))
        except DecisionError:
            refused += 1
            with pytest.raises(DecisionError):
                fork.apply(Decision(wanted))
            continue
        fork.apply(Decision(wanted))
        assert [(job.index, job.occupied, job.finish) for job in fork.jobs()] == [
            (job.index, job.occupied, job.finish) for job in simulation.jobs()
        ]
        pool = simulation.loop.pool
        assert pool.total + sum(job.occupied for job in simulation.jobs()) == 8
    log = simulation.finished
    for place, job in enumerate(log.index):
        assert log.wait[place] + log.service[place] == log.finish[place] - trace.submit_ns[job]
    # Jobs that still run are stopped, so that every run is recorded.
    if simulation.jobs():
        simulation.apply(Decision({}))
    audit_gpus(simulation)


def test_a_policy_may_decide_after_the_caller() -> None:
    simulation = by_hand(trace_of((0, 4, 10), (0, 8, 10)))
    simulation.apply(allocation(r0={1: 4}))
    fork = simulation.fork(baseline("fifo"))
    fork.run()
    assert spans_s(fork) == {"j0": (0, 10), "j1": (10, 20)}
