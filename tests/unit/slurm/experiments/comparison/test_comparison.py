"""The parts of a comparison that need no cluster: arrivals, and the results of its runs."""

from __future__ import annotations

import pytest

from slurm.experiments.comparison.comparison import PolicyRun, summary
from slurm.experiments.comparison.live_cluster import EndedJob
from slurm.experiments.comparison.mix import GPUS, KINDS, NODES, arrivals, one_of_each

SPEED = 25e6


def test_arrivals_follow_from_the_seed_and_fit_the_cluster() -> None:
    jobs = arrivals(200, 1, SPEED, (30.0, 60.0), 1.0)
    assert jobs == arrivals(200, 1, SPEED, (30.0, 60.0), 1.0)
    assert jobs != arrivals(200, 2, SPEED, (30.0, 60.0), 1.0)
    assert all(job.nodes <= NODES and job.gpus_per_node <= GPUS for job in jobs)
    assert {job.kind for job in jobs} == set(KINDS)
    alone_s = [job.steps * job.kind.step_s(job.nodes, SPEED) for job in jobs]
    assert min(alone_s) > 29 and max(alone_s) < 61
    assert all(4 <= 60 * job.limit_min / alone < 13 for job, alone in zip(jobs, alone_s, strict=True))


@pytest.mark.parametrize("load", [0.5, 1.0])
def test_arrivals_have_the_requested_load(load: float) -> None:
    jobs = arrivals(3000, 1, SPEED, (30.0, 60.0), load)
    work = sum(job.steps * job.kind.step_s(job.nodes, SPEED) * job.nodes * job.gpus_per_node for job in jobs)
    assert work / jobs[-1].submit_s / (NODES * GPUS) == pytest.approx(load, rel=0.08)


def test_everything_that_communicates_is_measured_alone() -> None:
    assert {job.called for job in one_of_each(20.0, SPEED)} == {
        job.called for job in arrivals(200, 1, SPEED, (8.0, 90.0), 1.0) if job.nodes > 1
    }


def test_policies_are_compared_repeat_by_repeat() -> None:
    def ran(policy: str, repeat: int, jct_s: float) -> PolicyRun:
        return PolicyRun(
            policy, repeat, (EndedJob("a", "a", 0.0, jct_s, 1), EndedJob("b", "b", 0.0, 3 * jct_s, 3)), 0.5
        )

    # In the order in which they ran, which is not that of the repeats
    runs = [ran("one", 0, 10.0), ran("two", 0, 20.0), ran("two", 1, 30.0), ran("one", 1, 30.0)]
    one, two = summary(runs, ("one", "two"))
    assert one["avg_jct_s"]["mean"] == pytest.approx(40.0)
    assert one["against"]["two"]["mean"] == pytest.approx((-0.5 + 0.0) / 2)
    assert two["against"]["one"]["mean"] == pytest.approx((1.0 + 0.0) / 2)
    assert one["stops"] == 4
    # A repeat that has only begun does not count yet
    assert summary([*runs, ran("one", 2, 1.0)], ("one", "two")) == [one, two]
    assert summary(runs[:1], ("one", "two")) == []
