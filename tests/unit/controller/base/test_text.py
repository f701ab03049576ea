"""Texts for users who may not see the jobs of others."""

from __future__ import annotations

import time

import pytest

from controller.base.text import duration, gpu_hours, short_time, shortened, three_digits, without_job_ids


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "1.9 times slower, on n1,n2 beside job 8; n3 is free",
            "1.9 times slower, on n1,n2 beside another job; n3 is free",
        ),
        ("beside jobs 8, 9_12 and 10", "beside other jobs"),
        ("beside jobs 8, 9 and 2 more", "beside other jobs and 2 more"),
        ("it makes room for job 7_3", "it makes room for another job"),
        ("8 GPUs on 2 jobs, on node n8", "8 GPUs on 2 jobs, on node n8"),
        ("by hand", "by hand"),
        ("Job 7 starts before", "another job starts before"),
        ("JobId=7, job id 8, job #9", "another job, another job, another job"),
        ("beside jobs 7,8 on n1", "beside other jobs on n1"),
        ("after job 12_[1-4,9%2] and 13", "after other jobs"),
        ("jobs: 7, and 8 or 9", "other jobs"),
        ("2 jobs, 3 more", "2 jobs, 3 more"),
    ],
)
def test_ids_of_jobs_are_replaced(text: str, shown: str) -> None:
    assert without_job_ids(text) == shown


def test_a_near_time_has_no_more_of_the_date_than_it_needs() -> None:
    now_s = time.mktime((2026, 5, 4, 12, 0, 0, 0, 0, -1))
    times_s = (now_s - 43_200, now_s - 43_201, now_s - 200 * 86_400)

    assert [short_time(each, now_s) for each in times_s] == ["00:00:00", "05-03 23:59", "2025-10-16"]


def test_durations_of_a_narrow_column_have_no_spaces() -> None:
    assert [shortened(duration(each)) for each in (45, 720, 7500, 200_000)] == ["45s", "12m", "2h5m", "2d7h"]
    assert shortened("12 min - 2 h 5 min") == "12m-2h5m"
    assert shortened("> 3 h") == "> 3h"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (0.0000123, "<0.001"),
        (0.001, "0.001"),
        (0.01234, "0.0123"),
        (5.44, "5.44"),
        (999.4, "999"),
        (999.7, "1000"),
        (1234.5, "1234"),
        (3.456e6, "3456000"),
    ],
)
def test_large_numbers_have_all_their_digits_and_small_ones_no_exponent(number: float, text: str) -> None:
    assert three_digits(number) == text
    assert gpu_hours(number) == f"{text} GPU hours"
