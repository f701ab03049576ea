"""The rules of MARL's world: each of them on a cluster on which its choice can be seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.papers.marl.episodes import JobSource, outcome
from simulator.papers.marl.options import MarlOptions
from simulator.papers.marl.rules.baselines import Kubernetes, LeastInterference, LoadBalancing, Random, Tetris
from simulator.papers.marl.rules.controls import ContentionGreedy, InterferenceGreedy, LookaheadGreedy
from simulator.papers.marl.rules.rule import Rule, play
from simulator.papers.marl.state.data_center import data_center
from simulator.papers.marl.world import World
from tests.unit.simulator.papers.marl.worlds import sequence, world_of

RULES = (
    Random,
    Kubernetes,
    Tetris,
    LoadBalancing,
    LeastInterference,
    InterferenceGreedy,
    ContentionGreedy,
    LookaheadGreedy,
)


def groups_by(rule: Rule, world: World) -> list[list[int]]:
    """The groups of each job's tasks after all decisions of the first interval."""
    rule.begin(world, 0)
    while world.head(0) is not None:
        world.act(0, rule.act(0))
    tasks = world.jobs.tasks.tolist()
    return [world.placed.group[job, :count].tolist() for job, count in enumerate(tasks)]


def test_tetris_fills_servers_and_keeps_jobs_together() -> None:
    world = world_of(sequence((0, 2, 500), (0, 2, 500), (0, 4, 500), servers=[1, 1, 1]))
    servers = [sorted({group // 2 for group in groups}) for groups in groups_by(Tetris(), world)]
    assert servers == [[0], [0], [1]]


def test_load_balancing_takes_the_server_with_the_least_load() -> None:
    world = world_of(sequence((0, 2, 500), (0, 1, 500), servers=[1, 1]))
    # Of equally loaded servers the first. A server with a worker has more load than one with a parameter server.
    assert groups_by(LoadBalancing(), world) == [[0, 2, 4], [6, 5]]


def test_kubernetes_takes_the_server_with_the_least_share_of_cores_requested() -> None:
    # The first two workers request 6 cores each on two servers, and the parameter server 2 on a third one. Of the second job, the
    # worker comes to the empty server, and the parameter server to that of the first parameter server, whose GPUs do not count.
    world = world_of(sequence((0, 2, 500), (0, 1, 500), servers=[1, 1]))
    (*workers, server), (worker, other) = groups_by(Kubernetes(), world)
    assert len({group // 2 for group in (*workers, server, worker)}) == 4
    assert other // 2 == server // 2


def test_kubernetes_takes_a_random_one_of_equal_servers() -> None:
    found = set()
    for seed in range(12):
        world = world_of(sequence((0, 1, 500), servers=[1]))
        rule = Kubernetes(seed)
        rule.begin(world, 0)
        found.add(rule.act(0) // 2)
    assert len(found) > 2


def test_least_interference_avoids_neighbours() -> None:
    world = world_of(sequence((0, 2, 500), (0, 2, 500), servers=[1, 1]))
    first, second = groups_by(LeastInterference(), world)
    assert not set(first) & set(second)
    rows = np.arange(2)
    assert world.step_s(rows) == pytest.approx(1.0 + world.traffic.seconds(rows))


def test_the_contention_control_keeps_a_job_where_its_transfers_are_free() -> None:
    world = world_of(sequence((0, 2, 500), (0, 2, 500), servers=[1, 1]))
    first, second = groups_by(ContentionGreedy(), world)
    assert len({group // 2 for group in first}) == len({group // 2 for group in second}) == 1
    assert world.step_s(np.arange(2)).tolist() == [1.0, 1.0]


def test_the_lookahead_control_prefers_servers_with_tasks_of_the_job_or_room_for_the_rest() -> None:
    world = world_of(sequence((0, 3, 500), (0, 2, 500), servers=[1, 1]))
    world.act(0, 0)
    task = world.head(0)
    assert task is not None and (task.job, task.column) == (0, 1)
    rules = (ContentionGreedy(), LookaheadGreedy(fitting=0.6, together=0.2), LookaheadGreedy(fitting=0.0, together=0.0))
    for rule in rules:
        rule.begin(world, 0)
    contention, both, same = (rule.scores(0, task) for rule in rules)
    assert np.allclose(contention, same)
    # The rest, two workers and a server, fits on each server; the first has a worker already.
    gained = (contention - both).reshape(-1, 2)
    assert gained[0] == pytest.approx([0.8, 0.8])
    assert gained[1:] == pytest.approx(np.full((len(gained) - 1, 2), 0.6))


def test_the_contention_control_prefers_free_links() -> None:
    # Server 0 has room for the workers alone; server 1, below the same edge switch, transfers for another job.
    jobs = sequence((0, 1, 500), (0, 1, 500), servers=[1, 1])
    world = world_of(jobs)
    for group in (2, 4):
        world.act(0, group)
    world.act(0, 0)
    world.placed.cores[:2] = 16.0
    rule = ContentionGreedy()
    rule.begin(world, 0)
    assert rule.act(0) in (6, 7)


def test_a_full_partition_forwards_to_the_emptiest() -> None:
    jobs = sequence(*[(0, 4, 5000)] * 4, (0, 1, 500), (0, 1, 500), servers=[1] * 6, schedulers=[0] * 4 + [1, 0])
    world = world_of(jobs)
    rule = Tetris()
    rule.begin(world, 0)
    while world.head(1) is not None:
        world.act(1, rule.act(1))
    while world.head(0) is not None and world.head(0)[0] < 5:  # type: ignore[index]
        world.act(0, rule.act(0))
    assert rule.act(0) == 8 + 2


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize(
    "options",
    [{}, {"single": True}, {"network": "bcube", "n": 2, "k": 3}, {"architecture": "mixed"}, {"forwarding": "never"}],
)
def test_every_rule_finishes_all_jobs(kind: type[Rule], options: dict[str, Any]) -> None:
    asked = MarlOptions(**{"k": 4, "jobs_per_interval": 40.0, "intervals": 3, **options})
    center = data_center(asked)
    world = World(asked, center)
    play(world, JobSource(asked, center).draw(np.random.default_rng(2), {}), kind(), 1)
    figures = outcome(world)
    assert figures["finished"] == figures["jobs"] == round(0.4 * center.topology.num_nodes * 3)
    assert 1.0 <= figures["mean_slowdown"] < 100
