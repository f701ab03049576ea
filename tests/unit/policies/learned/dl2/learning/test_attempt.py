"""The comparison of an attempt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from policies.api import load_policy, parse_policy
from policies.learned.dl2.learning import attempt
from policies.learned.dl2.learning.replay_trace import replay_of
from policies.learned.dl2.policy import Dl2
from policies.learned.evaluation import promotion
from tests.unit.policies.learned.dl2.learning.examples import records
from tests.unit.policies.learned.dl2.learning.test_service import candidate


def test_agents_are_compared_without_a_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A guard starts the jobs that an agent leaves waiting, so that a poor agent would look like a good one.
    compared: list[str] = []

    def note(present: str, coming: str, _request: object, _report: Callable[[float], None]) -> None:
        compared.extend((present, coming))

    monkeypatch.setattr(promotion, "compare_policies", note)
    monkeypatch.chdir(tmp_path)
    for folder in (attempt.PARENT, attempt.TRAINING):
        candidate(tmp_path / folder, 1.0)
    attempt._compare(replay_of(records(300)))
    for text, folder in zip(compared, (attempt.PARENT, attempt.TRAINING), strict=True):
        policy = load_policy(*parse_policy(text))
        assert isinstance(policy, Dl2)
        assert policy._guard is None
        assert f"weights={folder}" in text
