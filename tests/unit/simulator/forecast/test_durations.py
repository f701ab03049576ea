"""Run times that are drawn for jobs that have not ended."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.forecast.durations import LONGEST_S, Durations
from tests.unit.simulator.forecast.queues import past, queue

RNG = 7


def drawn(durations, jobs, samples=400):
    return Durations(past(durations)).draw(jobs, samples, np.random.default_rng(RNG))


def test_a_job_that_has_not_run_is_drawn_from_the_ended_ones() -> None:
    found = drawn([100.0] * 50 + [900.0] * 50, queue([], [1]).jobs)

    assert np.quantile(found, 0.3) == 100.0 and np.quantile(found, 0.7) == 900.0


def test_what_a_job_has_run_already_excludes_the_shorter_ones() -> None:
    found = drawn([100.0] * 90 + [900.0] * 10, queue([(1, 500.0)], []).jobs)

    assert found.min() > 500.0
    assert np.quantile(found, 0.4) == 900.0


def test_a_job_that_has_outrun_all_others_goes_on_as_long_as_it_has_run() -> None:
    found = drawn([100.0] * 100, queue([(1, 10_000.0)], []).jobs)

    assert np.median(found) == pytest.approx(20_000.0, rel=0.2)
    assert found.max() <= LONGEST_S


def test_no_draw_is_beyond_the_limit_or_before_now() -> None:
    found = drawn([100.0, 5000.0] * 50, queue([(1, 990.0)], [1], limit_s=1000.0).jobs)

    assert found.max() <= 1000.0 and found[:, 0].min() >= 991.0


def test_a_limit_is_that_of_one_run() -> None:
    # Given a job with a limit of 1,000 s that has run for 2,500 s, of which 500 s in its present run, and jobs that took longer
    jobs = replace(queue([(1, 2500.0)], [], limit_s=1000.0).jobs, earlier_s=np.array([2000.0]))
    found = drawn([2800.0, 9000.0] * 50, jobs)

    # Then its present run may end by itself before its limit, or at it
    assert found.max() == 3000.0 and np.isclose(found, 2800.0).any()


def test_the_kind_of_a_job_counts_more_than_all_others() -> None:
    both = past([10.0] * 50 + [1000.0] * 50)
    both.kind[:50], both.group[:50] = 2, 5
    found = Durations(both).draw(queue([], [2, 1]).jobs, 400, np.random.default_rng(RNG))

    assert np.median(found[:, 0]) == 10.0 and np.median(found[:, 1]) == 1000.0


def test_without_ended_jobs_there_are_still_run_times() -> None:
    found = drawn([], queue([(1, 50.0)], [1]).jobs)

    assert np.isfinite(found).all() and (found > [50.0, 0.0]).all()


def test_jobs_of_one_kind_are_long_or_short_together() -> None:
    found = drawn([float(each) for each in range(1, 101)], queue([], [1, 1]).jobs, 2000)

    assert np.corrcoef(found.clip(0, 200).T)[0, 1] > 0.03
