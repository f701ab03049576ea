"""Power of the campaign: the number of stories after which it finds each known defect.

A defect is put back, and stories are played from the first seed on, until one breaks a promise. It counts as found only where
that story breaks none without the defect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from tests.campaign.many import silenced
from tests.campaign.play import play
from tests.campaign.plot.generate import make_story
from tests.campaign.verdict.defects.catalogue import DEFECTS, REVIEWS

STORIES = 40
"""Stories for each defect."""


@dataclass(frozen=True, slots=True)
class Found:
    """Outcome for one defect."""

    defect: str
    what: str
    """Effect of the defect, in one sentence."""
    stories: int
    """Stories that were played."""
    promise: str = ""
    """Promise that was broken; empty: not found."""
    seed: int | None = None


def power(seeds: range, processes: int, names: Sequence[str] = tuple(DEFECTS)) -> Iterator[Found]:
    """Look for each defect, in the order of their names."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(look_for, names, [seeds] * len(names))


def look_for(name: str, seeds: range) -> Found:
    """Play stories with the defect until one breaks a promise that it keeps without it."""
    what = (DEFECTS[name].__doc__ or "").strip().splitlines()[0]
    for count, seed in enumerate(seeds, 1):
        story = make_story(seed)
        with silenced(), DEFECTS[name]():
            violations = play(story).violations
        with silenced():
            found = violations and not play(story).violations
        if found:
            return Found(name, what, count, violations[0].promise.name, seed)
    return Found(name, what, len(seeds))


def table(found: Sequence[Found]) -> str:
    """Return the outcomes as a Markdown table, those from reviews first, with a last line that counts them."""
    lines = ["| defect | what it does | from | found after | broken promise |", "|---|---|---|---|---|"]
    for one in sorted(found, key=lambda one: one.defect not in REVIEWS):
        after = _stories(one.stories) if one.promise else f"not found ({_stories(one.stories)})"
        source = REVIEWS.get(one.defect, "-")
        lines.append(f"| {one.defect} | {one.what} | {source} | {after} | {one.promise or '-'} |")
    reviewed = [one for one in found if one.defect in REVIEWS]
    others = [one for one in found if one.defect not in REVIEWS]
    counts = [f"{_found(some)} of {what}" for some, what in ((reviewed, "reviews"), (others, "later")) if some]
    return "\n".join(
        [*lines, "", f"{_found(found)} defects found" + (f" ({', '.join(counts)})" if others and reviewed else "")]
    )


def _found(some: Sequence[Found]) -> str:
    return f"{sum(bool(one.promise) for one in some)} of {len(some)}"


def _stories(count: int) -> str:
    return f"{count} {'story' if count == 1 else 'stories'}"
