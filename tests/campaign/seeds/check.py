"""Check of random stories."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.campaign.play import play
from tests.campaign.plot.generate import FAULTS_AT_LEAST, OPERATIONS_AT_LEAST, make_story

_MANY = 8
"""A fault that happens so often takes effect at least once, by all likelihood."""
_SELDOM = {"task_fails": 24}
"""The same of those that seldom do: a task that has just failed, or that waits, does not fail."""
_injected: Counter[str] = Counter()
_effects: Counter[str] = Counter()


def check_story(seed: int) -> None:
    """Play the story of a seed: it breaks no promise, and has as many operations and faults as every story."""
    played = play(make_story(seed))
    _injected.update(played.faults)
    _effects.update(played.effects)
    assert list(map(str, played.violations)) == []
    assert played.operations >= OPERATIONS_AT_LEAST
    assert played.faults.total() >= FAULTS_AT_LEAST
    assert played.starts > 0


def check_effects() -> None:
    """Check that none of the kinds of faults was without any effect in the stories that this process has played."""
    many = [verb for verb, times in _injected.items() if times >= _SELDOM.get(verb, _MANY)]
    if not many:
        pytest.skip("too few stories were played before, in this process")
    assert [verb for verb in many if not _effects[verb]] == []
