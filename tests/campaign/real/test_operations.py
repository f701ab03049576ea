"""Refusals of `headway preempt` after which an operator of a story tries again."""

from __future__ import annotations

import pytest
import typer

from controller.admin.protocol import Reason
from controller.cli.client import UNREACHABLE
from controller.cli.commands.call import fail
from tests.campaign.real.operations import refusal_of


@pytest.mark.parametrize(
    ("reason", "code", "passes"),
    [
        (Reason.NOT_PREEMPTIBLE, 1, True),
        (Reason.NOT_READY, UNREACHABLE, True),
        ("", UNREACHABLE, True),
        (Reason.NOT_RESIZABLE, 1, False),
        (Reason.UNKNOWN_JOB, 1, False),
        ("", 1, False),
    ],
)
def test_a_refusal_is_known_by_its_reason_and_not_by_its_words(
    capsys: pytest.CaptureFixture[str], reason: str, code: int, passes: bool
) -> None:
    with pytest.raises(typer.Exit):
        fail("job 7 does not run, is still starting; no controller answers", code, True, reason)
    said = capsys.readouterr()
    text = "job 7 does not run, is still starting; no controller answers"
    assert refusal_of(said.out + said.err) == refusal_of(said.err + said.out) == (text, passes)


@pytest.mark.parametrize("output", ["", "Traceback", '{"number": 3', '{"number": 3, "stage": "asked"}'])
def test_other_outputs_are_no_refusals_that_pass(output: str) -> None:
    assert refusal_of(output) == (output, False)
