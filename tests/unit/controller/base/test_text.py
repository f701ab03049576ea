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
    ],
)
def test_ids_of_jobs_are_replaced(text: str, shown: str) -> None:
    assert without_job_ids(text) == shown
