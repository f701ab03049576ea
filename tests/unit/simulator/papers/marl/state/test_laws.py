"""Interference and transfers of placed jobs, by hand and beside the models of the simulator."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.papers.marl.episodes import JobSource
from simulator.papers.marl.options import MarlOptions
from simulator.papers.marl.rules.effects import Effects
from simulator.papers.marl.state.data_center import data_center
from simulator.papers.marl.state.interference import of_workers, slowdown
from simulator.papers.marl.state.placements import NOWHERE
from simulator.papers.marl.state.traffic import links_of
from simulator.papers.marl.world import World
from simulator.slowdown.neighbours.interference import slowdown as one_by_one
from simulator.slowdown.profiles.model_profiles import MeasuredInterference
from simulator.traces.generators.marl import Marl
from tests.unit.simulator.papers.marl.worlds import PROFILES, sequence, world_of

INTERFERENCE = PROFILES.interference
MOSTLY = st.floats(0.0, 40.0, allow_nan=False)


@given(MOSTLY, MOSTLY, MOSTLY, MOSTLY)
def test_the_vectorized_law_is_that_of_the_simulator(others: float, own: float, pcie: float, own_pcie: float) -> None:
    model = MeasuredInterference((0.05, 0.2, 0.1), (0.3, 0.2), -0.4)
    found = slowdown(model, *(np.array([value]) for value in (others, own, pcie, own_pcie)))
    if max(others, pcie) > 1e-9:
        assert found[0] == pytest.approx(max(0.0, one_by_one(model, others, own, pcie, own_pcie)))
    else:
        assert found[0] == 0.0


def test_neighbours_in_the_group_count_fully_and_those_across_beyond_their_cores() -> None:
    jobs = sequence((0, 1, 5000), (0, 1, 5000), (0, 2, 5000), servers=[1, 1, 1], models=["plain", "heavy", "plain"])
    world = world_of(jobs)
    # Server 0 has groups 0 and 1. Servers' cores: 2 each.
    for group in (0, 2, 0, 2, 1, 1, 1):
        world.act(0, group)
    found = of_workers(world.placed, np.arange(3), INTERFERENCE)
    # Across, job 2 uses 6 + 6 + 2 = 14 of 8 cores.
    first = 0.1 * (math.exp((4 + 6) / 4) - 1) + 2 * 0.3
    second = 0.1 * (math.exp((6 + 6) / 4) - 1) + 2 * 0.1
    # Jobs 0 and 1 use 10 of 8 cores across; nobody else is in the group.
    third = 0.1 * (math.exp(2 / 4) - 1)
    assert found[0].tolist() == pytest.approx([first, 0.0, 0.0])
    assert found[1].tolist() == pytest.approx([second, 0.0, 0.0])
    assert found[2].tolist() == pytest.approx([third, third, 0.0])


def test_a_job_alone_is_not_slowed_down_and_its_own_tasks_are_no_neighbours() -> None:
    world = world_of(sequence((0, 4, 5000), servers=[1]))
    for group in (0, 0, 1, 1, 0):
        world.act(0, group)
    assert world.step_s(np.array([0])).tolist() == [1.0]
    assert (of_workers(world.placed, np.array([0]), INTERFERENCE) == 0).all()


def test_transfers_take_the_time_of_the_bottleneck() -> None:
    # 1.25 GB of gradients over NICs of 1.25 GB/s.
    world = world_of(sequence((0, 2, 5000), servers=[1]))
    for group in (0, 2, 4):  # three servers; the third is below another edge switch
        world.act(0, group)
    # Two pairs end at the NIC of the parameter server.
    assert world.step_s(np.array([0])).tolist() == [1.0 + 2.0]
    assert world.traffic.pairs.sum() == 2 * 4
    pairs = links_of(world.center, {0: 1, 1: 1}, {2: 1})
    names = {world.center.topology.link_name(link): count for link, count in pairs.items()}
    assert names == {
        "node 0 NIC": 1,
        "node 1 NIC": 1,
        "rack 0 uplink": 2,
        "rack 1 uplink": 2,
        "node 2 NIC": 2,
    }


def test_pairs_of_all_jobs_share_links_and_leave_them() -> None:
    jobs = sequence((0, 1, 5000), (0, 1, 500), servers=[1, 1], models=["plain", "heavy"])
    world = world_of(jobs)
    for group in (0, 2, 0, 4):  # both workers on server 0
        world.act(0, group)
    beside = 0.1 * (math.exp(4 / 4) - 1) + 2 * 0.3
    assert world.step_s(np.array([0]))[0] == pytest.approx(1.0 + beside + 2 * 1.0)
    # The heavy job's gradients are twice as large.
    assert world.step_s(np.array([1]))[0] == pytest.approx(2 * (1 + 0.1 * (math.exp(6 / 4) - 1) + 2 * 0.1) + 2 * 2.0)
    world.advance()
    world.advance()
    world.advance()
    assert world.running == {0}
    assert world.traffic.pairs.max() == 1
    assert world.step_s(np.array([0]))[0] == pytest.approx(2.0)


def test_more_cores_count_in_proportion() -> None:
    jobs = sequence((0, 1, 5000), (0, 1, 5000), servers=[1, 1])
    world = world_of(jobs, architecture="dgx1")
    for group in (0, 2, 0, 2):
        world.act(0, group)
    found = of_workers(world.placed, np.arange(2), INTERFERENCE)
    assert found[:, 0] == pytest.approx(0.1 * (math.exp(6 / 2 / 4) - 1) + 2 * 0.1)


@pytest.mark.parametrize("architecture", ["power8", "dgx1", "two-sizes", "mixed"])
def test_the_effects_of_a_task_are_those_of_placing_it(architecture: str) -> None:
    at_once = Marl(jobs=16, arrivals="batch", schedulers=4)
    options = MarlOptions(k=4, architecture=architecture, traces=at_once, forwarding="always")
    center = data_center(options)
    world, rng = World(options, center), np.random.default_rng(7)
    world.begin(JobSource(options, center).draw(rng, {}))
    model = options.profiles.interference
    checked = 0
    while not world.queues.is_empty:
        scheduler = next(number for number in range(center.schedulers) if world.head(number) is not None)
        task = world.head(scheduler)
        assert task is not None
        effects = Effects(world, scheduler, task)
        every = np.arange(len(world.jobs))
        groups = center.groups_of(scheduler)
        action = int(rng.choice(np.flatnonzero(world.possible(scheduler))))
        before = of_workers(world.placed, every, model)
        was_put_off = world.put_off
        world.act(scheduler, action)
        if action >= center.groups_each or world.put_off > was_put_off:
            continue
        after = of_workers(world.placed, every, model)
        mine = after[task.job, task.column]
        after[task.job, task.column] = 0.0
        assert effects.own[action] == pytest.approx(mine)
        assert effects.added[action] == pytest.approx((after - before).sum())
        server = center.group_server[groups.start + action]
        there = (world.placed.group != NOWHERE) & (center.group_server[world.placed.group] == server)
        assert effects.level[action] == pytest.approx(after[there].sum())
        checked += 1
    assert checked > 20
