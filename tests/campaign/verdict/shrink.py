"""Shortens a story that breaks a promise, for as long as it still breaks the same one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.campaign.play import play
from tests.campaign.plot.story import Step, Story
from tests.campaign.verdict.model import Promise

Progress = Callable[[int, int], None]
"""Receives the steps that are left and the plays so far."""


def broken_promises(story: Story) -> frozenset[Promise]:
    """Play the story, and return the promises that it breaks."""
    return frozenset(violation.promise for violation in play(story).violations)


def shrink(
    story: Story, promise: Promise, most_plays: int = 400, progress: Progress = lambda _left, _plays: None
) -> Story:
    """Leave out as many steps as possible (delta debugging, Zeller and Hildebrandt 2002). Pauses of steps left out are kept."""
    plays = 0
    parts = 2
    while len(story.steps) > 1 and plays < most_plays:
        size = -(-len(story.steps) // parts)
        for start in range(0, len(story.steps), size):
            shorter = story.with_steps(_without(story.steps, start, start + size))
            plays += 1
            if promise in broken_promises(shorter):
                story, parts = shorter, max(parts - 1, 2)
                progress(len(story.steps), plays)
                break
            if plays >= most_plays:
                return story
        else:
            if size == 1:
                return story
            parts = min(parts * 2, len(story.steps))
    return story


def _without(steps: tuple[Step, ...], start: int, end: int) -> tuple[Step, ...]:
    """Return the steps without those; the time that they took passes before the next one."""
    pause_s = sum(step.after_s for step in steps[start:end])
    kept = steps[:start] + steps[end:]
    if start < len(kept):
        first = kept[start]
        kept = (*kept[:start], replace(first, after_s=first.after_s + pause_s), *kept[start + 1 :])
    return kept
