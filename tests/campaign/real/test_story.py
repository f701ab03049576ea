"""One short story on a real Slurm, and the stories as data."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.campaign.real.generate import FAULTS_AT_LEAST, OPERATIONS_AT_LEAST, make_real_story
from tests.campaign.real.many import run_real
from tests.campaign.real.story import read_real_story, submission_of
from tests.cluster.conftest import skip_unless_possible

SEED = 7


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_short_stories_on_two_real_clusters_at_a_time_break_no_promise(tmp_path: Path) -> None:
    skip_unless_possible(accounting=True)
    stories = [make_real_story(seed, operations=20) for seed in (SEED, SEED + 1)]
    tally = run_real(stories, tmp_path, processes=2)
    assert (tally.violations, tally.failed) == ([], [])
    assert tally.stories == len(stories)
    assert tally.runs > 0
    assert tally.faults.total() >= 2 * FAULTS_AT_LEAST


def test_stories_have_enough_operations_and_faults_and_come_out_the_same_every_time() -> None:
    for seed in range(50):
        story = make_real_story(seed)
        faults = [step for step in story.steps if "seconds" in step.args or "back_in_s" in step.args]
        assert len(story.steps) >= OPERATIONS_AT_LEAST + FAULTS_AT_LEAST
        assert len(faults) <= len(story.steps) - OPERATIONS_AT_LEAST
        assert story == make_real_story(seed)


def test_stories_have_lying_agents_and_slow_disks_also_with_a_controller_that_is_stopped_or_killed_meanwhile() -> None:
    stories = [make_real_story(seed) for seed in range(40)]
    kinds = Counter(step.verb for story in stories for step in story.steps)
    assert min(kinds["agent_lies"], kinds["disk_slow"]) > 15
    assert kinds["agent_lies"] + kinds["disk_slow"] >= len(stories)
    then = Counter(
        later.verb
        for story in stories
        for first, later in pairwise(story.steps)
        if first.verb == "disk_slow" and later.after_s < first.args["seconds"]
    )
    assert min(then["stop_controller"], then["kill_controller"]) > 3


def test_a_story_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    story = make_real_story(SEED)
    story.write(tmp_path / "story.json")
    again = read_real_story(tmp_path / "story.json")
    assert [(step.verb, step.after_s) for step in again.steps] == [(step.verb, step.after_s) for step in story.steps]
    for first, second in zip(again.steps, story.steps, strict=True):
        if first.verb == "submit":
            assert submission_of(first.args) == submission_of(second.args)
