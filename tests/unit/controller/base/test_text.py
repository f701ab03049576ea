"""Texts for users who may not see the jobs of others."""

from __future__ import annotations

import pytest

from controller.base.text import without_job_ids


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
