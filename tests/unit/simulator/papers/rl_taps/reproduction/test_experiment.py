"""RL-TAPS' experiment: its claims are about its contenders, whose figures are in order; and its pictures and curves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from policies.learned.rl_taps.system import SYSTEM
from policies.learned.training.recipes import recipe_of
from policies.learned.training.run.figures import Figures
from policies.learned.training.systems import TEST_SEEDS, VALIDATION_SEEDS
from simulator.papers.rl_taps.reproduction import curves, inference
from simulator.papers.rl_taps.reproduction.contenders import AGENTS, BASELINES, BLOCKS, BOUND, CONTROLS, ONE_EACH
from simulator.papers.rl_taps.reproduction.experiment import experiment, pictures
from simulator.papers.rl_taps.reproduction.settings import CHARGED, COST, FREE, SLOWDOWN
from simulator.reproducing.experiment import Experiment, perform
from simulator.reproducing.pictures import svg
from simulator.reproducing.registry import reproduction_of
from simulator.traces.generators.rl_taps import RLTaps, generate
from simulator.traces.trace import Trace


def short(seed: int) -> Trace:
    return generate(RLTaps(seed=seed, jobs=6))


def small() -> Experiment:
    """Return the experiment with sequences of six jobs, and stops that cost something."""
    whole = experiment(quick=True)
    (charged, _) = whole.settings
    return replace(whole.only(CHARGED.name), settings=(replace(charged, trace=short),))


def test_claims_are_about_contenders_of_their_setting() -> None:
    whole = experiment()
    assert [each.name for each in whole.settings] == [CHARGED.name, FREE.name]
    for setting in whole.settings:
        names = {each.name for each in whole.contenders[setting.name]}
        assert names == {*AGENTS, *BASELINES, *CONTROLS, ONE_EACH, BLOCKS, BOUND}
        claims = [claim for claim in whole.claims if claim.setting == setting.name]
        assert all({claim.ours, *claim.against} <= names and claim.metric in whole.measures for claim in claims)
    assert len({claim.name for claim in whole.claims}) == len(whole.claims)
    assert any("without the guard" in note for note in whole.notes)
    found = reproduction_of("rl-taps")
    assert found.experiment(None, quick=True).name == "rl-taps"


def test_a_small_run_has_a_row_for_each_and_no_agent_is_below_the_bound() -> None:
    results = perform(small(), TEST_SEEDS[:2], lambda _share: None)
    assert len(results.findings()) == len(small().claims)
    means = {name: results.mean(CHARGED.name, name, SLOWDOWN) for name in (*AGENTS, *BASELINES, *CONTROLS, BOUND)}
    bound = means.pop(BOUND)
    assert bound is not None
    assert all(mean is not None and mean.mean >= bound.mean for mean in means.values())
    (cost,) = results.values(CHARGED.name, "taps-sjf", COST)[:1]
    assert isinstance(cost, float)
    assert all(svg(each, results).startswith("<svg") for each in pictures(results))


def test_baselines_are_never_charged_because_they_never_stop() -> None:
    results = perform(small(), TEST_SEEDS[:1], lambda _share: None)
    assert all(results.values(CHARGED.name, name, "preemptions") == [0.0] for name in BASELINES)


def test_seeds_of_validation_and_tests_are_disjoint() -> None:
    assert not set(VALIDATION_SEEDS) & set(TEST_SEEDS)
    assert set(SYSTEM.setup(SYSTEM.recipe()).validation_seeds) == set(VALIDATION_SEEDS)


@pytest.mark.parametrize("name", curves.TRAININGS)
def test_the_settings_of_a_training_are_fields_of_the_recipe(name: str) -> None:
    recipe_of(SYSTEM, curves.TRAININGS[name], None)


def test_curves_of_both_phases_follow_each_other(tmp_path: Path) -> None:
    figures = Figures(tmp_path / "events")
    figures.add("imitation/validation", 150.0, 0)
    figures.add("training/validation", 140.0, 1)
    figures.add("training/return", -33.5, 1)
    figures.close()
    assert curves.curves_of(tmp_path) == {"return": [(1, -33.5)], "validation": [(0, 150.0), (1, 140.0)]}


def test_stored_curves_have_names_of_trainings() -> None:
    assert set(curves.stored_curves()) <= set(curves.TRAININGS)


def test_commands_name_all_trainings(capsys: pytest.CaptureFixture[str]) -> None:
    curves.main(["--commands"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[6].removeprefix("trained/") for line in lines] == list(curves.TRAININGS)


def test_the_time_of_decisions() -> None:
    found = inference.program(["--steps", "20"])
    assert found["decisions"] == 20
    assert json.dumps(found)
    for each in ("decision_ms", "decision_cpu_ms"):
        assert 0 < found[each]["median"] <= found[each]["p99"]
