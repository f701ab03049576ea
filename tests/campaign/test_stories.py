"""Stories on the embedded Slurm: no promise is broken, each comes out the same every time, and known defects are found."""

from __future__ import annotations

import json
import logging
import warnings
from collections import Counter
from pathlib import Path

import pytest

from tests.campaign.__main__ import main
from tests.campaign.play import play
from tests.campaign.plot.generate import OPERATIONS_AT_LEAST, make_story
from tests.campaign.plot.story import Step, Story, read_story
from tests.campaign.verdict.defects.catalogue import DEFECTS
from tests.campaign.verdict.model import Promise
from tests.campaign.verdict.shrink import shrink
from tests.campaign.world import answers

STORIES = Path(__file__).parent / "stories"
QUICKLY_FOUND = {
    "hold-only-wakes": range(2000, 2006),
    "users-cannot-release": range(2000, 2004),
    "stopped-before-it-has-saved": range(2000, 2006),
}
"""Defects of which few stories are enough."""


@pytest.mark.parametrize("path", sorted(STORIES.glob("*.json")), ids=lambda path: path.stem)
def test_a_story_that_broke_a_promise_once_does_so_no_more(path: Path) -> None:
    assert list(map(str, play(read_story(path)).violations)) == []


def test_a_story_comes_out_the_same_every_time() -> None:
    first, second = (play(make_story(2100)) for _ in range(2))
    assert (first.starts, first.virtual_s, first.awaits) == (second.starts, second.virtual_s, second.awaits)


def test_a_story_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    story = make_story(2101)
    story.write(tmp_path / "story.json")
    again = read_story(tmp_path / "story.json")
    assert [step.verb for step in again.steps] == [step.verb for step in story.steps]
    first, second = play(again), play(story)
    assert (first.starts, first.virtual_s) == (second.starts, second.virtual_s)


@pytest.mark.parametrize("defect", QUICKLY_FOUND)
def test_a_known_defect_is_found(defect: str) -> None:
    with DEFECTS[defect]():
        assert any(play(make_story(seed)).violations for seed in QUICKLY_FOUND[defect])


@pytest.mark.slow
def test_changes_of_users_are_seldom_lost() -> None:
    """A change may be lost while the controller is away, or between two of its readings (see the known limits)."""
    changes: Counter[bool] = Counter()
    for seed in range(2000, 2013):
        changes += play(make_story(seed)).changes
    assert changes[True] > 30
    assert changes[False] * 10 <= changes[True]


def test_a_violation_is_shortened_and_kept(tmp_path: Path) -> None:
    with DEFECTS["hold-only-wakes"]():
        story = next(story for seed in QUICKLY_FOUND["hold-only-wakes"] if play(story := make_story(seed)).violations)
        promise = play(story).violations[0].promise
        short = shrink(story, promise, most_plays=20)
        assert len(short.steps) < len(story.steps) / 2
        assert promise in {violation.promise for violation in play(short).violations}
    assert play(short).violations == []


def test_each_story_that_breaks_a_promise_is_kept_and_can_be_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.campaign.__main__.shrink", lambda story, _promise: story)  # it takes minutes
    defect = ["--defect", "hold-only-wakes", "--processes", "1"]
    assert main(["--runs", "2", "--seed", "2000", "--json", "--keep", str(tmp_path), *defect]) == 1
    kept = [tmp_path / f"story-{seed}.json" for seed in (2000, 2001)]
    texts = json.loads(kept[0].read_text())["violations"]
    assert any(text.startswith("[NOT_WHILE_HELD] at ") for text in texts)
    again = read_story(kept[0])
    assert [step.verb for step in again.steps] == [step.verb for step in make_story(2000).steps]
    assert [path for path in kept if path.exists()] == kept
    short = [tmp_path / f"not_while_held-{seed}.json" for seed in (2000, 2001)]
    assert [path for path in short if path.exists()] == short

    logging.disable(logging.INFO)
    filters = list(warnings.filters)
    assert main(["--story", str(kept[0])]) == 0, "without the defect it breaks no promise"
    assert (logging.root.manager.disable, warnings.filters) == (logging.INFO, filters)


def test_logging_is_on_after_a_test_that_has_disabled_it() -> None:
    """The test before leaves messages below WARNING off, and `conftest` switches them on again."""
    assert logging.root.manager.disable == logging.NOTSET


def test_the_command_says_what_it_played(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--runs", "2", "--seed", "2000", "--processes", "1", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["runs"], record["violations"]) == (2, [])
    assert record["operations"] >= 2 * OPERATIONS_AT_LEAST


def test_the_power_of_the_campaign_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--power", "--defect", "hold-only-wakes", "--seed", "2000", "--runs", "6", "--processes", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| hold-only-wakes | The plugin reports")
    assert lines[2].endswith("| NOT_WHILE_HELD |")
    assert lines[-1] == "1 of 1 defects found"


@pytest.mark.parametrize("name", DEFECTS)
def test_every_defect_can_be_put_back(name: str) -> None:
    """It is gone afterwards: patching a name that does not exist any more raises."""
    with DEFECTS[name]():
        pass


def test_every_promise_says_what_it_is() -> None:
    assert all(promise.value for promise in Promise)


def test_an_error_of_the_campaign_itself_is_a_violation_of_its_story() -> None:
    played = play(Story(1, 2, 2, "fifo-skip", preemption=False, steps=(Step(0.1, "submit", {"nonsense": 1}),)))
    assert [violation.promise for violation in played.violations] == [Promise.NO_BUG]
    assert "could not be played to its end" in str(played.violations[0])


def test_stories_have_texts_as_users_write_them() -> None:
    stories = [make_story(seed) for seed in range(40)]
    submissions = [step.args for story in stories for step in story.steps if step.verb == "submit"]
    for field in ("user", "name", "comment", "account"):
        texts = {args[field] for args in submissions}
        assert any(not text.isascii() for text in texts), field
        assert any("=" in text for text in texts), field
    assert any("\n" in args["name"] for args in submissions)
    assert any(not story.partition.isascii() for story in stories)


def test_a_controller_that_cannot_answer_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise answers.WrongAnswerError("a job is missing")

    monkeypatch.setattr(answers, "_check", broken)
    played = play(make_story(24000001))
    assert [violation.promise for violation in played.violations] == [Promise.NO_BUG]
