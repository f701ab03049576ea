"""The garbage of a story is collected within the story."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from tests.campaign.play import play
from tests.campaign.plot.generate import make_story


def test_coroutines_of_killed_controllers_end_within_their_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """They ignore GeneratorExit, because their `finally` awaits again, and Python prints that whenever it finds them."""
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: said.append(each.exc_value))
    play(make_story(2000))
    gc.collect()
    assert said == []
