"""A copy of a guarded policy shares nothing with the original that decisions change."""

from __future__ import annotations

import pytest

from policies.learned.contention_rl.policy import RlBase
from policies.learned.dl2.policy import Dl2

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_a_copy_has_rounds_of_its_own() -> None:
    policy = RlBase(round_s=300.0)
    twin = policy.fork()
    assert twin._rounds.begins(300.0)
    assert policy._rounds.begins(300.0), "a round of the copy is none of the original"


def test_a_copy_has_slots_and_a_guard_of_its_own_and_does_not_learn(tmp_path) -> None:
    policy = Dl2(learn=str(tmp_path))
    twin = policy.fork()
    assert twin._resizer is not policy._resizer
    assert twin._guard is not policy._guard
    assert policy.learning() is not None
    assert twin.learning() is None
