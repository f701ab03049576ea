"""Check of one random story."""

from __future__ import annotations

from tests.campaign.play import play
from tests.campaign.plot.generate import FAULTS_AT_LEAST, OPERATIONS_AT_LEAST, make_story


def check_story(seed: int) -> None:
    """Play the story of a seed: it breaks no promise, and has as many operations and faults as every story."""
    played = play(make_story(seed))
    assert list(map(str, played.violations)) == []
    assert played.operations >= OPERATIONS_AT_LEAST
    assert played.faults.total() >= FAULTS_AT_LEAST
    assert played.starts > 0
