"""Runs that would never end stop with an error that says why."""

from __future__ import annotations

import pytest

from policies.api import Decision
from policies.model import ClusterState, Placement
from simulator.cluster.cluster import parse_cluster
from simulator.engine import stall_watch as stall
from simulator.engine.settings import NodeChange, Settings
from simulator.engine.simulation import Simulation
from simulator.engine.stall_watch import IDLE_PATIENCE, PATIENCE
from simulator.errors import SettingError
from simulator.traces.trace import NS_PER_S
from tests.unit.simulator.engine.build import BASELINES, FREE, Asked, Does, baseline, ran, spans_s, trace_of

TWO_LONG = trace_of((0, 1, 1_000), (0, 1, 1_000))


class TestRoundsThatDoNoWork:
    @pytest.mark.parametrize("name", ["las", "las-count"])
    @pytest.mark.parametrize("cost", [5.0, 7.0, 1e6])
    def test_stops_that_cost_a_whole_round(self, name: str, cost: float) -> None:
        with pytest.raises(SettingError) as raised:
            ran(TWO_LONG, "1x1", baseline(name, round_s=5.0), Settings(preempt_cost_s=cost))
        assert str(raised.value) == (
            f"no job does any work: in {PATIENCE} rounds of 5 s policy {name} stopped jobs before they had served what a stop "
            f"costs (up to {cost:g} s of overhead); use rounds that are longer than that (--round), or a lower --preempt-cost"
        )

    def test_a_policy_with_rounds_may_also_stall(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stall, "PATIENCE", 500)
        with pytest.raises(SettingError, match="of 5 s policy turns stopped jobs"):
            ran(TWO_LONG, "1x1", _Turns(round_s=5.0), Settings(preempt_cost_s=7.0))

    def test_a_stall_is_found_before_the_last_arrival(self) -> None:
        trace = trace_of((0, 1, 1_000), (0, 1, 1_000), (10**8, 1, 1))
        with pytest.raises(SettingError, match="no job does any work"):
            ran(trace, "1x1", baseline("las", round_s=5.0), Settings(preempt_cost_s=7.0))

    def test_a_fork_finds_a_stall_too(self) -> None:
        simulation = Simulation(
            TWO_LONG, parse_cluster("1x1"), baseline("las", round_s=5.0), Settings(preempt_cost_s=7.0)
        )
        simulation.run(until_s=20_000)
        with pytest.raises(SettingError, match="no job does any work"):
            simulation.fork().run()
        simulation.fork(baseline("fifo")).run()


class TestRoundsThatDoSome:
    @pytest.fixture(autouse=True)
    def less_patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stall, "PATIENCE", 1_000)

    def test_a_little_work_in_each_round_is_no_stall(self) -> None:
        """4.999 of 5 s are overhead: a ms of work in each round, and yet it ends: after thousands of rounds."""
        trace = trace_of((0, 1, 7), (0, 1, 7))
        simulation = ran(trace, "1x1", baseline("las", round_s=5.0), Settings(preempt_cost_s=4.999))
        assert simulation.unfinished == []
        assert simulation.decisions > 2 * stall.PATIENCE

    def test_very_long_overhead_is_no_stall(self) -> None:
        """B is stopped once, and then serves 4,000 rounds of overhead while a third job waits for all the cluster."""
        trace = trace_of((0, 2, 1), (0, 1, 10), (1, 1, 10**6), (2, 2, 10**7))
        simulation = ran(trace, "1x2", baseline("tiresias", round_s=5.0), Settings(preempt_cost_s=2e4))
        assert simulation.unfinished == []
        assert simulation.decisions > 4 * stall.PATIENCE

    def test_work_of_one_job_beside_jobs_in_a_cycle_is_no_stall(self) -> None:
        """The job that may not be stopped works on for three times the patience; until it ends, the other two do nothing."""
        length = 5 * 3 * stall.PATIENCE
        trace = trace_of((0, 1, length), (0, 1, 40), (0, 1, 40), preemptible=[False, True, True])
        simulation = ran(trace, "1x2", baseline("las", round_s=5.0), Settings(preempt_cost_s=7.0))
        assert simulation.unfinished == []
        assert spans_s(simulation)["j0"] == (0, length)
        assert min(finish for job, (_, finish) in spans_s(simulation).items() if job != "j0") > length


