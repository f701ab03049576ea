"""Training: it finds better weights where JCT is a known function of them, continues after a kill, and runs in the simulator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.api import Policy
from policies.errors import TrainingError
from policies.learned.headway_rl import recipe as recipes
from policies.learned.headway_rl.features import ENCODER, NAMES
from policies.learned.headway_rl.network import TERMS, ValueFunction
from policies.learned.headway_rl.policy import HeadwayRl, load
from policies.learned.headway_rl.recipe import Recipe, search_of, setup, train
from policies.learned.headway_rl.setups import setups_of
from policies.learned.headway_rl.system import SYSTEM
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import FIGURE, EpisodeResult, SetupOverrides, find_backend
from policies.learned.weights.card import draft

BEST = {"gpus": 1.4, "remaining": -0.8, "threshold": 0.6}
"""The weights for which this backend gives the lowest JCT."""


class Known:
    """A backend whose JCT is a function of the weights, lowest at BEST; it has only what the recipe uses."""

    data_sha256 = "0" * 64

    def __init__(self) -> None:
        self.played = 0

    def play(
        self, policies: Sequence[Policy], numbers: Sequence[int], keep: Callable[[Policy], Any] | None = None
    ) -> list[EpisodeResult]:
        assert keep is None
        self.played += len(policies)
        return [
            EpisodeResult({}, self._jct_s(policy) * np.linspace(1.0, 2.0, 10 + number % 7))
            for policy, number in zip(policies, numbers, strict=True)
        ]

    def validate(self, policy: Policy) -> Mapping[str, float]:
        return {FIGURE: float(self._jct_s(policy)), "p90_jct_s": 1.0}

    def _jct_s(self, policy: Policy) -> float:
        assert isinstance(policy, HeadwayRl)
        network: ValueFunction = policy._network
        found = {**dict(zip(NAMES, network._linear.tolist(), strict=True)), "threshold": network.terms.threshold}
        return 1000.0 * float(np.exp(sum((found[name] - best) ** 2 for name, best in BEST.items())))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    ground = Known()
    monkeypatch.setattr(recipes, "_backends", lambda *_: [ground, ground])
    return ground


def run_in(
    folder: Path, recipe: Recipe, *, resume: bool = False, rounds: int | None = None, seed: int = 0
) -> TrainingRun:
    """Train to the end, or for so many rounds."""
    card = draft(
        system=SYSTEM.name,
        recipe=recipe,
        seed=seed,
        encoder=ENCODER,
        shapes=("any",),
        data="known",
        data_sha256="0" * 64,
    )
    with TrainingRun(folder, card, resume=resume, better="lower", point_every_s=0.0) as run:
        if rounds is not None:
            stop_after(run, rounds)
        train(run, Known(), recipe)  # type: ignore[arg-type] # only what the recipe asks for
    return run


class KilledError(Exception):
    pass


def stop_after(run: TrainingRun, rounds: int) -> None:
    every = run.rounds

    def some(total: int, phase: str = "training") -> Any:
        for number in every(total, phase):
            if number >= rounds:
                raise KilledError
            yield number

    run.rounds = some  # type: ignore[method-assign]


@pytest.mark.usefixtures("known")
def test_the_training_finds_better_weights_and_begins_from_the_first_mean(tmp_path: Path) -> None:
    run = run_in(tmp_path, Recipe(generations=12, candidates=24, elite=6, candidates_per_round=12, episodes=4))
    found = load(str(run.folder))
    begun = Known()._jct_s(HeadwayRl(ValueFunction(recipes.weights_of(search_of(Recipe()).mean))))
    reached = Known()._jct_s(HeadwayRl(found))
    assert 1000.0 <= reached < 1000.0 + 0.5 * (begun - 1000.0)


@pytest.mark.usefixtures("known")
def test_a_training_that_was_killed_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    recipe = Recipe(generations=2, candidates=6, elite=2, candidates_per_round=2, episodes=2)
    whole = run_in(tmp_path / "whole", recipe)
    with pytest.raises(KilledError):
        run_in(tmp_path / "killed", recipe, rounds=4)  # in the middle of the second generation
    rest = run_in(tmp_path / "killed", recipe, resume=True)
    files = [run.best_folder / f"{SYSTEM.name}.safetensors" for run in (whole, rest)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_every_candidate_runs_on_the_same_traces(known: Known, tmp_path: Path) -> None:
    recipe = Recipe(generations=1, candidates=5, elite=1, candidates_per_round=2, episodes=4)
    run_in(tmp_path, recipe)
    assert known.played == 5 * 4


def test_the_elite_moves_mean_and_spread() -> None:
    learned = search_of(Recipe(mean_step=1.0))
    before = learned.mean.copy()
    rows = learned.draw(4, np.random.default_rng(0))
    assert (rows[0] == before).all() and not (rows[1] == before).all()
    learned.move(rows[:1])
    assert (learned.mean == before).all()  # the mean alone was best
    learned.move(rows[1:2])
    assert np.allclose(learned.mean, rows[1])
    assert len(before) == len(NAMES) + len(TERMS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"generations": 0},
        {"elite": 17},
        {"mean_step": 1.5},
        {"p90_weight": -1.0},
        {"candidates_per_round": 0},
        {"spread_step": -1},
        {"setups": "narrow"},
    ],
)
def test_recipes_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TrainingError, match=next(iter(wrong))):
        Recipe(**wrong)


def test_the_training_uses_three_setups_unless_the_user_gives_one() -> None:
    two, one, other = recipes.default_backends(Recipe(jobs=40))
    assert (two.gpus, one.gpus, other.gpus) == ((8,) * 8, (8,) * 4, (8,) * 4)
    digests = [each.data_sha256 for each in (two, one, other)]
    assert len(set(digests)) == 3
    assert [each.data_sha256 for each in recipes._backends(two, Recipe(jobs=40))] == digests
    given = find_backend(setup(Recipe(jobs=40)), SetupOverrides(cluster="6x8"))
    assert recipes._backends(given, Recipe(jobs=40)) == [given]


def test_the_wide_preset_adds_setups_that_are_unlike_the_usual_ones() -> None:
    recipe = dataclasses.replace(SYSTEM.presets["wide"], jobs=60)
    usual, backends = recipes.default_backends(Recipe(jobs=60)), recipes.default_backends(recipe)
    assert [each.data_sha256 for each in backends[:3]] == [each.data_sha256 for each in usual]
    assert len({each.data_sha256 for each in backends}) == 8
    assert sorted({len(each.gpus) for each in backends}) == [3, 4, 6, 8, 100]
    ranges = [each.trained_range() for each in backends]
    assert min(each["load"][0] for each in ranges) < 0.6 and max(each["load"][1] for each in ranges) > 1.4
    durations = np.array([each["duration_s"] for each in ranges])
    assert durations[:, 1].max() > 3 * durations[:3, 1].max()


def test_durations_are_known_as_the_setup_says() -> None:
    """With `history`, no duration is known before a job of the same kind has ended."""
    seen = {}
    for estimates in ("true", "history"):
        one = dataclasses.replace(setups_of("usual", 40)[1], estimates=estimates)
        backend = find_backend(one, SetupOverrides(cluster="4x8"))
        seen[estimates] = np.isfinite(backend.example().jobs.duration_estimate_s).any(), backend.data_sha256
    assert seen["true"][0] and not seen["history"][0]
    assert seen["true"][1] != seen["history"][1]


@pytest.mark.timeout(300)
def test_it_trains_in_the_simulator(tmp_path: Path) -> None:
    recipe = Recipe(generations=1, candidates=2, elite=1, candidates_per_round=2, episodes=1, jobs=30)
    small = dataclasses.replace(setup(recipe), workloads=setup(recipe).workloads[:1], validation_seeds=range(200, 201))
    ground = find_backend(small, SetupOverrides(cluster="4x8"))
    card_details = SYSTEM.card(recipe, ground)
    card = draft(
        system=SYSTEM.name,
        recipe=recipe,
        seed=1,
        encoder=card_details.encoder,
        shapes=card_details.shapes,
        data=ground.data,
        data_sha256=ground.data_sha256,
    )
    with TrainingRun(tmp_path, card, resume=False, better="lower") as run:
        train(run, ground, recipe)
    load(str(tmp_path))
