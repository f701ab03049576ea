"""Delay timers: the level that a job takes after a wait, and how waits change the timers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from policies.model import ClusterState
from policies.ordering import delay_timers
from policies.ordering.delay_timers import LONGEST_S, DelayTimers, TimerSettings
from policies.placement.levels import Level, level_of
from tests.unit.policies.states.cluster import Job, Node, cluster

MACHINE, RACK, NETWORK = Level


def timers(machine_s: float = 600.0, rack_s: float = 300.0, window: int = 32) -> DelayTimers:
    return DelayTimers(TimerSettings(machine_s, rack_s, window, least_s=60.0))


def update(timer: DelayTimers, state: ClusterState, nearest: Level = MACHINE) -> None:
    placements = {row: state.jobs.placement(row) for row in state.running.tolist()}
    levels = {row: level_of(state, placement) for row, placement in placements.items() if placement is not None}
    timer.update(state, levels, [nearest] * len(state.jobs))


@pytest.mark.parametrize(
    ("nearest", "waited_s", "expected"),
    [
        (MACHINE, 0.0, (MACHINE, 600.0)),
        (MACHINE, 599.0, (MACHINE, 1.0)),
        (MACHINE, 600.0, (RACK, 300.0)),
        (MACHINE, 900.0, (NETWORK, 0.0)),
        (RACK, 0.0, (RACK, 300.0)),
        (RACK, 300.0, (NETWORK, 0.0)),
        (NETWORK, 0.0, (NETWORK, 0.0)),
    ],
)
def test_a_job_takes_farther_levels_as_its_timers_end(
    nearest: Level, waited_s: float, expected: tuple[Level, float]
) -> None:
    assert timers().farthest(8, nearest, waited_s) == expected


def test_a_timer_is_the_mean_of_the_last_waits_and_their_deviation() -> None:
    """Jobs are submitted at 0, 1 and 2 s and start at 500 s on one node each: 499 +- sqrt(2 / 3)."""
    timer = timers()
    state = cluster([Node()] * 3, [Job(gpus=8, occupied={node: 8}) for node in range(3)])
    for _ in range(2):  # a state twice in a row gives the same as once
        update(timer, state)
        assert timer.timer_s(8, MACHINE) == pytest.approx(499 + (2 / 3) ** 0.5)
    assert timer.timer_s(15, MACHINE) == timer.timer_s(8, MACHINE)
    assert timer.timer_s(7, MACHINE) == timer.timer_s(16, MACHINE) == 600.0  # other classes
    assert timer.timer_s(8, RACK) == 300.0


def test_a_timer_is_computed_once_until_another_wait_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = timers()
    jobs = [Job(gpus=8, occupied={node: 8}) for node in range(3)]
    update(timer, cluster([Node()] * 4, jobs))
    computed: list[int] = []

    def noted(waits: Sequence[float]) -> float:
        computed.append(len(waits))
        return 0.0

    monkeypatch.setattr(delay_timers, "pstdev", noted)
    for _ in range(100):
        timer.farthest(8, MACHINE, 500.0)
    assert computed == [3]
    update(timer, cluster([Node()] * 4, [*jobs, Job(gpus=8, occupied={3: 8})]))
    timer.farthest(8, MACHINE, 500.0)
    assert computed == [3, 4]


def test_a_job_that_took_farther_gpus_gives_the_whole_timer_of_the_nearer_level() -> None:
    """All have waited for about 500 s, of which 200 for one node."""
    timer = timers(machine_s=200.0)
    jobs = [Job(gpus=4, occupied={0: 2, 1: 2}) for _ in range(3)]
    update(timer, cluster([Node()] * 2, jobs))
    assert timer.timer_s(4, MACHINE) == 200.0
    assert timer.timer_s(4, RACK) == pytest.approx(299 + (2 / 3) ** 0.5)


def test_only_the_last_waits_count_and_timers_have_bounds() -> None:
    jobs = [Job(gpus=1, occupied={0: 1}) for _ in range(5)]
    state = cluster([Node()], jobs)
    timer = timers(window=3)
    update(timer, state)
    assert timer.timer_s(1, MACHINE) == pytest.approx(497 + (2 / 3) ** 0.5)  # the waits of 498, 497 and 496 s
    long = dataclasses.replace(state.jobs, submit_time_s=state.jobs.submit_time_s - 1e6)
    timer = timers()
    update(timer, dataclasses.replace(state, jobs=long))
    assert timer.timer_s(1, MACHINE) == LONGEST_S
    short = dataclasses.replace(state.jobs, submit_time_s=state.jobs.submit_time_s + 490.0)
    timer = timers()
    update(timer, dataclasses.replace(state, jobs=short))
    assert timer.timer_s(1, MACHINE) == 60.0


def test_jobs_that_start_at_once_say_nothing_and_fixed_timers_stay() -> None:
    state = cluster([Node()], [Job(gpus=1, occupied={0: 1}) for _ in range(5)])
    at_once = dataclasses.replace(state.jobs, submit_time_s=state.jobs.start_time_s)
    timer = timers()
    update(timer, dataclasses.replace(state, jobs=at_once))
    assert timer.timer_s(1, MACHINE) == 600.0
    fixed = timers(window=0)
    update(fixed, state)
    assert fixed.timer_s(1, MACHINE) == 600.0


def test_a_job_that_was_stopped_waits_anew() -> None:
    timer = timers()
    runs, waits = cluster([Node()], [Job(occupied={0: 1})]), cluster([Node()], [Job(service_s=500.0)])
    assert timer.waited_s(waits, 0) == 1000.0
    update(timer, runs)
    update(timer, dataclasses.replace(waits, time_s=2000.0))
    update(timer, dataclasses.replace(waits, time_s=2200.0))
    assert timer.waited_s(dataclasses.replace(waits, time_s=2300.0), 0) == 300.0


def test_a_job_whose_wait_was_not_seen_is_no_sample() -> None:
    """It has run for longer than since its start: an earlier wait is over, and was not seen."""
    timer = timers()
    update(timer, cluster([Node()], [Job(occupied={0: 1}, service_s=800.0)] * 4))
    assert timer.timer_s(1, MACHINE) == 600.0
