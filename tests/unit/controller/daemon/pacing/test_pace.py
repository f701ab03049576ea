"""Readings of Slurm: one a second."""

import asyncio
import random
import time

from controller.daemon.pacing.pace import Pace, let_burst_end, let_others_run


def test_the_first_reading_may_begin_at_once():
    assert Pace().wait_s(5.0, 1.0) == 0.0


def test_readings_are_an_interval_apart():
    pace = Pace()
    pace.taken(0.0)
    assert pace.wait_s(0.25, 1.0) == 0.75
    assert pace.wait_s(1.0, 1.0) == 0.0
    assert pace.wait_s(50.0, 1.0) == 0.0


def test_there_is_at_most_one_reading_in_an_interval():
    draw = random.Random(3)
    pace, now_s, readings = Pace(), 0.0, 0
    while now_s < 100.0:
        now_s += pace.wait_s(now_s, 1.0)
        pace.taken(now_s)
        readings += 1
        now_s += draw.random() / 100
    assert readings <= 101


def test_a_clock_that_is_set_back_delays_by_an_interval_at_most():
    pace = Pace()
    pace.taken(1000.0)
    assert pace.wait_s(10.0, 1.0) == 1.0


class Announcements:
    """Numbers of submitted jobs, one after the other; a sleep lets the next number come."""

    def __init__(self, *counts):
        self.counts = list(counts)
        self.slept_s = 0.0

    def __call__(self):
        return self.counts[0]

    async def sleep(self, seconds):
        self.slept_s += seconds
        if len(self.counts) > 1:
            self.counts.pop(0)


async def test_a_single_job_does_not_wait_for_others():
    single = Announcements(1, 2, 3)
    await let_burst_end(single, single.sleep)
    assert single.slept_s == 0


async def test_a_burst_is_waited_for_until_it_pauses():
    burst = Announcements(3, 9, 14, 20, 20, 21)
    await let_burst_end(burst, burst.sleep)
    assert burst.counts == [20, 21]


async def test_submissions_without_end_are_not_waited_for():
    endless = Announcements(*range(2, 1000))
    await let_burst_end(endless, endless.sleep)
    assert round(endless.slept_s, 6) <= 0.5


async def test_what_is_due_after_a_long_piece_of_work_runs_before_the_next_one():
    beats = []

    async def beat():
        await asyncio.sleep(0.01)
        beats.append(1)

    task = asyncio.ensure_future(beat())
    await asyncio.sleep(0)
    time.sleep(0.02)
    assert not beats
    await let_others_run()
    assert beats
    await task
