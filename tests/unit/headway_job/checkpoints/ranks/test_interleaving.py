"""Two ranks end, and make the same calls, in any order of requests, failed saves, cancellations and the last step."""

from __future__ import annotations

import pytest

from tests.unit.headway_job.checkpoints.ranks.interleaving import NotEndedError, Story


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_both_ranks_end_and_have_saved_the_same_step(first: int) -> None:
    for seed in range(first, first + 40):
        story = Story(seed)
        story.play()
        assert story.errors == [], seed
        assert len(set(story.training.calls)) == len(set(story.writing.calls)) == 1, seed
        assert len(set(story.saved.values())) == 1, seed


def test_a_rank_that_leaves_out_an_exchange_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stories can fail: here a rank does not tell the others how its save ended."""
    monkeypatch.setattr("tests.unit.headway_job.checkpoints.ranks.interleaving._HANGS_S", 1.0)
    monkeypatch.setattr("headway_job.checkpoints.async_writer.AsyncWriter._conclude", _one_sided)
    with pytest.raises((NotEndedError, AssertionError)):
        for seed in range(20):
            story = Story(seed)
            story.play()
            assert len(set(story.writing.calls)) == 1


def _one_sided(self: object, *_: object) -> None:
    ranks = self._ranks  # type: ignore[attr-defined]
    if ranks.rank == 1:
        ranks.exchange(bytes([0]))
