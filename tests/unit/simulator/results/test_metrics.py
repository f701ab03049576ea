"""Figures of runs that are small enough to work out by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from simulator.cluster.topology import flat
from simulator.engine.settings import NodeChange, Settings
from simulator.results import metrics
from simulator.results.fragmentation import Fragmentation
from simulator.results.result import Spans
from simulator.slowdown.api import Resident
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.trace import NS_PER_S
from tests.unit.simulator.commands import run

# Four GPUs, FIFO: A uses all from 0 to 10; B (2 GPUs, 20 s) and C (2 GPUs, 5 s) wait for it and run side by side.
THREE = [(0.0, 4, 10.0), (2.0, 2, 20.0), (4.0, 2, 5.0)]


def test_jct_wait_service_and_makespan() -> None:
    result = run(THREE)

    assert metrics.average_jct_s(result) == pytest.approx((10 + 28 + 11) / 3)
    assert metrics.percentile_jct_s(result, 50) == 11
    assert metrics.percentile_jct_s(result, 90) == pytest.approx(11 + 0.8 * (28 - 11))
    assert metrics.average_service_s(result) == pytest.approx((10 + 20 + 5) / 3)
    assert metrics.average_wait_s(result) == metrics.average_first_wait_s(result) == pytest.approx((0 + 8 + 6) / 3)
    assert metrics.makespan_s(result) == 30


def test_shares_of_the_ideal() -> None:
    result = run(THREE)

    assert metrics.effectiveness(result) == pytest.approx((1 + 20 / 28 + 5 / 11) / 3)
    assert metrics.slowdowns(result) == pytest.approx([1, 28 / 20, 11 / 5])
    assert metrics.utilization(result) == pytest.approx((4 * 10 + 2 * 20 + 2 * 5) / (4 * 30))
    assert metrics.work_utilization(result) == metrics.utilization(result)


def test_waiting_after_a_stop_counts_as_waiting_and_its_cost_as_service() -> None:
    # SRTF: A runs from 0, B (shorter) stops it at 10 and runs until 15; A serves 3 s of overhead, then its last 90 s.
    result = run([(0.0, 4, 100.0), (10.0, 4, 5.0)], policy="srtf", settings=Settings(preempt_cost_s=3.0))

    assert metrics.average_wait_s(result) == 2.5
    assert metrics.average_first_wait_s(result) == 0
    assert metrics.average_service_s(result) == pytest.approx((103 + 5) / 2)
    figures = metrics.summary(result)
    assert (figures["preemptions"], figures["overhead_s"], figures["overhead_gpu_s"]) == (1, 3.0, 12.0)
    assert metrics.contention_sensitivity(result) == pytest.approx([1, 1])
    assert metrics.utilization(result) == 1.0
    assert metrics.work_utilization(result) == pytest.approx(105 / 108)


class Half:
    """Jobs that share a node run at half speed."""

    only_between_nodes = False
    needs_gpus = False

    def __init__(self) -> None:
        self._jobs: set[int] = set()

    def enter(self, resident: Resident) -> None:
        self._jobs.add(resident.job)

    def leave(self, job: int) -> None:
        self._jobs.discard(job)

    def changed(self) -> list[int]:
        return sorted(self._jobs)

    def factor(self, job: int) -> float:
        return 0.5 if len(self._jobs) > 1 else 1.0

    def fork(self) -> Half:
        twin = Half()
        twin._jobs = set(self._jobs)
        return twin


def test_contention_sensitivity_is_ideal_over_observed_throughput() -> None:
    # B runs from 0 to 10 beside A (5 s of work done each), and A's other 15 s alone.
    result = run([(0.0, 2, 20.0), (0.0, 2, 5.0)], slowdown=[Half()])

    assert metrics.contention_sensitivity(result) == pytest.approx([25 / 20, 2.0])
    figures = metrics.summary(result)
    assert figures["avg_contention_sensitivity"] == pytest.approx(1.625)
    assert figures["worst_contention_sensitivity"] == pytest.approx(2.0)


def test_the_share_of_slowed_jobs_and_by_how_much() -> None:
    # Two of three jobs are slowed down, to 25 / 20 and 2 times their ideal; the third runs alone afterwards.
    result = run([(0.0, 2, 20.0), (0.0, 2, 5.0), (100.0, 2, 8.0)], slowdown=[Half()])

    figures = metrics.summary(result)
    assert figures["slowed_share"] == pytest.approx(2 / 3)
    assert figures["slowed_by"] == pytest.approx((0.25 + 1.0) / 2)
    # No model of shared links: nothing is known of them
    assert figures["shared_links_share"] is figures["shared_links_gpu_share"] is None


def test_the_share_of_jobs_that_shared_links_and_of_their_gpu_time() -> None:
    # The first two are on two of three nodes each and meet on the NICs of one; the third fits on one node.
    rows = [(0.0, 6, 100.0), (0.0, 5, 100.0), (500.0, 4, 50.0)]
    result = run(
        rows, "3x4", slowdown=build(["link-sharing"], topology=flat([4] * 3, [1] * 3), profiles=paper_profiles())
    )

    assert result.shared_links is not None
    assert result.shared_links.tolist() == [True, True, False]
    figures = metrics.summary(result)
    assert figures["shared_links_share"] == pytest.approx(2 / 3)
    attained = result.attained_gpu_ns
    assert figures["shared_links_gpu_share"] == pytest.approx((attained[0] + attained[1]) / attained.sum())
    assert metrics.summary(result.take(np.array([2])))["shared_links_share"] == 0.0


def test_work_lost_with_a_node_is_no_contention() -> None:
    changes = (NodeChange(6.0, 0, "down"), NodeChange(8.0, 0, "up"))
    result = run([(0.0, 4, 10.0)], settings=Settings(preempt_cost_s=0.0, changes=changes))

    assert result.lost_ns.tolist() == [6 * NS_PER_S]
    assert metrics.contention_sensitivity(result) == pytest.approx([1.0])
    assert metrics.summary(result)["failures"] == 1


def test_fairness_compares_with_an_equal_share_of_the_cluster() -> None:
    # A: active 0-10, N = (2 + 2 * 2 + 6 * 3) / 10 = 2.4; share 4 / 2.4 GPUs; alone on that 10 * 4 / (4 / 2.4) = 24 s.
    result = run(THREE)

    fairness = metrics.finish_time_fairness(result)

    assert fairness[0] == pytest.approx(10 / 24)
    # B: active 2-30, N = (2 * 2 + 11 * 3 + 15 * 1) / 28 = 52 / 28: A until 10, C from 4 to 15.
    others = (10 - 2) + (15 - 4)
    share = 4 / (1 + others / 28)
    assert fairness[1] == pytest.approx(28 / (20 * max(1.0, 2 / share)))


def test_a_job_that_ends_in_the_instant_in_which_its_run_begins_has_lost_nothing() -> None:
    result = run(THREE)
    ended = result.submit_ns.copy()
    ended[1:] = result.finish_ns[1:]

    fairness = metrics.finish_time_fairness(replace(result, finish_ns=ended))

    assert fairness[0] == 0.0
    assert np.isfinite(fairness).all()


@pytest.mark.parametrize("percent", [0, 1, 50, 90, 99, 100])
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_percentiles_are_numpys(percent: float, count: int) -> None:
    values = np.random.default_rng(count).exponential(size=count)

    assert metrics.percentile(values, percent) == pytest.approx(np.percentile(values, percent), rel=1e-12)


def test_without_measurements_a_figure_is_none_and_not_zero() -> None:
    # The node never comes back: no job finishes.
    settings = Settings(changes=(NodeChange(0.0, 0, "down"),))
    figures = metrics.summary(run([(1.0, 1, 5.0)], settings=settings))

    assert (figures["jobs"], figures["finished"]) == (1, 0)
    assert figures["avg_jct_s"] is figures["p99_jct_s"] is figures["makespan_s"] is figures["utilization"] is None
    assert figures["avg_fairness"] is figures["fragmentation"] is None


def test_fields_of_the_contract_come_first() -> None:
    assert list(metrics.summary(run(THREE)))[:16] == [
        "jobs",
        "finished",
        "avg_jct_s",
        "p50_jct_s",
        "p90_jct_s",
        "p99_jct_s",
        "avg_service_s",
        "makespan_s",
        "avg_wait_s",
        "utilization",
        "preemptions",
        "decisions",
        "decision_p50_ms",
        "decision_p99_ms",
        "wall_s",
        "jobs_per_s",
    ]


# --- fragmentation


def frag(remaining: list[float]) -> float:
    """Equation 1 as it stands in the paper."""
    squares = len(remaining) * sum(x * x for x in remaining)
    return 1 - sum(remaining) ** 2 / squares if squares else 0.0


def spans_of(rows: list[tuple[float, float, int, int]]) -> Spans:
    """Runs of (start s, end s, node, GPUs)."""
    start, end, node, gpus = (np.array(column) for column in zip(*rows, strict=True))
    count = len(rows)
    ns = (np.rint(column * NS_PER_S).astype(np.int64) for column in (start, end))
    return Spans(np.arange(count), *ns, node, gpus, np.arange(count + 1))


def test_gpus_that_come_free_together_are_not_fragmented() -> None:
    whole = Fragmentation.of(spans_of([(0.0, 10.0, 0, 4)]), np.array([4]), 0, 10 * NS_PER_S)
    quarter = Fragmentation.of(spans_of([(0.0, 10.0, 0, 1)]), np.array([4]), 0, 10 * NS_PER_S)

    assert whole.mean() == pytest.approx(0)
    assert quarter.mean() == pytest.approx(1 - 1 / 4)


def test_an_empty_node_counts_as_not_fragmented() -> None:
    both = Fragmentation.of(spans_of([(0.0, 10.0, 1, 1)]), np.array([4, 4]), 0, 20 * NS_PER_S)

    assert both.mean() == pytest.approx(0.75 / 2 / 2)


def test_the_integral_is_that_of_equation_1() -> None:
    random = np.random.default_rng(5)
    rows = []
    for node in range(3):
        for _gpu in range(4):
            now = float(random.exponential(3))
            while now < 50:
                end = now + float(random.exponential(9)) + 0.1
                rows.append((now, end, node, 1))
                now = end + float(random.exponential(2))
    bins = 7
    found = Fragmentation.of(spans_of(rows), np.array([4, 4, 4]), 0, 60 * NS_PER_S, bins)

    steps = 60_000
    times = (np.arange(steps) + 0.5) * 60 / steps
    sampled = np.zeros(steps)
    for node in range(3):
        lanes = np.zeros((steps, 4))
        mine = [row for row in rows if row[2] == node]
        for start, end, _, _ in mine:
            on = (times >= start) & (times < end)
            free = np.argmin(lanes[on], axis=1) if on.any() else 0
            lanes[np.flatnonzero(on), free] = end - times[on]
        squares = 4 * (lanes**2).sum(axis=1)
        sampled += np.where(squares > 0, 1 - lanes.sum(axis=1) ** 2 / np.where(squares > 0, squares, 1), 0) / 3
    edges = np.linspace(0, steps, bins + 1).round().astype(int)
    expected = [sampled[begin:end].mean() for begin, end in itertools.pairwise(edges)]

    assert found.bins == pytest.approx(expected, abs=2e-3)
    assert found.mean() == pytest.approx(sampled.mean(), abs=1e-3)
    assert frag([4, 4, 0, 0]) == pytest.approx(0.5)


def test_fragmentation_of_a_run() -> None:
    # From 0 to 10 all four GPUs go to A; then B and C use two each, C until 15 and B alone until 30.
    figure = metrics.fragmentation(run(THREE))

    times = (np.arange(20_000) + 0.5) * 20 / 20_000 + 10
    expected = sum(frag([30 - t] * 2 + [max(15 - t, 0)] * 2) for t in times.tolist()) * 20 / 20_000 / 30
    assert figure == pytest.approx(expected, abs=1e-4)
