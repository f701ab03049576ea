"""Outcomes of steps without an answer: each is a value of an enumeration, and no text of Slurm is taken for one."""

from __future__ import annotations

import pytest

from controller.slurm.model.job import Phase
from controller.state.step_outcome import StepOutcome, is_answered, outcome_seen
from tests.unit.controller.examples.build import job


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("held", [True, False])
def test_what_the_snapshot_shows_is_no_answer(phase: Phase, held: bool) -> None:
    found = outcome_seen("pin", job(phase=phase, held=held))
    assert found == f"found {phase.value}{', held' if held else ''}", "rows of earlier versions have these texts"
    assert not is_answered(found.value)


def test_a_released_job_that_is_not_held_and_a_job_that_is_gone_need_no_answer() -> None:
    assert outcome_seen("release", job(held=False)) is StepOutcome.DONE
    assert outcome_seen("release", job(held=True)) is StepOutcome.FOUND_PENDING_HELD
    assert outcome_seen("pin", None) is StepOutcome.GONE
    assert is_answered("done")
    assert is_answered("job is gone")
    assert not is_answered(None)


def test_an_error_message_of_slurm_is_an_answer_whatever_its_first_word() -> None:
    assert is_answered("found no such node")
