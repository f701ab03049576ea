"""The fast baselines of SCHED2 give the results of the policies of that name, job by job."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from policies.api import Policy
from policies.heuristics.baselines import sched2 as policies
from policies.heuristics.baselines.sched2_controls import Sched2Delay, Sched2SpfLocal
from simulator.cluster.cluster import Cluster, cluster_of
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.errors import SettingError
from simulator.papers.sched2.baselines import BASELINES, CONTROLS, Baseline
from simulator.results import metrics
from simulator.results.result import Result
from simulator.results.timeline import Timeline
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.sched2 import TEST_SEEDS, TRAINING_SEEDS, Sched2, generate
from tests.unit.simulator.envs.worlds import trace_of

PROFILES = paper_profiles("sched2")
RACKS = {
    "nodes": [{"count": 3, "gpus": 8, "rack": "a"}, {"count": 2, "gpus": 4, "rack": "b"}],
    "network": {"kind": "racks", "nic_gbs": 12.5, "uplink_gbs": 25.0},
}


def policy_of(name: str, window: int) -> Policy:
    if name == "fifo":
        return policies.Sched2Fifo()
    kinds: dict[str, Callable[[int], Policy]] = {
        "sif": policies.Sched2Sif,
        "dsif": policies.Sched2Dsif,
        "saf": policies.Sched2Saf,
        "lrf": policies.Sched2Lrf,
        "spf": policies.Sched2Spf,
        "spf-local": Sched2SpfLocal,
        "delay": Sched2Delay,
    }
    return kinds[name](window)


@pytest.mark.parametrize("window", [0, 10])
@pytest.mark.parametrize("name", [*BASELINES, *CONTROLS])
def test_baselines_give_the_results_of_their_policies(name: str, window: int) -> None:
    cluster = Cluster.uniform(4, 8)
    trace = generate(Sched2(jobs=150, seed=3, mean_gap_s=400.0, cluster_gpus=32))
    models = build(["locality"], topology=cluster.topology, profiles=PROFILES)
    slow = Simulation(trace, cluster, policy_of(name, window), None, models, PROFILES)
    slow.run()
    fast = Baseline(name, trace, cluster, models, window).run()
    expected, found = Result.of(slow, name, 0.0), Result.of(fast, name, 0.0)
    wait_s = metrics.average_wait_s(found)
    assert wait_s is not None and wait_s > 1000, "nothing would be seen without a queue"
    assert found.finish_ns.tolist() == expected.finish_ns.tolist()
    assert found.nodes() == expected.nodes()


def test_the_window_changes_results() -> None:
    cluster = Cluster.uniform(4, 8)
    trace = generate(Sched2(jobs=150, seed=3, mean_gap_s=400.0, cluster_gpus=32))
    models = build(["locality"], topology=cluster.topology, profiles=PROFILES)
    for name in ("sif", "dsif", "saf", "lrf", "spf"):
        ten, unlimited = (Result.of(Baseline(name, trace, cluster, models, seen).run(), name, 0.0) for seen in (10, 0))
        assert ten.finish_ns.tolist() != unlimited.finish_ns.tolist()


def test_delays_depend_on_patience() -> None:
    cluster = Cluster.uniform(4, 8)
    trace = generate(Sched2(jobs=150, seed=3, mean_gap_s=400.0, cluster_gpus=32))
    models = build(["locality"], topology=cluster.topology, profiles=PROFILES)

    def runs(patience: float) -> tuple[Result, Result]:
        slow = Simulation(trace, cluster, Sched2Delay(patience=patience), None, models, PROFILES)
        slow.run()
        fast = Baseline("delay", trace, cluster, models, patience=patience).run()
        return Result.of(slow, "delay", 0.0), Result.of(fast, "delay", 0.0)

    (little, quickly), (much, slowly) = runs(0.5), runs(5.0)
    assert (
        little.finish_ns.tolist() == quickly.finish_ns.tolist() != slowly.finish_ns.tolist() == much.finish_ns.tolist()
    )
    assert sum(map(int, little.service_ns)) > sum(map(int, much.service_ns)), "jobs that wait longer run faster"


def test_no_job_loses_speed_where_jobs_are_kept_local() -> None:
    cluster = Cluster.uniform(4, 8)
    trace = generate(Sched2(jobs=150, seed=3, mean_gap_s=400.0, cluster_gpus=32))
    models = build(["locality"], topology=cluster.topology, profiles=PROFILES)
    found = Result.of(Baseline("spf-local", trace, cluster, models).run(), "spf-local", 0.0)
    assert found.service_ns.tolist() == found.duration_ns.tolist()


@pytest.mark.parametrize("name", [*BASELINES, *CONTROLS])
def test_every_job_ends_on_nodes_that_differ(name: str) -> None:
    cluster = cluster_of(RACKS)
    trace = generate(Sched2(jobs=80, seed=5, mean_gap_s=400.0, cluster_gpus=32))
    models = build(["locality"], topology=cluster.topology, profiles=PROFILES)
    assert Result.of(Baseline(name, trace, cluster, models).run(), name, 0.0).done.all()


def test_an_unknown_baseline_is_refused() -> None:
    with pytest.raises(SettingError, match="no baseline 'best'; give one of sif, dsif"):
        Baseline("best", trace_of((0, 1, 1)), Cluster.uniform(1, 1), [])


def test_no_trace_is_both_trained_and_tested_on() -> None:
    assert len(TRAINING_SEEDS) == len(TEST_SEEDS) == 30
    assert not set(TRAINING_SEEDS) & set(TEST_SEEDS)


def test_a_timeline_by_hand() -> None:
    # One node of 2 GPUs: a job of both for 100 s; one of one GPU that comes at 50 and runs from 100 to 140.
    trace = trace_of((0, 2, 100), (50, 1, 40))
    run = Baseline("fifo", trace, Cluster.uniform(1, 2), [], record=True).run()
    result = Result.of(run, "fifo", 0.0)
    timeline = Timeline.of(result, 140 * 10**9, bins=7)
    assert timeline.begin_s.tolist() == [0, 20, 40, 60, 80, 100, 120]
    assert np.allclose(timeline.required_gpus, [0, 0, 0.5, 1, 1, 0, 0])
    # With one GPU in use and one free, equation 1 gives 1 - x^2 / (2 x^2).
    assert np.allclose(timeline.fragmentation, [0, 0, 0, 0, 0, 0.5, 0.5])
    with pytest.raises(SettingError, match="bins is 0"):
        Timeline.of(result, 140 * 10**9, bins=0)
    unrecorded = Result.of(Baseline("fifo", trace, Cluster.uniform(1, 2), []).run(), "fifo", 0.0)
    assert Settings().record is False
    with pytest.raises(SettingError, match="not recorded"):
        Timeline.of(unrecorded, 140 * 10**9, bins=7)
