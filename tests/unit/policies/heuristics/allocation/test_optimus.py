"""Optimus: its fit of speeds, its shares, its decisions on small states, and whole runs of elastic jobs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies.heuristics.allocation.optimus import Optimus, allot
from policies.model import ClusterState, ProfileTable
from policies.speeds.worker_scaling import fitted, least_squares
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.slowdown.fitting.least_squares import nonnegative
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.trace import NS_PER_S, Trace
from tests.unit.policies.cluster import Job, Node, cluster, states
from tests.unit.policies.valid import check_resizing
from tests.unit.simulator.engine.build import audit_gpus, spans, trace_of

STARTED_S = 500.0
"""When the running jobs of small states started."""


def profiled(state: ClusterState, of_job: list[int], *curves: tuple[float, ...], sizes: list[float]) -> ClusterState:
    """With models of these curves (none: not measured), whose bytes take these shares of their computing time."""
    unknown = (np.nan,) * 4
    ones = np.ones(len(curves))
    profiles = ProfileTable(
        models=tuple(f"m{row}" for row in range(len(curves))),
        of_job=np.array(of_job, dtype=np.int64),
        locality=np.array([curve or unknown for curve in curves]),
        bytes_per_step=np.array(sizes),
        compute_s=ones,
        cpu_cores=ones,
        pcie_gbyte_s=ones,
    )
    return replace(state, profiles=profiles)


FLAT, STEEP = (1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 0.25, 0.25)


class TestFit:
    @settings(max_examples=200)
    @given(st.lists(st.tuples(st.integers(1, 64), st.floats(1, 20)), min_size=2, max_size=7))
    def test_no_other_numbers_that_are_not_negative_are_nearer(self, points: list[tuple[int, float]]) -> None:
        workers = np.array([point[0] for point in points], dtype=np.float64)
        steps = np.array([point[1] for point in points])
        assume(len(set(workers)) > 1)
        matrix = np.stack((1 / steps, workers / steps), axis=1)
        found = least_squares(workers, steps[None])[:, 0]
        best = nonnegative(matrix, np.ones(len(points)))
        assert (found >= 0).all()
        errors = [float(np.sum((matrix @ numbers - 1) ** 2)) for numbers in (found, best)]
        assert errors[0] == pytest.approx(errors[1], rel=1e-6, abs=1e-9)

    def test_what_is_on_the_line_is_found(self) -> None:
        workers = np.array([1.0, 4.0, 9.0])
        lines = np.array([[0.9, 0.1], [1.0, 0.0], [0.0, 1.0]])
        found = least_squares(workers, lines[:, :1] + lines[:, 1:] * workers)
        np.testing.assert_allclose(found.T, lines, atol=1e-9)

    def test_jobs_by_what_is_known_of_them(self) -> None:
        """Flat, steep, one that was not measured and exchanges half as much as the steep one, one without a profile."""
        state = cluster([Node(gpus=4)] * 4, [Job()] * 4)
        a, b = fitted(profiled(state, [0, 1, 2, -1], FLAT, STEEP, (), sizes=[0.0, 2.0, 1.0]))
        assert (a[0], b[0]) == (pytest.approx(1), pytest.approx(0, abs=1e-12))
        assert b[1] > b[2] > 0.01
        assert b[3] == pytest.approx(np.median(b[:3]))
        at_16 = 16 / (a + 16 * b)
        assert at_16[0] > at_16[2] > at_16[1]

    def test_nothing_known_is_linear(self) -> None:
        state = cluster([Node(gpus=4)] * 4, [Job()])
        for blank in (state, profiled(state, [0], (), sizes=[1.0]), profiled(state, [-1], sizes=[])):
            assert [column.tolist() for column in fitted(blank)] == [[1], [0]]

    def test_one_gpu_is_one_sample(self) -> None:
        a, b = fitted(profiled(cluster([Node(gpus=1)], [Job()]), [0], STEEP, sizes=[1.0]))
        assert (a[0], b[0]) == (1, 0)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.floats(1, 100)), min_size=1, max_size=4),
    st.integers(0, 12),
)
def test_shares_leave_the_least_remaining_time(rows: list[tuple[int, int, float]], gpus: int) -> None:
    least, most, gains = [row[0] for row in rows], [row[0] + row[1] for row in rows], [row[2] for row in rows]
    sizes = allot(range(len(rows)), least, most, gains, gpus)
    # In order, each job that gets the least that it can run with
    left, first = gpus, []
    for row, size in enumerate(least):
        if size <= left:
            left -= size
            first.append(row)
    assert sorted(sizes) == first
    # And of all shares of the rest the one with the least sum of g / w
    choices = itertools.product(*(range(least[row], most[row] + 1) for row in first))
    best = min(
        (
            sum(gains[row] / size for row, size in zip(first, choice, strict=True))
            for choice in choices
            if sum(choice) <= gpus
        ),
        default=0.0,
    )
    assert sum(sizes.values()) <= gpus
    assert sum(gains[row] / size for row, size in sizes.items()) == pytest.approx(best)


def decide(nodes: list[Node], *jobs: Job, time_s: float = STARTED_S + 600) -> dict[int, int]:
    """GPUs by job."""
    decision = Optimus().decide(cluster(nodes, jobs, time_s=time_s))
    return {row: placement.num_gpus for row, placement in decision.allocation.items()}


class TestDecisions:
    grown = Job(gpus=4, sizes=(1, 8), held={0: 8}, estimate_s=1000)

    def test_longer_jobs_get_more(self) -> None:
        long, short = Job(gpus=4, sizes=(1, 8), estimate_s=4000), Job(gpus=4, sizes=(1, 8), estimate_s=1000)
        assert decide([Node()], short, long) == {0: 3, 1: 5}
        assert decide([Node()] * 2, short, long) == {0: 8, 1: 8}

    def test_jobs_without_an_estimate_count_as_the_others(self) -> None:
        known, unknown = Job(gpus=4, sizes=(1, 8), estimate_s=4000), Job(gpus=4, sizes=(1, 8))
        assert decide([Node()], known, unknown) == {0: 4, 1: 4}
        assert decide([Node()], unknown, unknown) == {0: 4, 1: 4}

    def test_an_old_job_makes_room_and_a_young_one_does_not(self) -> None:
        other = Job(gpus=2, estimate_s=1000)
        assert decide([Node()], self.grown, other) == {0: 6, 1: 2}
        assert decide([Node()], self.grown, other, time_s=STARTED_S + 599) == {0: 8}

    def test_who_is_not_preemptible_stays(self) -> None:
        assert decide([Node()], replace(self.grown, preemptible=False), Job(gpus=2)) == {0: 8}

    def test_the_first_get_their_least_and_later_ones_are_stopped(self) -> None:
        state = cluster([Node()], [Job(gpus=6), Job(gpus=4, sizes=(3, 8), held={0: 8})], time_s=9999)
        decision = Optimus().decide(state)
        assert {row: placement.num_gpus for row, placement in decision.allocation.items()} == {0: 6}
        assert decision.reasons[1].startswith("stopped")

    def test_who_keeps_its_size_keeps_its_place(self) -> None:
        here = Job(gpus=4, held={1: 2, 0: 2}, estimate_s=10)
        state = cluster([Node(gpus=4)] * 2, [here, Job(gpus=4)], time_s=9999)
        decision = Optimus().decide(state)
        assert decision.allocation[0] == state.jobs.placement(0)
        assert 0 not in decision.reasons

    def test_who_finds_no_place_leaves_its_gpus_to_the_others(self) -> None:
        fits_nowhere = Job(gpus=6, max_nodes=1, estimate_s=5)
        assert decide([Node(gpus=4)] * 2, fits_nowhere, Job(gpus=4, sizes=(1, 8))) == {1: 8}


@settings(max_examples=200)
@given(state=states(), late=st.booleans())
def test_every_decision_is_valid(state: ClusterState, late: bool) -> None:
    if late:
        state = replace(state, time_s=STARTED_S + 1000)
    check_resizing(Optimus(), state, settled=lambda _row: late)


def elastic_trace() -> Trace:
    """40 jobs of four models that keep 24 GPUs about four fifths busy at the size that they ask for."""
    rng = np.random.default_rng(7)
    gpus = rng.choice([1, 2, 4, 8], 40)
    rows = list(zip(np.cumsum(rng.integers(60, 1800, 40)), gpus, rng.integers(300, 9000, 40), strict=True))
    models = rng.choice(["vgg16", "resnet50", "transformer", "inception3"], 40).tolist()
    return trace_of(*rows, min_gpus=np.maximum(gpus // 2, 1), max_gpus=2 * gpus, model=models)


def run(trace: Trace, policy: Optimus) -> Simulation:
    cluster = parse_cluster("3x8")
    profiles = paper_profiles()
    models = build(("locality", "scaling"), topology=cluster.topology, profiles=profiles)
    simulation = Simulation(trace, cluster, policy, Settings(preempt_cost_s=30.0, record=True), models, profiles)
    simulation.run()
    return simulation


class TestRuns:
    def test_jobs_are_resized_within_their_ranges_and_finish(self) -> None:
        trace = elastic_trace()
        simulation = run(trace, Optimus())
        log = simulation.finished
        assert sorted(log.index) == list(range(40))
        assert sum(log.resizes) > 10
        held = {(span.job, sum(span.held.values())) for span in spans(simulation)}
        assert all(trace.min_gpus[job] <= gpus <= trace.max_gpus[job] for job, gpus in held)
        assert any(gpus > trace.num_gpus[job] for job, gpus in held)
        assert any(gpus < trace.num_gpus[job] for job, gpus in held)
        audit_gpus(simulation)

    def test_no_job_is_stopped_or_resized_sooner_than_a_round_after_its_start(self) -> None:
        simulation = run(elastic_trace(), Optimus())
        finishes = dict(zip(simulation.finished.index, simulation.finished.finish, strict=True))
        ended_early = [span for span in spans(simulation) if span.end < finishes[span.job]]
        assert len(ended_early) > 10
        assert min(span.end - span.start for span in ended_early) >= 600 * NS_PER_S

    def test_resizing_is_worth_it(self) -> None:
        """Against the same policy that is told of no sizes."""
        trace = elastic_trace()
        stiff = Trace.of(
            "stiff",
            trace.job_ids,
            trace.submit_ns,
            trace.num_gpus,
            trace.duration_ns,
            model=trace.model,
        )
        waits = []
        for each in (trace, stiff):
            log = run(each, Optimus()).finished
            waits.append(
                float(np.mean([end - each.submit_ns[job] for job, end in zip(log.index, log.finish, strict=True)]))
            )
        assert waits[0] < 0.9 * waits[1]
