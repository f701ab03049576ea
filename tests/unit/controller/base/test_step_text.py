"""Steps of a job as text."""

from __future__ import annotations

import pytest

from controller.base.step_text import steps_phrase, steps_sentence, steps_short


@pytest.mark.parametrize(
    ("done", "in_all", "steps_per_s", "text"),
    [
        (
            43_200,
            100_000,
            5.97,
            "It has made 43200 of its 100000 steps (43%); at this speed the others take 2 h 38 min.",
        ),
        (43_200, 100_000, None, "It has made 43200 of its 100000 steps (43%)."),
        (99_999, 100_000, 0.0, "It has made 99999 of its 100000 steps (99%)."),
        (120, 100, 5.0, "It has made 120 of its 100 steps (100%)."),
        (1, None, 5.0, "It has made 1 step."),
    ],
)
def test_the_sentence_has_what_is_known(done: int, in_all: int | None, steps_per_s: float | None, text: str) -> None:
    assert steps_sentence(done, in_all, steps_per_s) == text


def test_columns_have_short_forms() -> None:
    assert (steps_phrase(432, 1000), steps_phrase(432, None)) == ("step 432 of 1000 (43%)", "step 432")
    assert (steps_short(432, 1000), steps_short(432, None)) == ("43%", "step 432")
