"""Figures of a leaderboard: ratios run by run, and intervals over blocks, not over runs of the same jobs."""

from __future__ import annotations

from math import exp, log, sqrt

import pytest

from simulator.leaderboard.perform import Run
from simulator.leaderboard.standings import Standings
from simulator.leaderboard.tables import interval, not_significant

JCTS = {
    # block -> setting -> policy -> average JCT
    "a": {0.7: {"fifo": 100.0, "srtf": 50.0, "las": 90.0}, 1.1: {"fifo": 400.0, "srtf": 200.0, "las": 480.0}},
    "b": {0.7: {"fifo": 200.0, "srtf": 80.0, "las": 220.0}, 1.1: {"fifo": 500.0, "srtf": 200.0, "las": 450.0}},
    "c": {0.7: {"fifo": 300.0, "srtf": 135.0, "las": 330.0}, 1.1: {"fifo": 900.0, "srtf": 405.0, "las": 830.0}},
}


def run(policy: str, trace: str, load: float, jct: float, **changed: float | None) -> Run:
    figures = {
        "avg_jct_s": jct,
        "p90_jct_s": 2 * jct,
        "p99_jct_s": 1000.0,
        "makespan_s": 5000.0,
        "jobs": 10,
        "finished": 10,
        "preemptions": 4,
        "moves": 1,
        "resizes": 0,
        "avg_fairness": 2.0,
        "worst_fairness": jct,
        "guarded_share": load / 10,
        "guarded_inside_share": None if load > 1 else load / 100,
        **changed,
    }
    return Run(
        policy=policy,
        trace=trace,
        part="jobs 2 to 11",
        cluster="1x4",
        load=load,
        named_load=load,
        estimates="true",
        figures=figures,
    )


@pytest.fixture
def standings() -> Standings:
    runs = [
        run(policy, trace, load, jct)
        for trace, loads in JCTS.items()
        for load, policies in loads.items()
        for policy, jct in policies.items()
    ]
    return Standings(runs, ("fifo", "srtf", "las"))


def test_the_interval_is_that_of_blocks_on_logarithms(standings: Standings) -> None:
    found = standings.ratio("srtf", "fifo", "avg_jct_s")
    logs = [log(0.5), log(0.4), log(0.45)]
    mean = sum(logs) / 3
    deviation = sqrt(sum((each - mean) ** 2 for each in logs) / 2)

    assert found is not None and found.low is not None and found.high is not None
    assert found.mean == pytest.approx(exp(mean))
    # Two degrees of freedom: t is 4.303. Six runs would have a narrower interval, and are not independent.
    assert found.low == pytest.approx(exp(mean - 4.303 * deviation / sqrt(3)))
    assert found.high == pytest.approx(exp(mean + 4.303 * deviation / sqrt(3)))
    assert found.significant


def test_differences_that_are_not_significant_are_named(standings: Standings) -> None:
    first = not_significant(standings)[0]
    assert first.startswith("average JCT: fifo and las (") or first.startswith("average JCT: las and fifo (")
    assert "srtf" not in first


def test_equal_figures_are_no_significant_difference(standings: Standings) -> None:
    found = standings.ratio("srtf", "fifo", "makespan_s")
    assert found is not None
    assert not found.significant
    assert interval(found) == "0.0 % [0.0, 0.0]"


def test_a_ratio_can_be_that_of_one_setting(standings: Standings) -> None:
    found = standings.ratio("las", "fifo", "avg_jct_s", lambda run: run.named_load == 1.1)
    assert found is not None
    assert found.mean == pytest.approx((1.2 * 0.9 * 830 / 900) ** (1 / 3))


def test_the_table_has_the_best_first_and_means_over_runs(standings: Standings) -> None:
    table = standings.table()
    assert table[0].policy == "srtf"
    fifo = next(each for each in table if each.policy == "fifo")
    product = 100.0 * 400 * 200 * 500 * 300 * 900
    assert fifo.times_s["avg_jct_s"] == pytest.approx(product ** (1 / 6))
    assert fifo.stops_per_job == pytest.approx(0.5)
    assert fifo.fairness == pytest.approx(2.0)
    assert fifo.worst_fairness == 900.0
    assert fifo.guarded_share == pytest.approx(0.09)
    assert fifo.most_guarded_share == pytest.approx(0.11)
    assert fifo.guarded_inside_share == pytest.approx(0.007)


def test_one_block_has_no_interval() -> None:
    found = Standings([run("fifo", "a", 0.9, 10.0), run("srtf", "a", 0.9, 8.0)], ("fifo", "srtf"))
    ratio = found.ratio("srtf", "fifo", "avg_jct_s")
    assert ratio is not None
    assert (ratio.low, ratio.high, ratio.significant) == (None, None, False)
    assert interval(ratio) == "\N{MINUS SIGN}20.0 %"


def test_a_policy_that_leaves_jobs_has_no_figures() -> None:
    runs = [run("fifo", "a", 0.9, 10.0), run("idle", "a", 0.9, 8.0, finished=7)]
    found = Standings(runs, ("fifo", "idle"))
    assert found.unfinished == {"fifo": 0, "idle": 3}
    assert [each.policy for each in found.table()] == ["fifo"]
    assert found.pairs() == []
