"""Nodes that fail, drain and come back; checkpoints; estimates; shares; nodes of several sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.model import EstimateSource
from simulator.cluster.cluster import cluster_of, parse_cluster
from simulator.engine.node_changes import draw_failures
from simulator.engine.settings import Estimates, NodeChange, Settings
from simulator.engine.simulation import Simulation
from simulator.errors import SettingError, TraceError
from simulator.kernel.nodes import NodePool
from simulator.traces.trace import MAX_TIME_S, NS_PER_S, Trace
from tests.unit.simulator.engine.build import (
    BASELINES,
    FREE,
    RECORDED,
    Asked,
    audit_gpus,
    audit_jobs,
    baseline,
    outcomes,
    ran,
    spans,
    spans_s,
    trace_of,
)


def changing(*changes: tuple[float, int, str], **more: object) -> Settings:
    script = tuple(NodeChange(*change) for change in changes)
    return Settings(**({"preempt_cost_s": 0.0, "changes": script} | more))  # type: ignore[arg-type]


class TestFailures:
    def test_all_work_since_the_start_is_lost_without_checkpoints(self) -> None:
        simulation = ran(trace_of((0, 4, 100)), "2x4", baseline("fifo"), changing((60, 0, "down")))
        assert outcomes(simulation) == {"j0": (0, 160 * NS_PER_S, 160 * NS_PER_S, 0, {1: 4})}
        log = simulation.finished
        assert (log.failures[0], log.lost[0], log.overhead[0], log.wait[0]) == (1, 60 * NS_PER_S, 0, 0)

    def test_only_work_since_the_last_checkpoint_is_with_them(self) -> None:
        settings = changing((60, 0, "down"), checkpoint_interval_s=25, preempt_cost_s=3)
        simulation = ran(trace_of((0, 4, 100)), "2x4", baseline("fifo"), settings)
        assert spans_s(simulation) == {"j0": (0, 60 + 3 + 50)}
        log = simulation.finished
        assert (log.lost[0], log.overhead[0]) == (10 * NS_PER_S, 3 * NS_PER_S)

    def test_what_a_stop_has_saved_is_not_lost(self) -> None:
        """A works 0-30, is stopped for B (30-40), works 40-60, fails: 30 s are safe."""
        trace = trace_of((0, 4, 100), (30, 4, 10))
        simulation = ran(trace, "1x4", baseline("srtf"), changing((60, 0, "down"), (70, 0, "up")))
        assert spans_s(simulation) == {"j0": (0, 140), "j1": (30, 40)}
        assert list(simulation.finished.lost) == [0, 20 * NS_PER_S]

    def test_checkpoints_count_work_and_not_overhead(self) -> None:
        """After its failure at 10 A serves 20 s of overhead and works from 30; at 54 it has one checkpoint, of 20 s."""
        settings = changing(
            (10, 0, "down"), (10, 0, "up"), (54, 0, "down"), (60, 0, "up"), checkpoint_interval_s=20, preempt_cost_s=20
        )
        simulation = ran(trace_of((0, 1, 100)), "1x1", baseline("fifo"), settings)
        assert spans_s(simulation) == {"j0": (0, 60 + 20 + 80)}
        assert simulation.finished.lost[0] == (10 + 4) * NS_PER_S

    def test_every_gang_that_has_a_worker_there_fails_and_others_run_on(self) -> None:
        trace = trace_of((0, 8, 100), (0, 4, 100), (0, 2, 100))
        simulation = ran(trace, "4x4", baseline("fifo"), changing((50, 1, "down")))
        failures = dict(zip(simulation.finished.index, simulation.finished.failures, strict=True))
        assert failures == {0: 1, 1: 0, 2: 0}
        assert spans_s(simulation)["j0"] == (0, 200)  # the third node is half full; a second empty one comes at 100

    def test_jobs_that_are_not_preemptible_fail_too(self) -> None:
        simulation = ran(trace_of((0, 4, 10), preemptible=[False]), "2x4", baseline("srtf"), changing((4, 0, "down")))
        assert spans_s(simulation) == {"j0": (0, 14)}

    def test_a_job_that_finishes_as_its_node_fails_has_finished(self) -> None:
        simulation = ran(trace_of((0, 4, 10)), "1x4", baseline("fifo"), changing((10, 0, "down")))
        assert spans_s(simulation) == {"j0": (0, 10)}
        assert simulation.finished.failures[0] == 0

    def test_a_node_is_down_and_up_again_in_one_instant(self) -> None:
        simulation = ran(trace_of((0, 4, 10)), "1x4", baseline("fifo"), changing((4, 0, "down"), (4, 0, "up")))
        assert spans_s(simulation) == {"j0": (0, 14)}


class TestDrains:
    def test_jobs_run_on_and_no_new_ones_start(self) -> None:
        trace = trace_of((0, 2, 10), (2, 2, 10))
        simulation = ran(trace, "1x4", baseline("fifo-skip"), changing((1, 0, "drain"), (50, 0, "up")))
        assert spans_s(simulation) == {"j0": (0, 10), "j1": (50, 60)}

    def test_a_drained_node_goes_down(self) -> None:
        simulation = ran(trace_of((0, 2, 10)), "2x4", baseline("fifo"), changing((1, 0, "drain"), (5, 0, "down")))
        assert outcomes(simulation)["j0"][4] == {1: 2}
        assert spans_s(simulation) == {"j0": (0, 15)}

    def test_a_stopped_job_does_not_come_back_to_it(self) -> None:
        trace = trace_of((0, 4, 100), (10, 8, 5))
        simulation = ran(trace, "3x4", baseline("srtf"), changing((5, 0, "drain")))
        assert outcomes(simulation)["j1"][4] == {1: 4, 2: 4}
        assert outcomes(simulation)["j0"][3] == 0  # nothing to gain by stopping it

    def test_its_jobs_are_not_stopped_for_gpus_that_no_job_may_have(self) -> None:
        trace = trace_of((0, 4, 100), (10, 4, 5))
        for policy in (baseline("srtf"), Asked(baseline("srtf"))):
            simulation = ran(trace, "1x4", policy, changing((5, 0, "drain"), (200, 0, "up")))
            assert spans_s(simulation) == {"j0": (0, 100), "j1": (200, 205)}


class TestDivision:
    """The division of a job among nodes of several sizes depends on the nodes that are up."""

    CLUSTER = cluster_of({"nodes": [{"count": 2, "gpus": 8}, {"count": 4, "gpus": 4}]})

    def ran(self, trace: Trace, settings: Settings, name: str = "fifo") -> Simulation:
        simulation = Simulation(trace, self.CLUSTER, baseline(name), settings)
        simulation.run()
        return simulation

    def test_on_large_nodes_while_they_are_there_and_on_small_ones_when_not(self) -> None:
        trace = trace_of((0, 16, 10), (20, 16, 10), (50, 16, 10))
        simulation = self.ran(trace, changing((15, 0, "down"), (40, 0, "up")))
        assert [occupied for *_, occupied in outcomes(simulation).values()] == [
            {0: 8, 1: 8},
            {2: 4, 3: 4, 4: 4, 5: 4},
            {0: 8, 1: 8},
        ]

    @pytest.mark.parametrize("name", BASELINES)
    def test_every_policy_sees_it_change(self, name: str) -> None:
        """Before the failure the division of a job of 16 is computed, which must not be reused after it."""
        trace = trace_of((0, 16, 10), (0, 16, 10), (0, 1, 1), (15, 16, 10), (15, 16, 10), (15, 1, 1))
        simulation = self.ran(trace, changing((12, 0, "down"), (12, 1, "drain")), name)
        assert simulation.unfinished == []
        occupied = outcomes(simulation)
        assert [occupied[f"j{row}"][4] for row in (3, 4)] == [{2: 4, 3: 4, 4: 4, 5: 4}] * 2

    def test_jobs_for_which_no_size_of_node_will_do_are_refused_before_the_run(self) -> None:
        """Nodes of 5, 2 and 2: 9 GPUs are neither 5 and 4 nor 2, 2, 2, 2 and 1. Scattered they are there."""
        cluster = cluster_of({"nodes": [{"count": 1, "gpus": 5}, {"count": 2, "gpus": 2}]})
        trace = trace_of((0, 1, 1), (0, 9, 1))
        with pytest.raises(
            TraceError, match=r"job j1 asks for 9 GPUs, which the cluster \(9 GPUs on 3 nodes\) can"
        ) as raised:
            Simulation(trace, cluster, baseline("fifo"), FREE)
        assert raised.value.column == "num_gpus"
        simulation = Simulation(trace, cluster, baseline("fifo", anywhere=True), FREE)
        simulation.run()
        assert outcomes(simulation)["j1"][4] == {0: 5, 1: 2, 2: 2}


class TestDrawnFailures:
    def test_alternate_on_every_node_and_come_from_the_seed(self) -> None:
        cluster = parse_cluster("20x4")
        changes = draw_failures(cluster, 10_000.0, 500.0, 50.0, seed=3)
        assert changes == draw_failures(cluster, 10_000.0, 500.0, 50.0, seed=3)
        assert changes != draw_failures(cluster, 10_000.0, 500.0, 50.0, seed=4)
        assert [change.time_s for change in changes] == sorted(change.time_s for change in changes)
        for node in range(20):
            kinds = [change.change for change in changes if change.node == node]
            assert kinds == ["down", "up"] * (len(kinds) // 2)

    def test_have_the_means_that_were_asked_for(self) -> None:
        changes = draw_failures(parse_cluster("200x1"), 100_000.0, 900.0, 100.0, seed=0)
        by_node: dict[int, list[float]] = {}
        for change in changes:
            by_node.setdefault(change.node, []).append(change.time_s)
        gaps = [np.diff(times) for times in by_node.values()]
        down = np.concatenate([gap[::2] for gap in gaps])
        up = np.concatenate([gap[1::2] for gap in gaps])
        assert np.mean(down) == pytest.approx(100, rel=0.03)  # 20,000 draws: the mean is known to 0.7 %
        assert np.mean(up) == pytest.approx(900, rel=0.03)

    def test_a_run_under_them_ends_with_every_job_done(self) -> None:
        cluster = parse_cluster("4x4")
        trace = trace_of(*[(row * 5, 1 + row * 7 % 16, 40 + row) for row in range(40)])
        changes = draw_failures(cluster, 3_000.0, 200.0, 40.0, seed=1)
        settings = Settings(preempt_cost_s=2.0, changes=changes, checkpoint_interval_s=15.0, record=True)
        for name in ("fifo", "backfill", "srtf", "las"):
            simulation = ran(trace, "4x4", baseline(name), settings)
            assert simulation.unfinished == []
            assert sum(simulation.finished.failures) > 0
            audit_gpus(simulation)
            audit_jobs(simulation)
            self.audit_down(simulation)

    def audit_down(self, simulation: Simulation) -> None:
        """Check that no job occupies GPUs of a node that is down."""
        down: dict[int, float] = {}
        outages: list[tuple[int, float, float]] = []
        for change in simulation.settings.changes:
            if change.change == "down":
                down[change.node] = change.time_s
            else:
                outages.append((change.node, down.pop(change.node) * NS_PER_S, change.time_s * NS_PER_S))
        for span in spans(simulation):
            for node, begin, end in outages:
                if node in span.occupied and span.end > span.start:
                    assert span.end <= begin + 1 or span.start >= end - 1  # times are rounded to ns

    @pytest.mark.parametrize(
        "numbers", [(0, 1, 1), (10, 0, 0), (10, -1, 1), (10, 1, float("nan")), (float("inf"), 1, 1)]
    )
    def test_numbers_that_would_draw_for_ever_are_refused(self, numbers: tuple[float, float, float]) -> None:
        with pytest.raises(SettingError, match="cannot be drawn"):
            draw_failures(parse_cluster("1x1"), *numbers, seed=0)


class TestScripts:
    @pytest.mark.parametrize(
        "change",
        [
            (-1.0, 0, "down"),
            (float("nan"), 0, "down"),
            (float("inf"), 0, "up"),
            (1.0, 2, "down"),
            (1.0, -1, "up"),
            (1.0, 0, "off"),
        ],
    )
    def test_impossible_changes_are_refused(self, change: tuple[float, int, str]) -> None:
        with pytest.raises(
            SettingError, match="a change is one of down, drain, up, at a time of 0 s or later, of a node from 0"
        ):
            Simulation(trace_of((0, 1, 1)), parse_cluster("2x4"), baseline("fifo"), changing(change))

    def test_a_change_before_the_first_job_and_one_after_the_last(self) -> None:
        simulation = ran(trace_of((10, 4, 10)), "2x4", baseline("fifo"), changing((0, 0, "down"), (100, 0, "up")))
        assert outcomes(simulation)["j0"][4] == {1: 4}
        assert simulation.now_s == 100
        assert simulation.loop.pool.total == 8


class TestEstimates:
    def reported(self, estimates: Estimates, **columns: object) -> tuple[list[float], list[int]]:
        """The estimates that a policy sees for jobs of 10, 20 and 30 s that arrive at once."""
        trace = trace_of((0, 1, 10), (0, 1, 20), (0, 1, 30), **columns)
        simulation = Simulation(trace, parse_cluster("1x1"), None, Settings(seed=5, estimates=estimates))
        assert simulation.advance()
        jobs = simulation.state().jobs
        return jobs.duration_estimate_s.tolist(), jobs.estimate_source.tolist()

    def test_true(self) -> None:
        assert self.reported(Estimates()) == ([10, 20, 30], [EstimateSource.TRUTH] * 3)

    def test_limits_and_none_where_there_is_none(self) -> None:
        limits = [60 * NS_PER_S, -1, 5 * NS_PER_S]
        estimates, sources = self.reported(Estimates("limit"), limit_ns=limits)
        assert estimates[0] == 60
        assert np.isnan(estimates[1])
        assert estimates[2] == 5
        assert sources == [EstimateSource.TIME_LIMIT, EstimateSource.UNKNOWN, EstimateSource.TIME_LIMIT]

    def test_noisy_has_median_one_and_the_sigma_that_was_asked_for(self) -> None:
        trace = trace_of(*[(0, 1, 1000)] * 4000)
        simulation = Simulation(trace, parse_cluster("1x1"), None, Settings(estimates=Estimates("noisy", 0.5)))
        assert simulation.advance()
        logs = np.log(simulation.state().jobs.duration_estimate_s / 1000)
        assert np.median(logs) == pytest.approx(0, abs=0.03)
        assert np.std(logs) == pytest.approx(0.5, abs=0.03)

    def test_noisy_at_its_worst_stays_within_the_clock(self) -> None:
        trace = trace_of(*[(0, 1, 10**7)] * 200)
        simulation = Simulation(trace, parse_cluster("1x1"), None, Settings(estimates=Estimates("noisy", 9.9)))
        assert simulation.advance()
        estimates = simulation.state().jobs.duration_estimate_s
        assert (estimates > 0).all()
        assert (estimates <= MAX_TIME_S).all()

    def test_a_job_that_outlives_its_estimate_has_nothing_left(self) -> None:
        trace = trace_of((0, 1, 100), limit_ns=[30 * NS_PER_S])
        settings = changing((50, 1, "drain"), estimates=Estimates("limit"))
        simulation = Simulation(trace, parse_cluster("2x1"), baseline("srtf"), settings)
        simulation.run(until_s=51)
        assert simulation.state().remaining_s.tolist() == [0.0]
        simulation.run()
        assert spans_s(simulation) == {"j0": (0, 100)}

    def test_history_knows_only_what_has_finished_when_a_job_comes(self) -> None:
        """Estimates by user, model and size: the mean of 10 and 20 at 30; none for a job of another user, size or model."""
        rows = [(0, 1, 10), (0, 1, 20), (5, 1, 99), (20, 1, 99), (20, 2, 99), (20, 1, 99), (20, 1, 99)]
        trace = trace_of(*rows, user=[*"uuuuu", "v", "u"], model=[*["m"] * 6, "other"])
        simulation = Simulation(
            trace, parse_cluster("1x8"), baseline("fifo"), Settings(0, estimates=Estimates("history"))
        )
        simulation.run(until_s=20.5)
        estimates = {job.index: job.estimate for job in simulation.jobs()}
        assert estimates == {2: -1, 3: 15 * NS_PER_S, 4: -1, 5: -1, 6: -1}

    @pytest.mark.parametrize("text", ["", "noisy", "noisy:-1", "noisy:nan", "noisy:10", "true:1", "magic"])
    def test_an_unknown_kind_of_estimate_is_refused(self, text: str) -> None:
        with pytest.raises(SettingError, match="write true, limit, history, or noisy:SIGMA"):
            Estimates.parse(text)

    def test_impossible_parameters_of_estimates_are_refused(self) -> None:
        with pytest.raises(SettingError):
            Estimates("magic")
        with pytest.raises(SettingError):
            Estimates("noisy", float("nan"))


class TestShares:
    def test_a_share_of_the_jobs_may_be_stopped(self) -> None:
        trace = trace_of(*[(0, 1, 10)] * 2000, preemptible=[row >= 200 for row in range(2000)])
        simulation = Simulation(trace, parse_cluster("1x1"), None, Settings(preemptible_share=0.6, seed=2))
        assert simulation.advance()
        preemptible = simulation.state().jobs.preemptible
        assert not preemptible[:200].any()
        assert preemptible[200:].mean() == pytest.approx(0.6, abs=0.04)
        again = Simulation(trace, parse_cluster("1x1"), None, Settings(preemptible_share=0.6, seed=2))
        assert again.advance()
        assert (again.state().jobs.preemptible == preemptible).all()

    @pytest.mark.parametrize("name", ["srtf", "srtf-count", "srsf", "las", "las-count", "tiresias"])
    def test_with_none_no_job_is_ever_stopped(self, name: str) -> None:
        trace = trace_of(*[(row * 3 % 50, 1 + row % 4, 1 + row * 37 % 400) for row in range(60)])
        log = ran(trace, "2x4", baseline(name, round_s=20.0), replace(FREE, preemptible_share=0.0)).finished
        assert sum(log.stops) == 0
        assert sum(ran(trace, "2x4", baseline(name, round_s=20.0)).finished.stops) > 0


class TestSettings:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"preempt_cost_s": -1.0},
            {"preempt_cost_s": float("nan")},
            {"preempt_cost_s": float("inf")},
            {"preemptible_share": 1.1},
            {"preemptible_share": float("nan")},
            {"checkpoint_interval_s": 0.0},
            {"checkpoint_interval_s": -5.0},
            {"checkpoint_interval_s": float("nan")},
        ],
    )
    def test_an_impossible_share_is_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(SettingError, match="is not possible; give"):
            Settings(**wrong)  # type: ignore[arg-type]

    def test_costs_by_the_size_of_the_model(self) -> None:
        """vgg16: 138.4 M parameters x 12 bytes, written and read at 1 GB/s, and 20 s to restart."""
        trace = trace_of((0, 1, 100), (10, 1, 5), model=["VGG16", "resnet-18"])
        log = ran(trace, "1x1", baseline("srtf"), Settings()).finished
        assert log.overhead[1] == round((20 + 2 * 138.4e6 * 12 / 1e9) * NS_PER_S)

    def test_overhead_without_end_stays_within_the_clock(self) -> None:
        """Stopped six times at 126 years a stop: the sum is beyond 63 bits. The job never comes back, and nothing wraps."""
        rows = [(0, 1, 100), *[(1 + row, 1, 0.5) for row in range(6)]]
        simulation = ran(trace_of(*rows), "1x1", baseline("srtf"), Settings(preempt_cost_s=MAX_TIME_S))
        assert simulation.unfinished == ["j0"]
        assert len(simulation.finished.index) == 6


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=140),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 2), st.integers(0, 8)), max_size=60),
    st.integers(1, 40),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_pool_finds_what_a_search_of_all_nodes_finds(
    gpus: list[int], steps: list[tuple[int, int, int]], wanted: int
) -> None:
    """More nodes than fit into a word of 64; taken, given back, drained: best fit is the fullest that fits, lowest on ties."""
    pool = NodePool(gpus)
    free, up = list(gpus), [True] * len(gpus)
    for where, kind, amount in steps:
        node = where % len(gpus)
        if kind == 0:
            pool.take(node, min(amount, free[node]))
            free[node] -= min(amount, free[node])
        elif kind == 1:
            back = min(amount, gpus[node] - free[node])
            pool.take(node, -back)
            free[node] += back
        else:
            up[node] = not up[node]
            pool.set_up(node, int(up[node]))
    open_nodes = [node for node in range(len(gpus)) if up[node]]
    assert pool.total == sum(free[node] for node in open_nodes)
    share = 1 + wanted % 8
    pool.divide([share, 0], [1, 0])
    found = pool.place(0, share, 0)
    fitting = [node for node in open_nodes if free[node] >= share]
    assert found == (1 if fitting else 0)
    if fitting:
        assert pool.chosen[0] == min(fitting, key=lambda node: (free[node], node))
    found = pool.place(0, wanted, 1) if wanted > 8 else 0
    if wanted > 8 and not fitting:
        freest = sorted(open_nodes, key=lambda node: (-free[node], node))
        occupied = 0
        expected = []
        for node in freest:
            if occupied < wanted and free[node]:
                expected.append((node, min(free[node], wanted - occupied)))
                occupied += expected[-1][1]
        chosen = [(pool.chosen[place], pool.chosen_gpus[place]) for place in range(found)]
        assert chosen == (expected if occupied == wanted else [])


def test_recorded_series_say_what_the_cluster_looked_like() -> None:
    simulation = ran(trace_of((0, 4, 10), (0, 2, 5), (5, 8, 1)), "2x4", baseline("fifo"), RECORDED)
    series = simulation.loop.series
    assert series is not None
    rows = list(zip(series.time, series.free, series.waiting, series.running, series.empty, strict=True))
    assert rows == [
        (0, 2, 0, 2, 0),
        (5 * NS_PER_S, 4, 1, 1, 1),
        (10 * NS_PER_S, 0, 0, 1, 0),
        (11 * NS_PER_S, 8, 0, 0, 2),
    ]
