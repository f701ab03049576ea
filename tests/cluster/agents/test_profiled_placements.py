"""SCHED2's profiled placements on a real Slurm: a program runs briefly at each, and the agent sees its times while it waits."""

from __future__ import annotations

import importlib.util

import pytest

from slurm.experiments.profiled.__main__ import curve_of, placements, profile
from slurm.experiments.profiled.live_cluster import profiled_cluster
from tests.cluster.conftest import skip_unless_possible

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_waiting_job_has_the_times_that_were_measured_under_four_placements() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the jobs train with PyTorch: `make setup` installs it")
    skip_unless_possible()
    assert [len(nodes) for nodes, _ in placements()] == [1, 2, 3, 6]
    with profiled_cluster(print) as cluster:
        found = profile(cluster, print)
    tiers = [run.tier for run in found.profiled]
    assert found.curve == pytest.approx(curve_of(found.profiled), rel=0.1)
    assert [hours / found.hours[0] for hours in found.hours] == pytest.approx(
        [1.0 / found.curve[tier] for tier in tiers], rel=1e-5
    )
    assert "," not in found.started_on and "[" not in found.started_on, "packing puts it on one node"
