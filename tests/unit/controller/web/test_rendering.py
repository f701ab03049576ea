"""Numbers on the pages are those that the commands print."""

from __future__ import annotations

from pathlib import Path

import pytest
from headway_client import Explanation, JobSummary
from headway_client.words import JobState

from controller.web.pages.job import WIDTH
from controller.web.rendering import Renderer
from controller.web.settings import WebSettings


@pytest.mark.parametrize(
    ("report", "shown"),
    [
        (JobSummary(gpu_hours=0.04, idle_gpu_hours=0.004), ("0.04 GPU hours<", "0.004 GPU hours without")),
        (JobSummary(energy_kwh=3460.0, gpu_hours=12345.6), ("3460 kWh of its GPUs", "12346 GPU hours<")),
    ],
)
def test_the_page_of_a_job_has_the_digits_that_headway_report_prints(
    report: JobSummary, shown: tuple[str, ...]
) -> None:
    renderer = Renderer(WebSettings(token_file=Path("t")), now=lambda: 1_700_000_000.0)
    why = Explanation(job_id="7", state=JobState.RUNNING)
    html = renderer._html(
        "job.html", user="ann", path="/jobs/7", why=why, report=report, events=(), notices=(), spans=[], times=[],
        facts=[], width=WIDTH,
    )  # fmt: skip
    assert [text for text in shown if text not in html] == []
