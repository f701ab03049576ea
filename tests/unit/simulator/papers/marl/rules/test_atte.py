"""The baseline Atte: what its network sees, that the rule follows it, and that it learns from rewards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the training needs torch")

import torch

from simulator.papers.marl import atte_training
from simulator.papers.marl.atte_training import Drawing, Learner
from simulator.papers.marl.episodes import outcome
from simulator.papers.marl.rules.atte import (
    FEATURES,
    OF_TASK,
    Atte,
    AttentionNetwork,
    server_features,
    task_features,
    trained,
)
from simulator.papers.marl.rules.baselines import Random
from simulator.papers.marl.rules.rule import play
from tests.unit.simulator.papers.marl.worlds import sequence, world_of


class Wanted(AttentionNetwork):
    """Has fixed importances, whatever it sees."""

    def __init__(self, importance: list[float]) -> None:
        super().__init__({})
        object.__setattr__(self, "fixed", np.array(importance))

    def importance(self, servers: np.ndarray, task: np.ndarray) -> np.ndarray:
        return self.fixed  # type: ignore[attr-defined]


def test_the_features_show_what_is_free_and_the_own_tasks_of_the_job() -> None:
    world = world_of(sequence((0, 2, 500), (0, 1, 500), servers=[1, 1]))
    for action in (0, 2, 1):
        world.act(0, action)
    own, other = (server_features(world, 0, job) for job in (0, 1))
    assert own.shape == (4, FEATURES)
    # Server 0 has a worker of 6 cores and the parameter server of 2, server 1 the other worker; 4 GPUs and 32 logical cores each.
    assert own[:, 0] * 8 == pytest.approx([3, 3, 4, 4]) and own[:, 1] * 8 == pytest.approx([4] * 4)
    assert own[:, 2] * 64 == pytest.approx([24, 26, 32, 32]) and own[:, 3] * 64 == pytest.approx([32] * 4)
    assert own[:, 4:].tolist() == [[0.25, 0.25], [0.25, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert (other[:, :4] == own[:, :4]).all() and not other[:, 4:].any()
    task = world.head(0)
    assert task is not None and (task.job, task.column) == (1, 0)
    assert task_features(world, task)[:6] == pytest.approx([0.0, 0.25, 0.25, 0.25, 1 / 8, 6 / 32])


def test_the_rule_takes_the_most_important_server_that_has_room_and_keeps_a_job_in_its_group() -> None:
    world = world_of(sequence((0, 4, 500), (0, 3, 500), servers=[1, 1]))
    rule = Atte(Wanted([0.0, 1.0, 3.0, 2.0]))
    rule.begin(world, 0)
    placed = []
    while world.head(0) is not None:
        placed.append(rule.act(0))
        world.act(0, placed[-1])
    # Two workers and 16 logical cores for each group: a worker of the first job leaves it no room for a third.
    assert placed[:5] == [4, 4, 5, 5, 4]
    assert placed[5:] == [6, 6, 7, 5], (
        "server 2 has no GPU left, and room for the parameter server in its emptier group"
    )


def test_the_network_of_the_rule_is_the_one_that_learns() -> None:
    learner, rng = Learner(3, 0.01), np.random.default_rng(0)
    servers, task = rng.random((5, FEATURES)), rng.random(OF_TASK)
    both = learner.importance(torch.from_numpy(servers[None]), torch.from_numpy(task[None]))
    network = learner.network
    assert network.importance(servers, task) == pytest.approx(both.detach().numpy()[0])
    again = AttentionNetwork.of_text(network.as_text())
    assert again.importance(servers, task) == pytest.approx(network.importance(servers, task), abs=0.02)


def test_a_decision_that_was_better_than_usual_becomes_likelier() -> None:
    rng = np.random.default_rng(1)
    servers, task = rng.random((3, FEATURES)), rng.random(OF_TASK)
    for advantage in (1.0, -1.0):
        learner = Learner(0, 0.01)
        before = learner.network.importance(servers, task)
        room, chosen = np.array([[True, True, False]] * 2), np.array([1, 1])
        learner.step(np.array([servers] * 2), np.array([task] * 2), room, chosen, np.array([advantage] * 2))
        gained = learner.network.importance(servers, task) - before
        assert advantage * (gained[1] - gained[0]) > 0.001


def test_draws_are_kept_as_they_were_carried_out() -> None:
    jobs = sequence((0, 2, 500), (0, 4, 500), (0, 3, 500), servers=[1, 2, 1])
    world = world_of(jobs)
    rule = Drawing(trained(), 0)
    rule.begin(world, 0)
    taken = []
    while world.head(0) is not None:
        action = rule.act(0)
        world.act(0, action)
        taken.append(action // 2)
    assert [row[3] for row in rule.kept] == taken and len(set(taken)) > 1
    assert all(room[server] for _, _, room, server, _ in rule.kept)
    assert [row[4] for row in rule.kept] == [0] * 3 + [1] * 6 + [2] * 4


def test_the_network_that_comes_with_headway_beats_random_placement() -> None:
    jobs = [(at * 400.0, 1 + at % 4, 3000.0) for at in range(12)]
    figures = {}
    for name, rule in (("atte", Atte()), ("random", Random())):
        world = world_of(sequence(*jobs, servers=[1 + at % 3 for at in range(12)]))
        play(world, world.jobs, rule, 0)
        figures[name] = outcome(world)["avg_jct_s"]
    assert figures["atte"] < 0.9 * figures["random"]


def test_its_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(atte_training, "files", lambda _package: tmp_path)
    monkeypatch.setattr(atte_training, "VALIDATION_SEEDS", [500])
    found = atte_training.program(["--rounds", "1", "--episodes", "2"])
    assert json.loads(json.dumps(found))["curve"][1][0] == 1 and not list(tmp_path.iterdir())
    monkeypatch.setattr(atte_training, "validation_jct_s", lambda _network, _worlds, left=[2.0, 1.0]: left.pop(0))
    assert atte_training.program(["--rounds", "1", "--episodes", "2", "--store"])["avg_jct_s"] == 1.0
    assert AttentionNetwork.of_text((tmp_path / "atte.json").read_text()).arrays["task"].shape == (OF_TASK, 32)
