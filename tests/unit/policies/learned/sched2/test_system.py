"""SCHED2 as a system: the whole training on the simulator's ground, left in the middle and gone on with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.learned.sched2.encoder import NAME
from policies.learned.sched2.policy import Sched2
from policies.learned.sched2.system import SYSTEM, setup
from policies.learned.sched2.training.trainer import DqnTrainer, Recipe
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import SetupOverrides, SimulationBackend, WorkloadSpec
from policies.learned.weights import weights
from policies.learned.weights.card import draft
from simulator.training.ground import ground
from tests.unit.policies.learned.sched2.agents import small_recipe


class LeftError(Exception):
    """Stands for a kill."""


def small_ground(recipe: Recipe) -> SimulationBackend:
    jobs = WorkloadSpec("sched2", {"jobs": 16, "mean_gap_s": 600.0, "one_gpu_share": 0.9})
    return ground(replace(setup(recipe), workloads=(jobs,), cluster="4x4", validation_seeds=(500,)), SetupOverrides())


def trained(folder: Path, resume: bool = False) -> dict[str, weights.Array]:
    recipe = small_recipe(envs=2, searches=2, rounds=2, pretrain_batches=5)
    found = small_ground(recipe)
    details = SYSTEM.card(recipe, found)
    assert details.encoder == NAME
    card = draft(
        system=SYSTEM.name, recipe=details.settings, seed=3, encoder=details.encoder, shapes=details.shapes, data=found.data,
        data_sha256=found.data_sha256,
    )  # fmt: skip
    try:
        with TrainingRun(folder, card, resume=resume, better="lower", point_every_s=0.0) as run:
            SYSTEM.train(run, found, recipe)
            point: Any = run
    finally:
        found.close()
    assert point.early.best is not None
    return weights.load(point.best_folder, SYSTEM.name, system=SYSTEM.name, encoder=NAME)[0]


def test_one_that_was_left_comes_to_the_weights_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(tmp_path / "whole")
    once = DqnTrainer.run_round
    rounds: list[int] = []

    def leave(self: DqnTrainer) -> dict[str, float]:
        rounds.append(self.round)
        if len(rounds) == 2:
            raise LeftError
        return once(self)

    monkeypatch.setattr(DqnTrainer, "run_round", leave)
    with pytest.raises(LeftError):
        trained(tmp_path / "left")
    assert rounds == [0, 1]
    found = trained(tmp_path / "left", resume=True)
    assert rounds == [0, 1, 1]
    assert all(np.array_equal(array, found[name]) for name, array in whole.items())
    assert Sched2(str(tmp_path / "left")).spec.name == "sched2"


@pytest.mark.parametrize(("searches", "kept"), [(1, [True, False, True]), (0, [True, True, True])])
def test_q_learning_has_to_be_better_than_the_search_by_more_than_chance(
    searches: int, kept: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(envs=2, searches=searches, rounds=3 - searches, pretrain_batches=1, min_gain=0.05)
    found, figures = small_ground(recipe), iter([100.0, 96.0, 94.0])

    def validate(_: object) -> dict[str, float]:
        figure = next(figures)
        return {"avg_jct_s": figure, "effectiveness": 0.5}

    monkeypatch.setattr(found, "validate", validate)
    details = SYSTEM.card(recipe, found)
    card = draft(
        system=SYSTEM.name, recipe=details.settings, seed=3, encoder=details.encoder, shapes=details.shapes, data=found.data,
        data_sha256=found.data_sha256,
    )  # fmt: skip
    were: list[bool] = []
    once = TrainingRun.evaluate

    def evaluate(self: TrainingRun, *arguments: Any, **results: float) -> bool:
        were.append(once(self, *arguments, **results))
        return were[-1]

    monkeypatch.setattr(TrainingRun, "evaluate", evaluate)
    try:
        with TrainingRun(tmp_path, card, resume=False, better="lower", point_every_s=0.0) as run:
            SYSTEM.train(run, found, recipe)
    finally:
        found.close()
    assert were == kept
    # What is stored is what was measured.
    assert json.loads((tmp_path / "best" / f"{SYSTEM.name}.json").read_text())["results"]["validation"] == 94.0


def test_what_it_is_trained_on_is_the_papers() -> None:
    recipe = Recipe()
    there = setup(recipe)
    assert there.cluster == "15x8"
    assert [dict(jobs.parameters) for jobs in there.workloads] == [{"mean_gap_s": 129.0}]
    assert set(SYSTEM.policies) == {"sched2"}
