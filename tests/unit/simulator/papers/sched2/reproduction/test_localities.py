"""Jobs that got the best locality, and jobs that inherited it."""

from __future__ import annotations

import pytest

from simulator.papers.sched2.reproduction import localities
from tests.unit.simulator.commands import Row, run


def test_jobs_on_more_nodes_than_they_need_are_spread() -> None:
    # 3 and 1 GPUs leave one free on each node: the job of two is spread, the one of six is not, though it is on two nodes
    rows: list[Row] = [(0, 3, 10), (0, 3, 10), (0, 2, 10), (20, 6, 10)]
    result = run(rows, "2x4", "sched2-fifo", models=["a", "a", "b", "b"])
    assert localities.spread(result).tolist() == [False, False, True, False]
    assert localities.relaxed(result, {"b"}) == 0.5
    assert localities.relaxed(result, {"a"}) == 0.0
    assert localities.relaxed(result, {"none"}) is None


def test_jobs_on_one_gpu_have_no_locality_to_lose() -> None:
    result = run([(0, 1, 10), (0, 2, 10)], "1x4", models=["a", "a"])
    assert localities.wait_s(result, {"a"}) == 0.0
    single = run([(0, 1, 10)], "1x4", models=["a"])
    assert localities.relaxed(single, {"a"}) is None and localities.wait_s(single, {"a"}) is None


def test_waits_are_means() -> None:
    result = run([(0, 4, 10), (0, 4, 10), (0, 4, 10)], "1x4", "fifo", models=["a", "b", "b"])
    assert localities.wait_s(result, {"b"}) == pytest.approx(15.0)


@pytest.mark.parametrize(
    ("rows", "share"),
    [
        # The second has what the first left; the first has what was free.
        ([(0, 4, 10), (0, 4, 10)], 1 / 2),
        # One of one GPU came in between.
        ([(0, 4, 10), (0, 1, 10), (0, 4, 10)], 0.0),
        # Two of two GPUs make room for one of four: neither left as many.
        ([(0, 2, 10), (0, 2, 10), (0, 4, 10)], 0.0),
        # Then a job of four GPUs makes room for two of two: the first inherits, the second finds a job there.
        ([(0, 4, 10), (0, 2, 10), (0, 2, 10)], 1 / 3),
        # No job with several GPUs.
        ([(0, 1, 10), (0, 1, 10)], None),
    ],
)
def test_locality_is_reused_where_one_job_leaves_it_to_another(rows: list[Row], share: float | None) -> None:
    result = run(rows, "1x4", "fifo")
    assert localities.reused(result) == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("rows", "share"),
    [
        # The third needs both nodes, and has on each what one of the others left.
        ([(0, 4, 10), (0, 4, 10), (20, 8, 10)], 1 / 3),
        # A job of one GPU was on the second node in between.
        ([(0, 4, 10), (0, 4, 10), (15, 4, 4), (15, 1, 4), (20, 8, 10)], 1 / 4),
    ],
)
def test_jobs_on_several_nodes_count_where_all_their_nodes_were_left_to_them(rows: list[Row], share: float) -> None:
    assert localities.reused(run(rows, "2x4", "fifo-skip")) == pytest.approx(share)


def test_scattered_jobs_have_no_good_locality_to_reuse() -> None:
    # The spread job of two GPUs ends with the others, and leaves one GPU to it on each node; the next is spread again.
    result = run([(0, 3, 30), (0, 3, 30), (0, 2, 10), (12, 2, 10)], "2x4", "sched2-fifo")
    assert localities.spread(result).tolist() == [False, False, True, True]
    assert localities.reused(result) == 0.0
