"""SCHED2's systems: the whole training in the simulator, interrupted and continued."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.learned.sched2 import rule_system, system
from policies.learned.sched2.encoder import NAME
from policies.learned.sched2.policy import Sched2
from policies.learned.sched2.rule import Sched2Rule
from policies.learned.sched2.training.q_learning import QLearning
from policies.learned.sched2.training.recipe import Recipe
from policies.learned.sched2.training.rule_recipe import RuleRecipe
from policies.learned.sched2.training.rule_search import RuleSearch
from policies.learned.sched2.training.training_setup import paper_setup
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import SetupOverrides, SimulationBackend, TrainableSystem, WorkloadSpec
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard, draft
from simulator.training.backend import simulator_backend
from tests.unit.policies.learned.sched2.agents import small_recipe, small_search

RECIPES: dict[str, Recipe | RuleRecipe] = {
    "sched2": small_recipe(envs=2, network="paper"),
    "sched2-rule": small_search(envs=2),
}
SYSTEMS = {"sched2": system.SYSTEM, "sched2-rule": rule_system.SYSTEM}


class LeftError(Exception):
    """Raised in place of a kill."""


def small_backend(recipe: Recipe | RuleRecipe) -> SimulationBackend:
    jobs = WorkloadSpec("sched2", {"jobs": 16, "mean_gap_s": 600.0, "one_gpu_share": 0.9})
    setup = replace(paper_setup(recipe), workloads=(jobs,), cluster="4x4", validation_seeds=(500,))
    return simulator_backend(setup, SetupOverrides())


def card_of(name: str, found: SimulationBackend) -> ModelCard:
    details = SYSTEMS[name].card(RECIPES[name], found)
    assert details.encoder == NAME
    return draft(
        system=name, recipe=details.settings, seed=3, encoder=details.encoder, shapes=details.shapes, data=found.data,
        data_sha256=found.data_sha256,
    )  # fmt: skip


def trained(name: str, folder: Path, resume: bool = False) -> dict[str, weights.Array]:
    found, made = small_backend(RECIPES[name]), SYSTEMS[name]
    try:
        with TrainingRun(folder, card_of(name, found), resume=resume, better="lower", point_every_s=0.0) as run:
            made.train(run, found, RECIPES[name])
            point: Any = run
    finally:
        found.close()
    assert point.early.best is not None
    return weights.load(point.best_folder, name, system=name, encoder=NAME)[0]


@pytest.mark.parametrize(
    ("name", "one_round"),
    [
        ("sched2", (QLearning, "run_round")),
        pytest.param("sched2-rule", (RuleSearch, "run"), marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_training_gives_the_weights_of_an_uninterrupted_one(
    name: str, one_round: tuple[type, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(name, tmp_path / "whole")
    once = getattr(*one_round)
    rounds = 0

    def leave(self: Any) -> dict[str, float]:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            raise LeftError
        figures: dict[str, float] = once(self)
        return figures

    monkeypatch.setattr(*one_round, leave)
    with pytest.raises(LeftError):
        trained(name, tmp_path / "left")
    found = trained(name, tmp_path / "left", resume=True)
    assert rounds == 3
    assert all(np.array_equal(array, found[each]) for each, array in whole.items())
    served = Sched2 if name == "sched2" else Sched2Rule
    assert served(str(tmp_path / "left")).spec.name == name


def test_what_is_stored_is_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = small_backend(RECIPES["sched2"])
    effectiveness = iter([0.5, 0.4])
    monkeypatch.setattr(found, "validate", lambda _: {"avg_jct_s": 9.0, "effectiveness": next(effectiveness)})
    try:
        with TrainingRun(tmp_path, card_of("sched2", found), resume=False, better="lower", point_every_s=0.0) as run:
            system.SYSTEM.train(run, found, RECIPES["sched2"])
    finally:
        found.close()
    results = json.loads((tmp_path / "best" / "sched2.json").read_text())["results"]
    assert (results["validation"], results["effectiveness"]) == (-0.5, 0.5)


def test_patience_begins_when_exploration_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given exploration in the first four of ten rounds, and a first validation that stays the best
    recipe = small_recipe(envs=2, network="paper", rounds=10, exploring=0.4)
    found = small_backend(recipe)
    effectiveness = iter([0.5, *[0.4] * 9])
    monkeypatch.setattr(found, "validate", lambda _: {"avg_jct_s": 9.0, "effectiveness": next(effectiveness)})
    monkeypatch.setattr(QLearning, "run_round", lambda _: {"steps": 1.0})
    try:
        # When two validations that are no better may follow each other
        with TrainingRun(tmp_path, card_of("sched2", found), resume=False, better="lower", patience=2) as run:
            system.SYSTEM.train(run, found, recipe)
    finally:
        found.close()
    # Then the training ends after the fifth and sixth round, and keeps the weights of the first
    assert len(list(effectiveness)) == 4
    assert run.early.best == -0.5


def test_the_recipe_is_the_papers() -> None:
    recipe = Recipe()
    there = paper_setup(recipe)
    assert there.cluster == "15x8"
    assert [dict(jobs.parameters) for jobs in there.workloads] == [{"mean_gap_s": 129.0}]
    assert (recipe.network, recipe.reward, recipe.candidates, recipe.demonstrations) == (
        "paper",
        "effectiveness",
        10,
        0,
    )
    assert recipe.rounds * recipe.envs == 2400


@pytest.mark.parametrize("made", SYSTEMS.values())
def test_each_system_names_its_policy(made: TrainableSystem) -> None:
    assert made.policies == (made.name,)
