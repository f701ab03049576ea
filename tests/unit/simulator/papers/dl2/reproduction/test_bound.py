"""The lower bound of the average JCT: by hand, and below whatever an agent reaches."""

from __future__ import annotations

import pytest

from simulator.cluster.cluster import parse_cluster
from simulator.papers.dl2.reproduction.bound import average_jct_bound_s
from simulator.papers.dl2.reproduction.contenders import BASELINES, GREEDY
from simulator.papers.dl2.reproduction.settings import MAIN, acting
from simulator.reproducing.experiment import Kind
from simulator.slowdown.profiles.papers import paper_profiles
from tests.unit.simulator.papers.dl2.test_env import SLOT_S, elastic

PROFILES = paper_profiles("dl2")


def test_a_job_alone_waits_for_its_slot_and_runs_at_its_best_size() -> None:
    # By sizes and computing times the law has no cost of workers: 4 workers on a node of 4 are four times as fast as one.
    trace = elastic((0, 1, 4000), (100 * SLOT_S + 10, 1, 4000))
    found = average_jct_bound_s(trace, parse_cluster("1x4"), PROFILES)
    assert found == pytest.approx(1000 + (SLOT_S - 10) / 2)


def test_jobs_that_share_the_cluster_are_served_by_the_least_work() -> None:
    # Together 4 GPUs do 1,000 s of the first and 250 s of the second: (250 + 1,250) / 2.
    trace = elastic((0, 1, 4000), (0, 1, 1000))
    assert average_jct_bound_s(trace, parse_cluster("1x4"), PROFILES) == pytest.approx(750)


def test_a_later_job_with_less_work_comes_between() -> None:
    # From 1,200 s on, 250 s of the second, then the remaining 1,800 s of the first: (3,250 + 250) / 2.
    trace = elastic((0, 1, 12000), (SLOT_S, 1, 1000))
    assert average_jct_bound_s(trace, parse_cluster("1x4"), PROFILES) == pytest.approx((3250 + 250) / 2)


@pytest.mark.parametrize("name", [*BASELINES, GREEDY])
def test_no_agent_is_below_it(name: str) -> None:
    bound = average_jct_bound_s(MAIN.trace(501), MAIN.cluster, MAIN.profiles)
    assert bound < acting(name, Kind.CONTROL).run(MAIN, 501, None).figures["avg_jct_s"]


def test_all_reduce_jobs_have_none() -> None:
    trace = elastic((0, 1, 4000), extra={"num_ps": ["0"]})
    with pytest.raises(ValueError, match="all-reduce"):
        average_jct_bound_s(trace, parse_cluster("1x4"), PROFILES)
