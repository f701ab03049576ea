"""The parts of the comparison of policies that resize that need no cluster: arrivals, and the figures of a turn."""

from __future__ import annotations

import pytest

from slurm.experiments.elastic.__main__ import Turn
from slurm.experiments.elastic.live_cluster import Ended, Stops
from slurm.experiments.elastic.mix import arrivals


def test_arrivals_follow_from_the_seed() -> None:
    jobs = arrivals(50, 1, (20.0, 80.0), 8.0, 8)
    assert jobs == arrivals(50, 1, (20.0, 80.0), 8.0, 8)
    assert jobs != arrivals(50, 2, (20.0, 80.0), 8.0, 8)
    alone_s = [job.steps * job.compute_s / job.gpus for job in jobs]
    assert min(alone_s) > 19 and max(alone_s) < 81
    assert all(job.gpus <= job.most_gpus == 8 for job in jobs)
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)


def test_the_time_of_adjusting_is_a_share_of_the_time_since_each_first_step() -> None:
    jobs = (Ended("a", 0.0, 10.0, 60.0, (4, 2)), Ended("b", 5.0, 30.0, 80.0, (1,)))
    row = Turn("dl2", 0, jobs, Stops(1, 1, 0, adjusting_s=5.0, restarting_s=2.0), (1.0, 1.0, 1.0)).row()
    assert (row["avg_jct_s"], row["runs"], row["resizes"]) == (67.5, 3, 1)
    assert row["adjusting_share"] == pytest.approx(0.05)
    assert row["restarting_share"] == pytest.approx(0.02)
