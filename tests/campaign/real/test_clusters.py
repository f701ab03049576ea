"""Stories are handed out to several processes, and a process that fails does not take the others with it."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from tests.campaign.real.clusters import players
from tests.campaign.real.play import RealPlayed
from tests.campaign.real.story import RealStory

FAILS, STATUS = 3, 4
"""Seed of the story at which a process ends, and its status."""


def story(seed: int) -> RealStory:
    return RealStory(seed, "fifo", "off", ())


def result(seed: int) -> RealPlayed:
    return RealPlayed(seed, [], 50, Counter(), 1, 1, 0, 0, Counter(), 0, [], float(os.getpid()), [], Path())


def answer(pipe: Connection) -> None:
    """Stand in for a cluster: answer each story at once, and end at one of them."""
    pipe.send(None)
    while (received := pipe.recv()) is not None:
        if received.seed == FAILS:
            os._exit(STATUS)
        pipe.send(result(received.seed))


def interrupt_the_parent(pipe: Connection) -> None:
    """End the parent's wait as Ctrl-C does, in the first story; stories take long."""
    pipe.send(None)
    if pipe.recv().seed == 1:
        os.kill(os.getppid(), signal.SIGINT)
    time.sleep(600.0)


def play(number: int, seeds: range, work: Callable[[Connection], None] = answer) -> tuple[list[RealPlayed], list[str]]:
    with players(number, work) as started:
        played = [one for _, one in started.play([story(seed) for seed in seeds])]
        return played, started.failed


def test_each_story_is_played_once_by_one_of_the_processes() -> None:
    played, failed = play(3, range(10, 30))
    assert sorted(one.seed for one in played) == list(range(10, 30))
    assert failed == []


def test_a_process_that_fails_is_reported_and_the_others_play_on() -> None:
    played, failed = play(2, range(1, 8))
    assert sorted(one.seed for one in played) == [1, 2, 4, 5, 6, 7]
    assert failed == [f"a cluster ended with status {STATUS} in story {FAILS}"]


def test_stories_are_left_over_when_the_last_process_has_failed() -> None:
    played, failed = play(1, range(1, 8))
    assert [one.seed for one in played] == [1, 2]
    assert len(failed) == 1


def test_an_interrupt_ends_every_process() -> None:
    with players(2, interrupt_the_parent) as started:
        try:
            list(started.play([story(1), story(2)]))
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("no interrupt came")
    assert not any(player.process.is_alive() for player in started.players)