class TestNobodyCanRun:
    DOWN = Settings(preempt_cost_s=0.0, changes=(NodeChange(5.0, 0, "down"),))

    @pytest.mark.parametrize("asked", [False, True])
    @pytest.mark.parametrize("name", BASELINES)
    def test_the_only_node_goes_down_for_good(self, name: str, asked: bool) -> None:
        policy = baseline(name)
        trace = trace_of((0, 1, 3), (0, 1, 10), (100, 1, 1))
        simulation = ran(trace, "1x1", Asked(policy) if asked else policy, self.DOWN)
        assert simulation.unfinished == ["j1", "j2"]
        assert spans_s(simulation) == {"j0": (0, 3)}
        assert not simulation.advance()

    @pytest.mark.parametrize("asked", [False, True])
    @pytest.mark.parametrize("name", BASELINES)
    def test_jobs_wait_for_a_node_that_comes_back(self, name: str, asked: bool) -> None:
        policy = baseline(name)
        changes = (*self.DOWN.changes, NodeChange(400.5, 0, "up"))
        settings = Settings(preempt_cost_s=0.0, changes=changes)
        simulation = ran(trace_of((0, 1, 10)), "1x1", Asked(policy) if asked else policy, settings)
        assert spans_s(simulation) == {"j0": (0, 410.5)}
        assert simulation.finished.failures[0] == 1

    @pytest.mark.parametrize("asked", [False, True])
    @pytest.mark.parametrize("name", BASELINES)
    def test_a_size_that_fits_on_what_is_up_in_no_state_waits(self, name: str, asked: bool) -> None:
        """One node of two is left: the job of both waits, and fifo's queue with it; others run."""
        policy = baseline(name)
        changes = (NodeChange(0.0, 1, "drain"),)
        simulation = ran(
            trace_of((0, 8, 10), (1, 4, 10)), "2x4", Asked(policy) if asked else policy, Settings(0, changes=changes)
        )
        assert simulation.unfinished == (["j0", "j1"] if name == "fifo" else ["j0"])

    def test_a_policy_that_never_starts_anything(self) -> None:
        never = Does(lambda state: Decision({}), round_s=1.0)
        simulation = ran(trace_of((0, 1, 10)), "1x1", never)
        assert simulation.unfinished == ["j0"]
        assert simulation.now_s == IDLE_PATIENCE

    def test_a_policy_that_starts_jobs_late_is_no_stall(self) -> None:
        def late(state: ClusterState) -> Decision:
            return Decision({0: Placement((0,), (1,))} if state.jobs.ids and state.time_s >= 500 else {})

        assert spans_s(ran(trace_of((0, 1, 10)), "1x1", Does(late, round_s=1.0))) == {"j0": (500, 510)}

    def test_a_policy_that_stops_every_job_now_and_then_goes_on(self) -> None:
        def every_other(state: ClusterState) -> Decision:
            return Decision({0: Placement((0,), (1,))} if state.jobs.ids and state.time_s % 2 == 0 else {})

        simulation = ran(trace_of((0, 1, 2_000)), "1x1", Does(every_other, round_s=1.0))
        assert spans_s(simulation) == {"j0": (0, 3_999)}
        assert simulation.finished.stops[0] == 1_999


class TestRoundsThemselves:
    @pytest.mark.parametrize("round_s", [-1.0, float("nan"), float("inf"), 1e-10])
    def test_of_impossible_length(self, round_s: float) -> None:
        with pytest.raises(SettingError, match="policy does has rounds of"):
            Simulation(TWO_LONG, parse_cluster("1x1"), Does(lambda state: Decision({}), round_s=round_s), FREE)

    def test_whole_multiples_however_odd_the_present_instant(self) -> None:
        trace = trace_of((0.000_000_001, 1, 12), (0.000_000_001, 1, 12))
        simulation = Simulation(trace, parse_cluster("1x1"), baseline("las", round_s=5.0), FREE)
        instants = []
        while simulation.advance():
            simulation.decide()
            instants.append(simulation.loop.now)
        # A 5, B 5, A 5, B 5 (10 each), A its last 2, B its last 2; the first ns is A's too.
        assert instants == [1, *(5 * NS_PER_S * turn for turn in range(1, 5)), 22 * NS_PER_S + 1, 24 * NS_PER_S + 1]


class _Turns:
    """The job with the least service runs; the cluster has one GPU."""

    def __init__(self, round_s: float) -> None:
        self.spec = Does(lambda state: Decision({}), name="turns", round_s=round_s).spec

    def decide(self, state: ClusterState) -> Decision:
        row = int(state.jobs.attained_gpu_s.argmin())
        return Decision({row: Placement((0,), (1,))})
