"""One short story on a real Slurm, and the stories as data."""

from __future__ import annotations

import hashlib
import json
import signal
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from slurm.testbed.installation import Installation
from tests.campaign.real.faults.slow_disk import SlowDisk
from tests.campaign.real.faults.verbs import overwrite_bytes
from tests.campaign.real.generate import FAULTS_AT_LEAST, OPERATIONS_AT_LEAST, make_real_story
from tests.campaign.real.many import run_real
from tests.campaign.real.story import read_real_story, submission_of
from tests.campaign.real.world import World
from tests.cluster.conftest import skip_unless_possible

SEED = 7
_STORIES_BEFORE = "3479c2ab744196bcbea92fa7e75b3edaf89edd799f1fb7e147c9bd29f01aa06c"
"""Digest of the first 200 stories as they were before jobs were suspended and journals damaged in them."""


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


def test_stories_suspend_jobs_and_damage_journals_and_are_else_those_of_earlier_versions() -> None:
    """New kinds come between the steps by a generator of their own. If one comes, it is left out here too, and the digest stays."""
    digest, kinds = hashlib.sha256(), Counter[str]()
    for seed in range(200):
        story = asdict(make_real_story(seed))
        kinds.update(step["verb"] + str(step["args"].get("running", "")) for step in story["steps"])
        story["steps"] = [step for step in story["steps"] if step["verb"] not in {"suspend", "journal_damaged"}]
        digest.update(json.dumps(story, sort_keys=True).encode())
    assert digest.hexdigest() == _STORIES_BEFORE
    assert min(kinds["journal_damagedTrue"], kinds["journal_damagedFalse"]) > 20
    assert kinds["suspend"] >= 200


def test_bytes_of_a_journal_are_overwritten_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(bytes(5000))
    before = path.stat()
    overwrite_bytes(tmp_path, seed=1)
    after = path.stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    assert 1 <= 5000 - path.read_bytes().count(0) <= 20
    assert [each.name for each in tmp_path.iterdir()] == [path.name], "a log that is not there is not made"


def test_a_slow_disk_is_as_fast_as_usual_before_a_story_waits_for_the_end_of_the_controller(tmp_path: Path) -> None:
    disk, slow_at_the_end = SlowDisk(tmp_path, tmp_path), []
    world = World.__new__(World)  # without a cluster
    world.slow_disk, world.down, world._logged = disk, set(), {}

    def stop(_name: str, _number: signal.Signals) -> int:
        slow_at_the_end.append((tmp_path / "bytes_per_s").exists())
        return 0

    process = SimpleNamespace(poll=lambda: None, send_signal=lambda _: None)
    world.headway = cast(
        Installation, SimpleNamespace(processes={"controller": process}, stop=stop, log=lambda _: "[info] started ")
    )
    disk.slow(1.0)
    assert world.end_politely("controller") == 0
    assert slow_at_the_end == [False]


def test_a_story_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    story = make_real_story(SEED)
    story.write(tmp_path / "story.json")
    again = read_real_story(tmp_path / "story.json")
    assert [(step.verb, step.after_s) for step in again.steps] == [(step.verb, step.after_s) for step in story.steps]
    for first, second in zip(again.steps, story.steps, strict=True):
        if first.verb == "submit":
            assert submission_of(first.args) == submission_of(second.args)
