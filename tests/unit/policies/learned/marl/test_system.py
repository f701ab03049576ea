"""MARL's system: a whole training in the simulator, interrupted and continued; and where its agent can act."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import simulator.envs  # noqa: F401 - registers the environments
from policies.errors import TrainingError, WeightsError
from policies.learned.marl.learning import ActorCritic
from policies.learned.marl.recipe import ARCHITECTURES, MIXED, PAPER, Recipe
from policies.learned.marl.system import ENCODER, ENVIRONMENT, NAME, SYSTEM, agent, options_of, recipe_of, setup
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import SetupOverrides
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard, draft
from simulator.agents.episodes import play
from simulator.cluster.cluster import cluster_of
from simulator.papers.marl.options import MarlOptions
from simulator.papers.marl.state.data_center import data_center
from simulator.training.backend import simulator_backend

RECIPE = Recipe(
    intervals=1, jobs=(20.0, 30.0), width=8, encoded=8, hidden=8, imitation_rounds=2, imitation_updates=3, imitation_batch=8,
    rounds=3, episodes=2, validate_every=2,
)  # fmt: skip


class LeftError(Exception):
    """Raised in place of a kill."""


def trained(folder: Path, resume: bool = False, recipe: Recipe = RECIPE, **overrides: Any) -> ModelCard:
    """Train; return the card of the best weights."""
    found = simulator_backend(replace(setup(recipe), validation_seeds=(500, 501)), SetupOverrides(**overrides))
    details = SYSTEM.card(recipe, found)
    card = draft(
        system=NAME, recipe=details.settings, seed=3, encoder=details.encoder, shapes=details.shapes, data=found.data,
        data_sha256=found.data_sha256,
    )  # fmt: skip
    try:
        with TrainingRun(folder, card, resume=resume, better="lower", point_every_s=0.0) as run:
            SYSTEM.train(run, found, recipe)
    finally:
        found.close()
    return ModelCard.from_json((folder / "best" / f"{NAME}.json").read_text(), "")


def arrays_in(folder: Path) -> dict[str, weights.Array]:
    return weights.load(folder / "best", NAME, system=NAME, encoder=ENCODER)[0]


@pytest.mark.slow
def test_an_interrupted_training_gives_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = trained(tmp_path / "whole")
    assert card.results["validation"] == card.results["avg_jct_s"]
    once, rounds = ActorCritic.update, 0

    def leave(self: Any, *arguments: Any) -> dict[str, float]:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            raise LeftError
        return once(self, *arguments)

    monkeypatch.setattr(ActorCritic, "update", leave)
    with pytest.raises(LeftError):
        trained(tmp_path / "left")
    trained(tmp_path / "left", resume=True)
    found = arrays_in(tmp_path / "left")
    assert all(np.array_equal(array, found[each]) for each, array in arrays_in(tmp_path / "whole").items())


def test_one_scheduler_can_be_trained(tmp_path: Path) -> None:
    card = trained(tmp_path, recipe=replace(RECIPE, single=True, imitation_rounds=1, rounds=0))
    assert card.shapes == ("a fat-tree of 16 servers, 64 GPUs, 1 scheduler",)
    assert agent(str(tmp_path)).options["single"] is True


def test_scores_are_for_other_data_centers_and_the_papers_form_for_its_own(tmp_path: Path) -> None:
    alone = replace(RECIPE, imitation_rounds=0, rounds=1)
    trained(tmp_path / "scores", recipe=alone)
    trained(tmp_path / "paper", recipe=replace(alone, network=PAPER, shared=False))
    shown: dict[str, dict[str, Any]] = {"scores": {"shows": "types"}, "paper": {}}
    for name, options in shown.items():
        served = agent(str(tmp_path / name))
        assert served.env == ENVIRONMENT
        assert play(gymnasium.make(ENVIRONMENT, intervals=1, **served.options), served.agent, 1).outcome["finished"]
        larger = gymnasium.make(ENVIRONMENT, k=6, intervals=1, **options)
        if name == "scores":
            assert play(larger, served.agent, 1).outcome["finished"]
        else:
            with pytest.raises(TrainingError, match="another data center"):
                play(larger, served.agent, 1)
    with pytest.raises(WeightsError):
        agent(str(tmp_path / "nothing"))


@pytest.mark.parametrize(("overrides", "message"), [({"cluster": "4x4"}, "leave --cluster out"),
                                                    ({"slowdown": ("locality",)}, "leave --slowdown out")])  # fmt: skip
def test_a_data_center_is_chosen_by_the_recipe(tmp_path: Path, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        trained(tmp_path, **overrides)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 0}, "width is 0"),
        ({"jobs": (15.0, 0.0)}, "jobs is"),
        ({"jobs": ()}, "jobs is"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"entropy_weight": -1.0}, "entropy_weight is"),
        ({"network": "flat"}, "paper or scores"),
        ({"k": 5}, "even number of ports"),
        ({"rounds": 0, "imitation_rounds": 0}, "there are no rounds"),
    ],
)
def test_impossible_recipes_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        Recipe(**values)


def test_the_preset_is_the_papers_training() -> None:
    paper = SYSTEM.presets["paper"]
    assert (paper.learning_rate, paper.gamma, paper.hidden, paper.inner_layers, paper.inter_layers) == (
        1e-5,
        0.9,
        128,
        4,
        2,
    )
    assert (paper.network, paper.shared, paper.imitation_rounds) == (PAPER, False, 0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_training_has_the_servers_of_its_environment(architecture: str) -> None:
    recipe = Recipe(k=4, architecture=architecture)
    assert options_of(recipe)["architecture"] == architecture
    described = setup(recipe).cluster
    assert not isinstance(described, str)
    given, made = cluster_of(described), data_center(MarlOptions(k=4, architecture=architecture)).cluster
    assert (given.topology.gpus, given.topology.sockets) == (made.topology.gpus, made.topology.sockets)
    assert given.topology.network == made.topology.network


def test_an_agent_can_be_trained_on_mixed_servers(tmp_path: Path) -> None:
    card = trained(tmp_path, recipe=replace(RECIPE, architecture=MIXED, imitation_rounds=1, rounds=1))
    assert card.recipe["architecture"] == MIXED
    assert recipe_of(card).architecture == MIXED


def test_unknown_servers_are_refused() -> None:
    with pytest.raises(TrainingError, match="architecture is 'abacus'"):
        Recipe(architecture="abacus")
