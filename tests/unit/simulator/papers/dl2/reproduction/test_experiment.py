"""DL2's experiment: its claims, and stored runs that are those of this version."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from policies.learned.dl2.system import PPO_SYSTEM, SYSTEM
from policies.learned.training.recipes import recipe_of
from policies.learned.training.systems import VALIDATION_SEEDS
from simulator.errors import SettingError
from simulator.papers.dl2.reproduction import stored
from simulator.papers.dl2.reproduction.contenders import contenders_of, live
from simulator.papers.dl2.reproduction.experiment import experiment
from simulator.papers.dl2.reproduction.settings import MAIN, OTHERS
from simulator.papers.dl2.reproduction.trainings import PAPER, PPO, TRAININGS
from simulator.reproducing.experiment import Contender, Run, Setting, perform
from simulator.reproducing.registry import reproduction_of
from simulator.reproducing.report import as_json
from simulator.slowdown.profiles.papers import paper_profiles

SETTINGS = {setting.name: setting for setting in (MAIN, *OTHERS)}
QUICK_TO_RUN = ("dl2-fifo", "dl2-rule", "lower bound", PAPER, PPO)


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        *((MAIN.name, name) for name in QUICK_TO_RUN),
        *((other.name, PPO) for other in OTHERS),
        ("speeds vary by 50 %", "dl2-optimus"),
        ("epochs off by 5 %", "dl2-drf"),
        ("epochs off by 15 %", PAPER),
    ],
)
def test_stored_runs_are_those_of_this_version(setting: str, name: str) -> None:
    where, seed = SETTINGS[setting], stored.SEEDS[7]
    contender = {each.name: each for each in live(where)}[name]
    assert stored.RUNS.of(contender).run(where, seed, None).figures == pytest.approx(
        contender.run(where, seed, None).figures, rel=1e-3
    )


def test_whatever_needs_no_training_is_stored_and_trained_rows_say_how_they_were_made() -> None:
    made = experiment(quick=True)
    names = {setting: {each.name for each in of} for setting, of in made.contenders.items()}
    for name, where in SETTINGS.items():
        assert {each.name for each in live(where)} <= names[name]
        assert {*stored.RUNS.read()[name]} == names[name] <= {each.name for each in contenders_of(where, Path())}
    for name in names[MAIN.name] & {*TRAININGS}:
        assert any(note.endswith(TRAININGS[name].command(name)) for note in made.notes)
    assert any("without the guard" in note for note in made.notes)
    assert {claim.name for claim in made.claims} == {claim.name for claim in experiment().claims}
    assert {"against OfflineRL", "against Optimus", "against DRF"} <= {
        claim.name.partition(": avg_jct_s ")[2].partition(" (")[0] for claim in made.claims
    }


def test_the_json_has_curves_and_times_or_says_where_they_are() -> None:
    found = json.loads(as_json(perform(experiment(quick=True).only("poisson"), stored.SEEDS, lambda _share: None, 1)))
    details = found["details"]
    assert {PAPER, PPO} <= details["curves"]["trainings"].keys()
    assert details["training_times"]["trainings"]["teacher-drf"]["cpu_s"] > 0
    assert {PAPER, PPO} == details["inference"]["systems"].keys()
    # The goals of an inference and of a slot of 40 jobs.
    assert all(each["action_ms"]["median"] < 1 for each in details["inference"]["systems"].values())
    assert all(each["slot_ms"]["most"] < 100 for each in details["inference"]["systems"].values())
    assert any("adjusting" in words for words in details["elsewhere"])
    assert "details" not in json.loads(
        as_json(perform(replace(experiment(quick=True).only("poisson"), details={}), [1000], lambda _: None, 1))
    )


def test_test_seeds_are_not_those_of_training_and_validation() -> None:
    assert not {*stored.SEEDS} & {*VALIDATION_SEEDS, *SYSTEM.setup(SYSTEM.recipe()).training_seeds[:100]}
    assert len(stored.SEEDS) == reproduction_of("dl2").quick_seeds == 30


def test_stored_runs_of_other_seeds_are_refused() -> None:
    with pytest.raises(SettingError, match="give --seeds 30"):
        perform(experiment(quick=True), [999], lambda _share: None, 1)


def test_profiles_of_users_need_new_runs() -> None:
    profiles = paper_profiles("dl2")
    with pytest.raises(SettingError, match="leave out --quick"):
        experiment(profiles, quick=True)
    made = experiment(profiles)
    assert all(setting.profiles is profiles for setting in made.settings)
    assert {each.name for each in made.contenders[MAIN.name]} == {each.name for each in live(MAIN)}


@pytest.mark.parametrize("name", TRAININGS)
def test_trainings_are_of_fields_that_the_recipe_has(name: str) -> None:
    training = TRAININGS[name]
    assert recipe_of({SYSTEM.name: SYSTEM, PPO_SYSTEM.name: PPO_SYSTEM}[training.system], training.settings)
    assert training.command(name).startswith(f"headway-policy train {training.system} --seed 0 --out trained/{name}")


def test_runs_are_stored_line_by_line_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_where: Setting, seed: int, _report: object) -> Run:
        return Run({"avg_jct_s": seed + 0.123})

    file = tmp_path / "runs.json"
    file.write_text('{"main": {"other": {"avg_jct_s": [1.0]}}}')
    monkeypatch.setattr(stored, "RUNS", replace(stored.RUNS, file=file))
    monkeypatch.setattr(stored, "OTHERS", ())
    monkeypatch.setattr(
        stored, "contenders_of", lambda where, _folder: [replace(each, run=run) for each in live(where)[:3]]
    )
    stored.main(["--only", "dl2-drf"])
    found = json.loads(file.read_text())
    assert set(found["main"]) == {"other", "dl2-drf"}
    assert found["main"]["dl2-drf"]["avg_jct_s"][:2] == [1000.1, 1001.1]
    assert capsys.readouterr().out == "dl2-drf in main\n"


def test_runs_that_are_stored_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs.json"
    file.write_text('{"main": {"dl2-drf": {"avg_jct_s": [1.0]}}}')
    monkeypatch.setattr(stored, "RUNS", replace(stored.RUNS, file=file))
    monkeypatch.setattr(stored, "OTHERS", ())
    monkeypatch.setattr(
        stored,
        "contenders_of",
        lambda where, _folder: [replace(each, run=lambda *_: Run({"avg_jct_s": 2.0})) for each in live(where)],
    )
    stored.main(["--only", "dl2-drf", "dl2-optimus", "--missing"])
    assert capsys.readouterr().out == "dl2-optimus in main\n"
    assert json.loads(file.read_text())["main"]["dl2-drf"] == {"avg_jct_s": [1.0]}


def test_a_contender_keeps_its_kind() -> None:
    contender = live(MAIN)[1]
    assert isinstance(contender, Contender)
    assert stored.RUNS.of(contender).kind is contender.kind
