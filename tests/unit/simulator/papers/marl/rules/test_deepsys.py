"""The baseline DeepSys: what its network sees, that it learns, and that the rule follows its predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from simulator.papers.marl import deepsys_training
from simulator.papers.marl.rules.deepsys import FEATURES, DeepSys, features, trained
from simulator.papers.marl.rules.speed_network import SpeedNetwork
from simulator.papers.marl.state.placements import NOWHERE
from tests.unit.simulator.papers.marl.worlds import sequence, world_of


def test_the_network_learns_a_function() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((2000, 2))
    values = np.abs(rows[:, 0] - rows[:, 1])
    network = SpeedNetwork.drawn((2, 16, 16, 1), rng)
    network.fit(rows, values, rng, steps=1500, batch=64, rate=0.01)
    assert np.abs(network.predict(rows) - values).mean() < 0.05 < np.abs(values - values.mean()).mean()
    again = SpeedNetwork.of_text(network.as_text())
    assert again.predict(rows[:5]) == pytest.approx(network.predict(rows[:5]), abs=0.02)


def test_gradients_are_those_of_finite_differences() -> None:
    rng = np.random.default_rng(1)
    network = SpeedNetwork.drawn((3, 4, 4, 1), rng)
    rows, values = rng.random((6, 3)), rng.random(6)
    gradients = network._gradients(rows, values)

    def loss() -> float:
        return float(((network.predict(rows) - values) ** 2).mean())

    for part, gradient in zip([*network.weights, *network.biases], gradients, strict=True):
        at = tuple(size // 2 for size in part.shape)
        before = part[at]
        part[at] = before + 1e-6
        more = loss()
        part[at] = before - 1e-6
        less = loss()
        part[at] = before
        assert gradient[at] == pytest.approx((more - less) / 2e-6, abs=1e-5)


def test_features_show_where_each_worker_is_and_the_parameters_of_others_there() -> None:
    world = world_of(sequence((0, 2, 500), (0, 1, 500), servers=[1, 1]))
    for action in (0, 1, 2):
        world.act(0, action)
    placements = np.array([[0, 2, 3], [0, NOWHERE, NOWHERE]])
    found = features(world, 1, np.array([[0, 2, NOWHERE], [NOWHERE, 0, NOWHERE]]))
    assert found.shape == (2, FEATURES) and world.center.group_server[[0, 1, 2]].tolist() == [0, 0, 1]
    first = FEATURES - 16
    parameters = 2 * world.jobs.gradients_gb[0]
    assert found[:, first - 2 : first].tolist() == [[0.25, 0.25]] * 2
    assert found[0, first : first + 4] == pytest.approx([1.0, 0.25, 0.0, parameters])
    assert not found[1, first:].any(), "its worker is nowhere"
    both = features(world, 0, placements)
    assert both[0, first : first + 4] == pytest.approx([1.0, 0.25, 0.0, 0.0])
    assert both[0, first + 4 : first + 8] == pytest.approx([1.0, 0.25, 0.25, 0.0])
    assert not both[1, first + 4 :].any()


class Together(SpeedNetwork):
    """Predicts that jobs are fast whose first worker has all servers of the job beside it."""

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, FEATURES - 14]


def test_the_rule_takes_the_placement_that_is_predicted_to_be_fastest() -> None:
    world = world_of(sequence((0, 2, 500), (0, 2, 500), servers=[2, 2]))
    rule = DeepSys(network=Together([], []))
    rule.begin(world, 0)
    while world.head(0) is not None:
        world.act(0, rule.act(0))
    servers = world.center.group_server[world.placed.group[:, :4]]
    assert (servers[:, 0] == servers[:, 2]).all() and (servers[:, 0] == servers[:, 3]).all()
    with pytest.raises(ValueError, match="placements"):
        DeepSys(placements=0)


def test_the_network_that_comes_with_headway_knows_that_transfers_cost() -> None:
    world = world_of(sequence((0, 2, 500), servers=[2]))
    together, apart = trained().predict(features(world, 0, np.array([[0, 1, 0, 1], [0, 2, 4, 6]])))
    assert together > apart + 0.1


def test_its_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(deepsys_training, "files", lambda _package: tmp_path)
    monkeypatch.setattr(deepsys_training, "VALIDATION_SEEDS", [500])
    found = deepsys_training.program(["--seeds", "1", "--steps", "300", "--store"])
    assert json.dumps(found)
    assert found["absolute_error"] < found["of_the_mean"]
    assert SpeedNetwork.of_text((tmp_path / "deepsys.json").read_text()).weights[0].shape == (FEATURES, 64)
