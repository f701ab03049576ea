"""Numbers on the pages are those that the commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headway_client import Explanation, JobSummary, Status, Usage, UserUsage
from headway_client.words import JobState

from controller.web.pages import usage
from controller.web.pages.job import WIDTH
from controller.web.rendering import Renderer
from controller.web.settings import WebSettings


@pytest.mark.parametrize(
    ("report", "shown"),
    [
        (
            JobSummary(service_s=9.0, gpu_hours=0.04, idle_gpu_hours=0.004),
            ("0.04 GPU hours<", "0.004 GPU hours without"),
        ),
        (JobSummary(service_s=9.0, energy_kwh=3460.0, gpu_hours=12345.6), ("3460 kWh of its GPUs", "12346 GPU hours<")),
        (JobSummary(gpu_hours=0.0, steps=0), ("<dt>Ran</dt><dd>not yet</dd>",)),
        (JobSummary(end_time_s=9.0, gpu_hours=0.0, steps=0), ("<dd>0 s, 0 GPU hours</dd>", "<dt>Steps</dt>")),
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


def test_little_gpu_time_is_not_shown_as_none() -> None:
    renderer = Renderer(WebSettings(token_file=Path("t")), now=lambda: 1_700_000_000.0)
    hours = {"ann": 1234.56, "bob": 0.0123, "cem": 0.00001, "dan": 0.0}
    answer = Usage(users=tuple(UserUsage(user=user, gpu_hours=value) for user, value in hours.items()), all_users=True)
    html = renderer._html(
        "usage.html",
        user="ann",
        path="/usage",
        usage=answer,
        rows=usage.rows(answer, Status()),
        all_users=True,
        shares=False,
    )
    shown = re.findall(r'<th scope="row"><a [^>]*>(\w+)</a></th><td class="n">([^<]*)</td>', html)
    assert shown == [("ann", "1235"), ("bob", "0.0123"), ("cem", "&lt;0.001"), ("dan", "0")]


def test_a_name_cannot_rearrange_the_page() -> None:
    renderer = Renderer(WebSettings(token_file=Path("t")), now=lambda: 1_700_000_000.0)
    name = "a\u202eb\u2066\x1b[2J\x9b1m\u200f\ufeff <b>é 漢"
    why = Explanation(job_id="7", state=JobState.RUNNING, sentence=f"Runs as {name}.")
    html = renderer._html(
        "job.html", user="ann", path="/jobs/7", why=why, report=None, events=(), notices=(), spans=[], times=[],
        facts=[], width=WIDTH,
    )  # fmt: skip
    assert "a?b??[2J?1m?? &lt;b&gt;é 漢" in html
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e-\u200f\u202a-\u202e\u2066-\u2069]", html)
