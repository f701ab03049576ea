"""Texts of the random stories are read from scontrol's lines as they were written; in the stories no text is printed and read."""

from __future__ import annotations

import pytest

from controller.slurm.scontrol.parse import parse_job
from tests.campaign.plot import texts
from tests.unit.controller.slurm.scontrol.text import CLOCK, RUNNING, job_line

TEXTS = {
    "name": [text for text in texts._NAMES if "UserId=" not in text],
    "user": [text for text in texts._USERS if "=" not in text],
    "comment": texts._COMMENTS,
    "account": [text for text in texts._ACCOUNTS if text],
    "partition": texts._PARTITIONS,
}


@pytest.mark.parametrize(("field", "text"), [(field, text) for field, each in TEXTS.items() for text in each])
@pytest.mark.parametrize("state", [{}, RUNNING], ids=["pending", "running"])
def test_a_text_is_read_as_it_was_written(field: str, text: str, state: dict[str, str]) -> None:
    [job] = parse_job(job_line(**state, **{field: text}), CLOCK).jobs
    assert getattr(job, field).strip() == text.strip()


@pytest.mark.parametrize("fields", [{"user": "x=y"}, {"name": "x UserId=root(0) GroupId=root(0) MCS_label="}])
def test_an_owner_that_is_in_doubt_is_not_known(fields: dict[str, str]) -> None:
    [job] = parse_job(job_line(**fields), CLOCK).jobs
    assert job.user == ""
