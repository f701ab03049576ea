"""Runs that begin in the middle of a trace: they go on as the whole run does, and count only what happens from then on."""

from __future__ import annotations

import numpy as np
import pytest

from policies.api import load_policy
from simulator.cluster.cluster import Cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.results.metrics import summary
from simulator.results.result import Result
from simulator.runs.progress import drive
from simulator.runs.warm_starts import Part, WarmStart, parts_of, warm_starts
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators import from_text, generate
from simulator.traces.trace import NS_PER_S, Trace

CLUSTER = Cluster.uniform(4, 4)
JOBS = 200


@pytest.fixture(scope="module")
def trace() -> Trace:
    texts = {"jobs": str(JOBS), "arrivals": "poisson", "load": "1.1", "cluster_gpus": "16", "seed": "5"}
    workload = from_text("contention-rl", {**texts, "demands": "1/2/4/6", "duration_spread": "1.5"})
    return generate("contention-rl", workload)


def simulation(trace: Trace, name: str = "srtf") -> Simulation:
    models = build(("link-sharing",), topology=CLUSTER.topology, profiles=paper_profiles())
    return Simulation(trace, CLUSTER, load_policy(name), Settings(), models)


def finished(start: WarmStart, name: str) -> Result:
    run = start.simulation(load_policy(name))
    drive(run)
    return start.result(run, name, 0.0)


@pytest.mark.parametrize("name", ["srtf", "fifo-skip"])
def test_the_rule_itself_goes_on_as_in_the_whole_run(trace: Trace, name: str) -> None:
    whole = simulation(trace, name)
    drive(whole)
    expected = Result.of(whole, name, 0.0)
    start = WarmStart.of(simulation(trace, name), Part(120, JOBS))
    found = finished(start, name)

    assert found.carried > 5
    place = {job: row for row, job in enumerate(trace.job_ids)}
    rows = np.array([place[job] for job in found.job_ids])
    assert rows[found.carried :].tolist() == list(range(120, JOBS))
    assert found.finish_ns.tolist() == expected.finish_ns[rows].tolist()
    assert (found.submitted.service_ns == expected.service_ns[120:]).all()
    own = summary(found)
    assert own["avg_jct_s"] == pytest.approx(float((expected.finish_ns - expected.submit_ns)[120:].mean()) / NS_PER_S)
    assert own["avg_fairness"] is not None
    assert own["jobs"] == own["finished"] == found.carried + 80


def test_only_what_happens_from_the_begin_on_counts(trace: Trace) -> None:
    start = WarmStart.of(simulation(trace), Part(120, JOBS))
    found = finished(start, "las")
    begin = int(trace.submit_ns[120])

    assert found.submit_ns.min() == begin
    for column in (
        found.service_ns,
        found.wait_ns,
        found.stops,
        found.attained_gpu_ns,
        found.duration_ns,
        found.overhead_ns,
    ):
        assert (column >= 0).all()
    jct = found.finish_ns - found.submit_ns
    assert (found.service_ns + found.wait_ns == jct).all()
    figures = summary(found)
    assert figures["carried"] == found.carried
    assert figures["carried_avg_s"] == pytest.approx(float(jct[: found.carried].mean()) / NS_PER_S)
    assert figures["makespan_s"] == (found.finish_ns.max() - begin) / NS_PER_S
    assert 0 < (figures["utilization"] or 0) <= 1


def test_every_policy_begins_on_the_same_cluster_and_leaves_it_unchanged(trace: Trace) -> None:
    start = WarmStart.of(simulation(trace), Part(100, 150))
    before = [(job.index, job.left, job.nodes) for job in start.at.jobs()]
    first, other, again = finished(start, "fifo-skip"), finished(start, "las"), finished(start, "fifo-skip")

    assert first.carried == other.carried
    assert first.finish_ns.tolist() == again.finish_ns.tolist()
    assert first.finish_ns.tolist() != other.finish_ns.tolist()
    assert [(job.index, job.left, job.nodes) for job in start.at.jobs()] == before


def test_windows_share_one_run_of_the_rule_and_end_with_their_last_job(trace: Trace) -> None:
    parts = parts_of(trace, 20, 3)
    assert [(part.begin, part.end) for part in parts] == [(20, 80), (80, 140), (140, 200)]
    starts = list(warm_starts(simulation(trace), parts))
    alone = WarmStart.of(simulation(trace), parts[2])
    for start in starts:
        found = finished(start, "fifo-skip")
        assert found.done.all()
        assert len(found.submitted) == 60
    assert finished(starts[2], "fifo-skip").finish_ns.tolist() == finished(alone, "fifo-skip").finish_ns.tolist()


def test_the_first_part_begins_empty_as_the_trace_does(trace: Trace) -> None:
    found = finished(WarmStart.of(simulation(trace), Part(0, JOBS)), "fifo-skip")
    whole = simulation(trace, "fifo-skip")
    drive(whole)

    assert found.carried == 0
    assert summary(found)["carried_avg_s"] is None
    assert found.finish_ns.tolist() == Result.of(whole, "fifo-skip", 0.0).finish_ns.tolist()


def test_jobs_of_one_instant_are_not_divided() -> None:
    ids = [f"j{row}" for row in range(10)]
    trace = Trace.of("t", ids, np.array([0, 0, 0, 0, 5, 5, 5, 9, 9, 9]) * NS_PER_S, [1] * 10, [NS_PER_S] * 10)
    assert [(part.begin, part.end) for part in parts_of(trace, 2, 3)] == [(0, 4), (4, 7), (7, 10)]
    assert [(part.begin, part.end) for part in parts_of(trace, 9, 1)] == [(7, 10)]
    assert parts_of(trace, 0, 1)[0].text() == "jobs 1 to 10"
