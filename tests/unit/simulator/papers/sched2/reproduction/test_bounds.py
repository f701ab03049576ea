"""The lower bounds of SCHED2's schedules."""

from __future__ import annotations

import pytest

from simulator.cluster.cluster import Cluster, parse_cluster
from simulator.papers.sched2.baselines import BASELINES, CONTROLS, Baseline
from simulator.papers.sched2.reproduction.bounds import bounds
from simulator.results import metrics
from simulator.results.result import Result
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.sched2 import Sched2, generate
from simulator.traces.trace import NS_PER_S
from tests.unit.simulator.envs.worlds import trace_of


def test_the_bounds_of_a_trace_by_hand() -> None:
    # All of the second job's work, 8 x 10 GPU-seconds, comes after 5 s: on 2 GPUs it takes until 45 s.
    found = bounds(trace_of((0, 1, 6), (5, 8, 10)), Cluster.uniform(1, 2))
    assert found == {"avg_jct_s": 8.0, "effectiveness": 1.0, "makespan_s": pytest.approx(45.0)}


@pytest.mark.parametrize("name", [*BASELINES, *CONTROLS])
def test_no_rule_is_beyond_the_bounds(name: str) -> None:
    trace, cluster = generate(Sched2(jobs=60, seed=1, mean_gap_s=100.0, cluster_gpus=32)), parse_cluster("4x8")
    slowdown = build(["locality"], topology=cluster.topology, profiles=paper_profiles("sched2"))
    result, bound = Result.of(Baseline(name, trace, cluster, slowdown).run(), name, 0.0), bounds(trace, cluster)
    assert (metrics.average_jct_s(result) or 0.0) >= bound["avg_jct_s"]
    assert (metrics.effectiveness(result) or 0.0) <= bound["effectiveness"]
    assert result.makespan_ns / NS_PER_S >= bound["makespan_s"] - 1e-6
