"""Trials of start estimates: drawn jobs, estimates as they are read, and their scores."""

from __future__ import annotations

from math import inf

import pytest

from tests.bench.measuring.start_trial import Estimate, Reader, Seen, TrialJob, draw_jobs, scores, waits_by_size


def estimate(made_s: float, *start_s: float) -> Estimate:
    low, middle, high = start_s
    return Estimate(made_s, (low, middle, high))


def test_equal_seeds_draw_equal_jobs_that_fill_the_cluster() -> None:
    jobs = draw_jobs(400, 24, 3)
    assert jobs == draw_jobs(400, 24, 3) != draw_jobs(400, 24, 4)
    assert [job.at_s for job in jobs] == sorted(job.at_s for job in jobs)
    assert all(job.duration_s <= 60 * job.limit_min for job in jobs)
    work_s = sum(job.duration_s * job.gpus for job in jobs) / 24
    assert 0.8 * work_s < jobs[-1].at_s < 1.2 * work_s


def test_the_first_estimate_counts_and_every_different_one_is_known() -> None:
    reader = Reader()
    reader.read("7", estimate(100, 110, 120, 130))
    reader.read("7", estimate(100, 110, 120, 130))  # read twice
    reader.read("7", estimate(110, 111, 112, 113))
    reader.read("7", estimate(126, 127, 128, 129))  # made when it had started
    job = TrialJob(0.0, "train-1", 2, 5.0, 1)
    first, none = reader.seen({"7": (job, 95.0), "8": (job, 96.0)}, {"7": 125.0, "8": 97.0})
    assert (first.first, first.estimates, first.held) == (estimate(100, 110, 120, 130), 2, 1)
    assert (none.first, none.estimates) == (None, 0)


def test_past_waits_are_those_of_the_size_that_were_longer_than_the_job_has_waited() -> None:
    ended = [Seen(1, 0.0, wait_s, None) for wait_s in (2.0, 10.0, 20.0, 30.0)]
    other = Seen(8, 0.0, 40.0, None)
    coming = Seen(1, 0.0, 500.0, None)
    job = Seen(1, 95.0, 200.0, None)
    assert waits_by_size([*ended, other, coming], job, 100.0).tolist() == pytest.approx([7.0, 15.0, 23.0])
    # without one of its size, those of any size; without any, 0
    assert waits_by_size([*ended], Seen(8, 95.0, 200.0, None), 100.0)[1] == pytest.approx(15.0)
    assert waits_by_size([], job, 100.0).tolist() == [0.0, 0.0, 0.0]


def test_scores_are_of_jobs_with_an_estimate_and_without_an_endless_one() -> None:
    seen = [
        Seen(1, 0.0, 120.0, estimate(100, 110, 120, 130)),  # in the range, and its median is right
        Seen(1, 0.0, 105.0, estimate(100, 110, 120, 130)),  # earlier
        Seen(1, 0.0, 150.0, estimate(100, 110, 120, 130)),  # later
        Seen(1, 0.0, 150.0, estimate(100, 110, 120, inf)),
        Seen(1, 0.0, 150.0, None),
    ]
    found = scores(seen, range(5))
    assert found is not None
    assert (found.jobs, found.unbounded, found.wait_s) == (3, 1, 25.0)
    assert (found.shown.coverage, found.shown.below, found.shown.above) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert scores(seen, [3, 4]) is None
