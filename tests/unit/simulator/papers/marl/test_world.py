"""Batches, forwarding and time in MARL's world: by hand, and laws that hold for any actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from simulator.errors import SettingError
from simulator.papers.marl.episodes import JobSource, outcome
from simulator.papers.marl.options import MarlOptions
from simulator.papers.marl.rules.baselines import Random
from simulator.papers.marl.rules.rule import play
from simulator.papers.marl.state.data_center import data_center
from simulator.papers.marl.state.jobs import jobs_of
from simulator.papers.marl.state.placements import NOWHERE
from simulator.papers.marl.world import World
from tests.unit.simulator.envs.worlds import trace_of
from tests.unit.simulator.papers.marl.worlds import INTERVAL_S, sequence, world_of


def test_jobs_wait_for_the_next_interval_and_finish_inside_one() -> None:
    world = world_of(sequence((0, 1, 1500), (200, 1, 300), servers=[1, 1]))
    assert world.now == 0
    world.act(0, 0)
    world.act(0, 0)
    assert world.queues.is_empty
    world.advance()
    assert world.progress.tolist() == pytest.approx([1000 / 1500, 0.0])
    world.act(0, 2)
    world.act(0, 2)
    assert set(world.advance().tolist()) == {0, 1}
    assert world.is_done
    figures = outcome(world)
    assert world.finish_s.tolist() == [1500, 1300]
    assert figures["avg_jct_s"] == (1500 + 1100) / 2
    assert figures["makespan_s"] == 1500
    assert world.busy_s == 1500 + 300
    assert (world.placed.group == NOWHERE).all()
    assert world.placed.cores.max() == 0


def test_intervals_without_tasks_before_the_first_job_pass() -> None:
    world = world_of(sequence((7 * INTERVAL_S + 1, 1, 100), servers=[1]))
    assert world.now == 8
    assert world.head(0) is not None


def test_a_task_without_room_is_forwarded_and_else_its_job_is_put_off() -> None:
    # A partition has 16 GPUs: the 17th worker of scheduler 0 fits only elsewhere.
    jobs = sequence(*[(0, 4, 5000)] * 4, (0, 1, 500), servers=[1] * 5)
    world = world_of(jobs)
    for server in range(4):
        for group in (0, 0, 1, 1, 0):
            assert not world.possible(0)[8:].any()
            world.act(0, 2 * server + group)
    assert not world.possible(0)[:8].any()
    assert world.possible(0)[8:].tolist() == [False, True, True, True]
    world.act(0, 8 + 2)
    assert world.head(2) == (4, 0, 1)
    assert not world.possible(2)[8:].any()
    assert not world.possible(0)[8:].any()  # its server has room here
    with pytest.raises(ValueError, match="not possible"):
        world.act(2, 8)
    world.act(2, 0)
    world.act(0, 1)
    assert 4 in world.running
    assert outcome(world)["forwarded"] == 1
    world = world_of(jobs, forwarding="never")
    for server in range(4):
        for group in (0, 0, 1, 1, 0):
            world.act(0, 2 * server + group)
    assert world.queues.is_empty and world.put_off == 1
    while world.head(0) is None:
        world.advance()
    assert world.head(0) == (4, 0, 0)
    assert world.now == 5


def test_tasks_can_always_be_forwarded_if_the_option_says_so() -> None:
    world = world_of(sequence((0, 1, 100), servers=[1]), forwarding="always")
    assert world.possible(0)[8:].tolist() == [False, True, True, True]
    world.act(0, 8 + 3)
    assert world.head(3) == (0, 0, 1)
    assert world.head(0) == (0, 1, 0)


def test_a_job_that_is_put_off_leaves_nothing_behind() -> None:
    # The second job's workers take the last GPUs but one, so its last worker has no room anywhere.
    world = world_of(sequence((0, 15, 5000), (0, 2, 100), servers=[1, 1]), forwarding="never")
    for group in (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7):
        if world.head(0) is not None:
            world.act(0, group)
    assert world.put_off == 1
    assert (world.placed.group[1] == NOWHERE).all()
    assert world.placed.gpus.sum() == 15
    assert world.running == {0}


@pytest.mark.parametrize(
    "options", [{}, {"forwarding": "always"}, {"network": "vl2"}, {"network": "bcube", "n": 2, "k": 3}]
)
def test_equal_seeds_give_equal_episodes(options: dict[str, Any]) -> None:
    asked = MarlOptions(**{"k": 4, "jobs_per_interval": 60.0, "intervals": 2, **options})
    center = data_center(asked)
    source = JobSource(asked, center)
    found = []
    for _ in range(2):
        world = World(asked, center)
        play(world, source.draw(np.random.default_rng(5), {}), Random(), 3)
        assert world.is_done
        found.append((world.finish_s.tolist(), outcome(world)))
    assert found[0] == found[1]


@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.integers(0, 1000),
    st.sampled_from(["full", "always", "never"]),
    st.sampled_from(["power8", "two-sizes", "mixed"]),
)
def test_invariants_under_random_actions(seed: int, forwarding: str, architecture: str) -> None:
    options = MarlOptions(
        k=4, forwarding=forwarding, architecture=architecture, jobs_per_interval=60.0, intervals=3, most_forwards=2
    )
    center = data_center(options)
    world = World(options, center)
    world.begin(JobSource(options, center).draw(np.random.default_rng(seed), {}))
    rng = np.random.default_rng(seed)
    progress = np.zeros(len(world.jobs))
    while not world.is_over:
        with_tasks = [scheduler for scheduler in range(center.schedulers) if world.head(scheduler) is not None]
        if not with_tasks:
            world.advance()
            progress += world.progress
            continue
        scheduler = int(rng.choice(with_tasks))
        world.act(scheduler, int(rng.choice(np.flatnonzero(world.possible(scheduler)))))
        placed = world.placed
        there = placed.group != NOWHERE
        for used, asked in ((placed.gpus, world.jobs.gpus), (placed.cores, world.jobs.cores)):
            sums = np.bincount(placed.group[there], asked[there], minlength=center.num_groups)
            assert used == pytest.approx(sums)
        assert (placed.gpus <= center.group_gpus).all()
        assert (placed.cores <= placed.logical + 1e-6).all()
    assert progress == pytest.approx(np.ones(len(world.jobs)))
    # Pair sharing and interference never make a job faster than alone.
    alone_s = world.jobs.steps * world.jobs.compute_s
    starts = world.jobs.arrival * options.interval_s
    assert (world.finish_s >= starts + alone_s - 1e-6).all()


def test_jobs_without_a_scheduler_come_in_turn() -> None:
    options = MarlOptions(k=4)
    jobs = jobs_of(trace_of((0, 2, 10), (0, 1, 10), (0, 3, 10)), options, 2)
    assert jobs.scheduler.tolist() == [0, 1, 0]
    assert jobs.servers.tolist() == [2, 1, 3]
    with pytest.raises(SettingError, match="num_ps"):
        jobs_of(sequence((0, 1, 10), servers=[0]), options, 2)


def test_an_episode_can_be_cut_off() -> None:
    world = world_of(sequence((0, 1, 1e6), servers=[1]), max_intervals=3)
    world.act(0, 0)
    world.act(0, 0)
    while not world.is_over:
        world.advance()
    assert world.now == 3
    assert outcome(world)["finished"] == 0
    assert np.isnan(outcome(world)["avg_jct_s"])
