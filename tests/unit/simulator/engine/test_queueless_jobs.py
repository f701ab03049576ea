"""Running jobs without a queue: the starts of a simulation give the finishes of that simulation."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cluster.cluster import parse_cluster
from simulator.cluster.topology import Topology, rack_tree
from simulator.engine.queueless_jobs import QueuelessJobs
from simulator.engine.simulation import Simulation
from simulator.kernel.constants import NEVER
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.links.max_min import MaxMin
from simulator.slowdown.profiles.model_profiles import ModelProfile
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.trace import NS_PER_S, Trace
from tests.unit.simulator.engine.build import RECORDED, Sharing, Span, baseline, spans
from tests.unit.simulator.engine.scenarios import Scenario, scenarios, traces
from tests.unit.simulator.engine.test_laws import drawn

S = NS_PER_S


def replayed(simulation: Simulation, models: list[SlowdownModel]) -> dict[int, int]:
    """The finishes, by row, of jobs that start and stop as they did in that run."""
    trace, runs = simulation.trace, [run for run in spans(simulation) if run.end > run.start]
    finish = dict(zip(simulation.finished.index, simulation.finished.finish, strict=True))
    left = {row: int(work) for row, work in enumerate(trace.duration_ns)}
    work = QueuelessJobs(simulation.cluster.gpus, models)
    rows: dict[int, int] = {}
    done: dict[int, int] = {}
    for now in sorted({edge for run in runs for edge in (run.start, run.end)}):
        done |= {rows.pop(job): at for job, at in work.advance_to(now)}
        for job, row in list(rows.items()):
            if any(run.job == row and run.end == now != finish[row] for run in runs):
                left[row] = work.stop(job)
                del rows[job]
        for run in sorted((run for run in runs if run.start == now), key=lambda run: run.job):
            rows[_start(work, trace, run, left[run.job])] = run.job
    assert not rows
    assert len(work) == 0
    return done


def _start(work: QueuelessJobs, trace: Trace, run: Span, left_ns: int) -> int:
    return work.start(
        left_ns,
        list(run.occupied),
        list(run.occupied.values()),
        model=trace.model[run.job],
        batch_size=int(trace.batch_size[run.job]),
        requested_gpus=int(trace.num_gpus[run.job]),
    )


class TestLikeTheEngine:
    @given(scenarios(sharing=True, costs=(0.0,)))
    @drawn
    def test_with_stops_and_starts_elsewhere(self, scenario: Scenario) -> None:
        simulation = scenario.run()
        finished = simulation.finished
        assert replayed(simulation, [Sharing()]) == dict(zip(finished.index, finished.finish, strict=True))

    @given(traces(16, fixed=False), st.randoms(use_true_random=False))
    @drawn
    def test_on_shared_links(self, trace: Trace, rng: random.Random) -> None:
        named = Trace.of(
            "named",
            trace.job_ids,
            trace.submit_ns,
            trace.num_gpus,
            trace.duration_ns,
            model=[rng.choice(["vgg16", "moe", "", "graphsage"]) for _ in trace.job_ids],
            batch_size=[rng.choice([-1, 32]) for _ in trace.job_ids],
        )
        cluster = parse_cluster("8x2")

        def models() -> list[SlowdownModel]:
            return [MaxMin(cluster.topology, paper_profiles(), sharing="duty")]

        simulation = Simulation(named, cluster, baseline("fifo", anywhere=True), RECORDED, models())
        simulation.run()
        finished = simulation.finished
        assert replayed(simulation, models()) == dict(zip(finished.index, finished.finish, strict=True))

    @given(scenarios(names=("fifo", "srtf"), sharing=True, costs=(0.0,)), st.lists(st.integers(1, 10**12), max_size=30))
    @drawn
    def test_reading_the_state_changes_nothing(self, scenario: Scenario, steps: list[int]) -> None:
        trace = scenario.trace

        def finishes(looks: list[int]) -> list[tuple[int, int]]:
            work = QueuelessJobs([8, 8], [Sharing()])
            for row in range(min(len(trace), 4)):
                work.start(int(trace.duration_ns[row]), [0, 1], [1, 1])
            done = []
            for look in looks:
                done += work.advance_to(work.now_ns + look)
                work.next_finish_ns()
            return done + work.advance_to(10**16)

        assert finishes(steps) == finishes([])


class TestByHand:
    def test_two_on_a_node_slow_each_other_down_while_both_are_there(self) -> None:
        """Base 0.5: 60 s together do 30 s of work each; the first is done at 60 s, and the second does its 70 s alone."""
        work = QueuelessJobs([4], [Sharing(0.5)])
        first, second = work.start(30 * S, [0], [2]), work.start(100 * S, [0], [2])
        assert (work.speed(first), work.speed(second)) == (0.5, 0.5)
        assert work.next_finish_ns() == 60 * S
        assert work.advance_to(60 * S) == [(first, 60 * S)]
        assert (work.speed(second), work.left_ns(second)) == (1.0, 70 * S)
        assert work.advance_to(1000 * S) == [(second, 130 * S)]
        assert work.next_finish_ns() == NEVER

    def test_a_paused_job_keeps_gpus_and_work_and_slows_no_other(self) -> None:
        work = QueuelessJobs([4], [Sharing(0.5)])
        first, second = work.start(100 * S, [0], [2]), work.start(100 * S, [0], [2])
        work.advance_to(40 * S)
        work.pause(first)
        work.pause(first)
        assert (work.speed(first), work.speed(second)) == (0.0, 1.0)
        with pytest.raises(ValueError, match="1 GPUs of node 0, which has 0 free"):
            work.start(S, [0], [1])
        work.advance_to(70 * S)
        assert (work.left_ns(first), work.left_ns(second)) == (80 * S, 50 * S)
        work.resume(first)
        work.resume(first)
        # 100 s together do 50 s each; then the first is alone with 30.
        assert work.advance_to(1000 * S) == [(second, 170 * S), (first, 200 * S)]

    def test_a_stopped_job_reports_its_remaining_work_and_frees_its_gpus(self) -> None:
        work = QueuelessJobs([4], [Sharing(0.5)])
        first, second = work.start(100 * S, [0], [2]), work.start(100 * S, [0], [2])
        work.advance_to(40 * S)
        assert work.stop(first) == 80 * S
        work.pause(second)
        assert work.stop(second) == 80 * S
        assert (len(work), work.next_finish_ns()) == (0, NEVER)
        third = work.start(10 * S, [0], [4])
        assert work.advance_to(60 * S) == [(third, 50 * S)]

    def test_a_ring_over_shared_links_takes_as_long_as_its_bytes(self) -> None:
        """Two jobs on the same two NICs get half of each: their bytes take twice as long as for one alone."""
        topology: Topology = rack_tree([8, 8], [1, 1], [0, 0], nic_gbs=1.0)
        profile = paper_profiles().of("vgg16")
        work = QueuelessJobs([8, 8], [MaxMin(topology, paper_profiles(), reference="alone")])
        jobs = [work.start(100 * S, [0, 1], [4, 4], model="VGG-16") for _ in range(2)]
        alone_s = profile.bytes / 1e9  # 2 (m-1)/m of the bytes for m = 2, at 1 GB/s
        factor = profile.step_s(alone_s) / profile.step_s(2 * alone_s)
        assert [work.speed(job) for job in jobs] == [factor, factor]
        assert factor < 0.6
        done = work.advance_to(10**15)
        assert [at for _, at in done] == [pytest.approx(100 * S / factor, abs=1)] * 2

    def test_jobs_without_gpus_pass_the_time(self) -> None:
        work = QueuelessJobs([1], [Sharing(0.5)])
        work.start(10 * S, [0], [1])
        for _ in range(3):
            work.start(10 * S, [], [])
        assert [at for _, at in work.advance_to(10 * S)] == [10 * S] * 4

    def test_a_cluster_without_gpus(self) -> None:
        work = QueuelessJobs([])
        job = work.start(5, [], [])
        assert work.advance_to(5) == [(job, 5)]

    def test_work_without_end_never_ends(self) -> None:
        work = QueuelessJobs([1])
        work.advance_to(6 * 10**18)
        job = work.start(10**30, [0], [1])
        assert work.next_finish_ns() == NEVER
        assert work.advance_to(7 * 10**18) == []
        assert work.left_ns(job) == 3 * 10**18

    @pytest.mark.parametrize(
        ("nodes", "counts"), [([1], [1]), ([-1], [1]), ([0], [0]), ([0], [3]), ([0, 0], [1, 1]), ([0], [])]
    )
    def test_more_gpus_than_a_node_has_are_refused(self, nodes: list[int], counts: list[int]) -> None:
        with pytest.raises(ValueError, match="node"):
            QueuelessJobs([2]).start(S, nodes, counts)

    def test_state_of_finished_jobs_is_dropped(self) -> None:
        work = QueuelessJobs([4], [Sharing()])

        def pass_through(count: int) -> int:
            for _ in range(count):
                work.start(S, [0], [2])
                stopped = work.start(S, [0], [2])
                work.advance_to(work.now_ns + S // 2)
                work.stop(stopped)
                work.advance_to(work.now_ns + 2 * S)
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            before = pass_through(200)
            grown = pass_through(2000) - before
        finally:
            tracemalloc.stop()
        assert len(work) == 0
        assert grown < 20_000


@pytest.mark.parametrize(("batch_size", "same"), [(-1, True), (8 * 100, True), (100, False)])
def test_a_batch_is_divided_among_the_gpus_of_its_job(batch_size: int, same: bool) -> None:
    # Given profiles that were taken with 100 examples a GPU
    cluster = parse_cluster("2x8")
    profiles = replace(paper_profiles(), models={"m": ModelProfile(1.0, 12.5e9, batch=100)}, default="m")

    def left_after_a_second(batch: int) -> int:
        work = QueuelessJobs([8, 8], [MaxMin(cluster.topology, profiles)])
        job, _ = (work.start(10**10, [0, 1], [4, 4], model="m", batch_size=batch) for _ in range(2))
        work.advance_to(10**9)
        return work.left_ns(job)

    # Then jobs of 8 GPUs and 800 examples that share links train as the profile says
    assert (left_after_a_second(batch_size) == left_after_a_second(800)) is same
