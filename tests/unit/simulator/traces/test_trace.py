"""Laws of a trace: order, heads and sizes."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.traces.trace import NOT_KNOWN, NS_PER_S, Trace


def trace(submits: list[int], gpus: list[int] | None = None) -> Trace:
    ids = [f"j{row}" for row in range(len(submits))]
    sizes = gpus or [1] * len(submits)
    return Trace.of("t", ids, np.array(submits) * NS_PER_S, sizes, [NS_PER_S] * len(ids), user=[f"u{i}" for i in ids])


def test_jobs_stand_in_the_order_of_their_submits_and_of_the_file_on_ties() -> None:
    jobs = trace([5, 3, 5, 0, 3])
    assert jobs.job_ids == ("j3", "j1", "j4", "j0", "j2")
    assert jobs.user == ("uj3", "uj1", "uj4", "uj0", "uj2")
    assert jobs.submit_ns.tolist() == [0, 3 * NS_PER_S, 3 * NS_PER_S, 5 * NS_PER_S, 5 * NS_PER_S]
    assert jobs.file_rows.tolist() == [3, 1, 4, 0, 2]


def test_a_head_takes_the_first_rows_of_the_file_not_the_first_submits() -> None:
    jobs = trace([5, 3, 5, 0, 3])
    assert jobs.head(2).job_ids == ("j1", "j0")
    assert jobs.head(4).job_ids == ("j3", "j1", "j0", "j2")
    assert jobs.head(5) is jobs
    assert jobs.head(99) is jobs


def test_what_cannot_fit_is_dropped_and_counted() -> None:
    jobs = trace([0, 1, 2, 3], gpus=[8, 64, 9, 1])
    fitting, dropped = jobs.fitting(8)
    assert (fitting.job_ids, dropped) == (("j0", "j3"), 2)
    assert jobs.fitting(64) == (jobs, 0)
    assert fitting.head(2).job_ids == ("j0", "j3")


def test_what_is_not_given_is_not_known_and_sizes_are_fixed() -> None:
    jobs = trace([0, 1], gpus=[2, 3])
    assert jobs.limit_ns.tolist() == jobs.batch_size.tolist() == [NOT_KNOWN, NOT_KNOWN]
    assert jobs.min_gpus.tolist() == jobs.max_gpus.tolist() == [2, 3]
    assert jobs.preemptible.all()
    assert jobs.model == ("", "")


def test_columns_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        trace([0, 1]).submit_ns[0] = 7


def test_from_zero_shifts_and_keeps_the_gaps() -> None:
    assert (trace([7, 3]).from_zero().submit_ns / NS_PER_S).tolist() == [0, 4]


@pytest.mark.parametrize(
    ("columns", "reported"),
    [
        ((["a", "a"], [0, 1], [1, 1], [1, 1]), "not unique"),
        ((["a", "b"], [0, -1], [1, 1], [1, 1]), "submit time below 0"),
        ((["a", "b"], [0, 1], [1, 1], [1, 0]), "duration that is not above 0"),
        ((["a", "b"], [0, 1], [1, 0], [1, 1]), "min_gpus below 1"),
        ((["a", "b"], [0, 1], [1], [1, 1]), "num_gpus has 1 entries for 2 jobs"),
    ],
)
def test_invalid_columns_are_refused(columns: tuple[list[str], list[int], list[int], list[int]], reported: str) -> None:
    with pytest.raises(ValueError, match=reported):
        Trace.of("t", *columns)


def test_sizes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="num_gpus below min_gpus"):
        Trace.of("t", ["a"], [0], [2], [1], min_gpus=[3], max_gpus=[3])
    with pytest.raises(ValueError, match="max_gpus below num_gpus"):
        Trace.of("t", ["a"], [0], [2], [1], max_gpus=[1])
