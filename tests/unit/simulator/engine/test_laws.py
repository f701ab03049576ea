"""Laws that hold in every run, for any drawn scenario."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.model import EstimateSource
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.traces.trace import NS_PER_S, Trace
from tests.unit.simulator.engine.build import (
    FREE,
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
from tests.unit.simulator.engine.scenarios import Scenario, scenarios, traces

drawn = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def digest(simulation: Simulation) -> str:
    """Digest of all logs of a run."""
    log = simulation.finished
    columns = [
        log.index,
        log.first_start,
        log.finish,
        log.service,
        log.wait,
        log.overhead,
        log.lost,
        log.stops,
        log.nodes,
    ]
    text = repr([column.tolist() for column in columns]) + repr(spans(simulation)) + str(simulation.decisions)
    return sha256(text.encode()).hexdigest()


class TestConservation:
    @given(scenarios(failures=True))
    @drawn
    def test_every_job_finishes_on_gpus_of_its_own(self, scenario: Scenario) -> None:
        simulation = scenario.run()
        assert sorted(simulation.finished.index) == list(range(len(scenario.trace)))
        assert simulation.unfinished == []
        audit_gpus(simulation)
        audit_jobs(simulation)
        pool = simulation.loop.pool
        assert list(pool.free) == list(pool.capacity)

    @given(scenarios(failures=True, sharing=False))
    @drawn
    def test_no_work_is_lost_or_made(self, scenario: Scenario) -> None:
        log = scenario.run().finished
        for place, job in enumerate(log.index):
            done = log.service[place] - log.overhead[place] - log.lost[place]
            assert done == scenario.trace.duration_ns[job]

    @given(scenarios(sharing=True, costs=(0.0,)))
    @drawn
    def test_speed_over_time_is_the_work(self, scenario: Scenario) -> None:
        """From the spans alone, the jobs that share a node are known at every instant, and so is the speed of every job."""
        simulation = scenario.run()
        runs = [span for span in spans(simulation) if span.end > span.start]
        edges = sorted({edge for run in runs for edge in (run.start, run.end)})
        work = dict.fromkeys(range(len(scenario.trace)), 0.0)
        pieces = dict.fromkeys(work, 0)
        for begin, end in pairwise(edges):
            now = [run for run in runs if run.start <= begin and run.end >= end]
            for run in now:
                others = sum(1 for other in now if other is not run and set(other.occupied) & set(run.occupied))
                work[run.job] += (end - begin) * 0.7**others
                pieces[run.job] += 1
        for job, done in work.items():
            # The last piece ends at a whole ns; each change of speed rounds to one; doubles carry 53 bits.
            assert done == pytest.approx(int(scenario.trace.duration_ns[job]), abs=pieces[job] + 2, rel=1e-12)

    @given(scenarios(failures=True))
    @drawn
    def test_the_same_seed_gives_the_same_run(self, scenario: Scenario) -> None:
        assert digest(scenario.run()) == digest(scenario.run())

    @given(scenarios(failures=True, asked=False))
    @settings(drawn, max_examples=15)
    def test_the_kernel_and_the_policy_agree(self, scenario: Scenario) -> None:
        asked = replace(scenario, asked=True)
        assert outcomes(scenario.run()) == outcomes(asked.run())

    @given(scenarios(sharing=True), st.data())
    @drawn
    def test_reading_the_state_changes_nothing(self, scenario: Scenario, data: st.DataObject) -> None:
        looked = scenario.start()
        while looked.advance():
            if data.draw(st.booleans()):
                looked.state()
            looked.decide()
            looked.jobs()
        assert digest(looked) == digest(scenario.run())


class TestOrders:
    """No job that the order puts later starts while an earlier one, which could start in its place, waits on."""

    @given(traces(8, fixed=False), st.booleans())
    @drawn
    def test_fifo_starts_in_order_of_arrival(self, trace: Trace, anywhere: bool) -> None:
        log = ran(trace, "2x4", baseline("fifo", anywhere=anywhere)).finished
        first = dict(zip(log.index, log.first_start, strict=True))
        starts = [first[job] for job in range(len(first))]
        assert starts == sorted(starts)
        assert all(stops == 0 for stops in log.stops)

    @pytest.mark.parametrize(
        ("name", "key"),
        [
            ("fifo-skip", lambda trace, job: 0),
            ("sjf", lambda trace, job: int(trace.duration_ns[job])),
            ("fewest-gpus", lambda trace, job: int(trace.num_gpus[job])),
        ],
    )
    def test_of_equal_size_the_first_in_the_order_starts_first(self, name: str, key: object) -> None:
        @given(traces(8, fixed=False), st.booleans())
        @drawn
        def check(trace: Trace, anywhere: bool) -> None:
            log = ran(trace, "2x4", baseline(name, anywhere=anywhere)).finished
            first = dict(zip(log.index, log.first_start, strict=True))
            order = {job: (key(trace, job), job) for job in first}
            for job, start in first.items():
                for other, others_start in first.items():
                    same = trace.num_gpus[job] == trace.num_gpus[other]
                    both_wait = trace.submit_ns[other] <= start < others_start
                    assert not (same and both_wait and order[other] < order[job])
            assert all(stops == 0 for stops in log.stops)

        check()

    @given(traces(1, fixed=False))
    @drawn
    def test_srtf_on_one_gpu_is_the_best_average(self, trace: Trace) -> None:
        """Schrage 1968: of all schedules of one server, shortest remaining time has the least sum of finish times."""
        best = sum(ran(trace, "1x1", baseline("srtf")).finished.finish)
        for name in ("fifo", "sjf", "las", "backfill", "tiresias"):
            assert best <= sum(ran(trace, "1x1", baseline(name, round_s=60.0)).finished.finish)

    @given(traces(8, fixed=False))
    @drawn
    def test_backfilling_never_delays_the_first_of_the_queue(self, trace: Trace) -> None:
        """The job that arrives first at an empty cluster, and every job that heads the queue, start as promised: no later than
        when all that ran at its turn have ended."""
        simulation = ran(trace, "2x4", baseline("backfill"), replace(FREE, record=True))
        log = simulation.finished
        first = dict(zip(log.index, log.first_start, strict=True))
        finish = dict(zip(log.index, log.finish, strict=True))
        for job, start in first.items():
            head_since = max([int(trace.submit_ns[job]), *(first[other] for other in range(job))])
            running_then = [
                finish[other] for other in first if first[other] < head_since < finish[other] or other < job
            ]
            assert start <= max([head_since, *running_then])

    @given(traces(4, fixed=False))
    @drawn
    def test_las_shares_one_node_fairly(self, trace: Trace) -> None:
        """At every round, a job that waits while another continues has attained at least as much service as that one."""
        simulation = Simulation(trace, ran(trace, "1x4", baseline("fifo")).cluster, baseline("las", round_s=10.0), FREE)
        while simulation.advance():
            simulation.decide()
            loop = simulation.loop
            free = loop.pool.total
            jobs = simulation.jobs()
            running = [job for job in jobs if job.occupied]
            for waiting in (job for job in jobs if not job.occupied):
                behind = [job for job in running if (job.attained, job.index) > (waiting.attained, waiting.index)]
                assert free + sum(job.occupied for job in behind) < waiting.gpus


class TestTime:
    def test_a_batch_at_one_instant_is_one_decision(self) -> None:
        trace = trace_of(*[(5, 1, 10)] * 9)
        simulation = ran(trace, "1x4", baseline("fifo"))
        assert [round(start) for start, _ in spans_s(simulation).values()] == [5] * 4 + [15] * 4 + [25]
        assert simulation.decisions == 4

    def test_a_finish_makes_room_for_a_job_that_arrives_then(self) -> None:
        trace = trace_of((0, 4, 10), (10, 4, 10), (20, 4, 10))
        simulation = ran(trace, "1x4", baseline("fifo"))
        assert spans_s(simulation) == {"j0": (0, 10), "j1": (10, 20), "j2": (20, 30)}
        assert simulation.decisions == 4

    @pytest.mark.parametrize("asked", [False, True])
    def test_nothing_drifts_over_three_years(self, asked: bool) -> None:
        """After 10^8 s a job is stopped 200 times, for a third of a second at a time; no ns is lost."""
        late = 10**8 * NS_PER_S + 1
        rows = 200
        submit = [0, *(late + row * 333_333_333 for row in range(rows))]
        duration = [late + 50 * NS_PER_S + 3, *[111_111_111 + row % 3 for row in range(rows)]]
        trace = Trace.of("late", [f"j{row}" for row in range(rows + 1)], submit, [1] * (rows + 1), duration)
        policy = baseline("srtf")
        simulation = ran(trace, "1x1", Asked(policy) if asked else policy)
        log = simulation.finished
        place = list(log.index).index(0)
        assert log.stops[place] == rows
        assert log.finish[place] == sum(duration)
        assert log.service[place] == duration[0]

    def test_times_beyond_the_clock_never_come(self) -> None:
        """Three jobs of 120 years one after the other: the third would end after 292 years, and does not."""
        century = 120 * 365 * 86_400
        simulation = ran(trace_of((0, 1, century), (0, 1, century), (0, 1, century)), "1x1", baseline("fifo"))
        assert len(simulation.finished.index) == 2
        assert simulation.unfinished == ["j2"]

    def test_states_contain_what_is_known(self) -> None:
        simulation = Simulation(
            trace_of((1.5, 1, 10)), ran(trace_of((0, 1, 1)), "1x1", baseline("fifo")).cluster, None, Settings()
        )
        assert simulation.advance()
        state = simulation.state()
        assert (state.time_s, state.jobs.ids, state.jobs.submit_time_s.tolist()) == (1.5, ("j0",), [1.5])
        assert state.jobs.estimate_source.tolist() == [EstimateSource.TRUTH]
        assert state.jobs.duration_estimate_s.tolist() == [10.0]
