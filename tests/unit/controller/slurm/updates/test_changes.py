from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from controller.slurm.updates.comments import with_mark, without_mark

WORDS = st.text(st.sampled_from(f"a \t\n,:{HOLD_MARK[:3]}"), max_size=20)


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        (HOLD_MARK, ""),
        (f"a {HOLD_MARK}", "a"),
        (f"{HOLD_MARK} a", "a"),
        (f"a {HOLD_MARK} b", "a b"),
        (f"a\n{HOLD_MARK}\nb", "a\n\nb"),
        (f"x{HOLD_MARK} {HOLD_MARK}", f"x{HOLD_MARK}"),
        (f"{HOLD_MARK}x {HOLD_MARK} {USER_HOLD_MARK}", f"{HOLD_MARK}x {USER_HOLD_MARK}"),
    ],
)
def test_a_mark_is_removed_and_the_rest_stays(comment: str, left: str) -> None:
    assert without_mark(comment, HOLD_MARK) == left


@given(WORDS)
def test_a_mark_that_came_and_went_leaves_nothing(comment: str) -> None:
    if HOLD_MARK not in comment.split():
        marked = with_mark(comment, HOLD_MARK)
        assert HOLD_MARK in marked.split()
        assert without_mark(marked, HOLD_MARK) == comment
