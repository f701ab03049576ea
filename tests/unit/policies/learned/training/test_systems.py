"""Systems by their entry points, their setups, and recipes from the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from policies.errors import TrainingError
from policies.learned.training.recipes import recipe_of
from policies.learned.training.systems import (
    SetupOverrides,
    TrainingSetup,
    WorkloadSpec,
    find_backend,
    find_system,
    system_names,
)
from tests.unit.policies.learned.examples.toy_system import SYSTEM, Recipe, setup

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package that has these entry points of the group."""

    def write(group: str, **entries: str) -> None:
        info = tmp_path / "other-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
        lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
        (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
        monkeypatch.syspath_prepend(str(tmp_path))

    return write


def test_a_system_of_another_package_is_found_by_its_name(install: Install) -> None:
    install("headway.systems", toy="tests.unit.policies.learned.examples.toy_system:SYSTEM")
    assert "toy" in system_names()
    assert find_system("toy") is SYSTEM


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            "tests.unit.policies.learned.examples.toy_system:Recipe",
            ["'bad'", "is not a policies.learned.training.systems.TrainableSystem"],
        ),
        ("tests.unit.policies.learned.examples.toy_system:NOTHING", ["'bad'", "cannot be loaded", "NOTHING"]),
        ("no_such_package_at_all:SYSTEM", ["'bad'", "needs no_such_package_at_all", "pip install"]),
    ],
)
def test_an_unknown_system_is_an_error(install: Install, value: str, words: list[str]) -> None:
    install("headway.systems", bad=value)
    with pytest.raises(TrainingError) as caught:
        find_system("bad")
    assert all(word in str(caught.value) for word in words)


def test_the_error_of_a_wrong_name_lists_the_names_there_are(install: Install) -> None:
    install("headway.systems", toy="tests.unit.policies.learned.examples.toy_system:SYSTEM")
    with pytest.raises(TrainingError, match=r"no system is named 'tory'; installed: .*toy"):
        find_system("tory")


def test_the_simulator_is_the_registered_backend() -> None:
    ground = find_backend(setup(Recipe()), SetupOverrides(cluster="2x4"))
    assert ground.gpus == (4, 4)


def test_a_recipe_from_the_command_line() -> None:
    texts = ["rate=1e-3", "mix=heavy", "sizes=4/8", "careful=yes", "limit=2"]
    assert recipe_of(SYSTEM, texts, rounds=9) == Recipe(
        rounds=9, rate=1e-3, mix="heavy", sizes=(4, 8), careful=True, limit=2.0
    )
    assert recipe_of(SYSTEM) == Recipe()
    assert recipe_of(SYSTEM, ["limit=none"]).limit is None


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["speed=1"], ["no field 'speed'", "rounds, rate, mix, sizes, careful, limit"]),
        (["rate"], ["'rate'", "name=value"]),
        (["rate="], ["'rate='", "name=value"]),
        (["rate=fast"], ["rate cannot be 'fast'", "rate=0.5"]),
        (["sizes=1/x"], ["sizes cannot be '1/x'", "sizes=1/2"]),
        (["careful=maybe"], ["careful cannot be 'maybe'", "careful=false"]),
        (["rounds=3"], ["--rounds", "set the same field"]),
    ],
)
def test_a_wrong_setting_is_an_error(texts: list[str], words: list[str]) -> None:
    with pytest.raises(TrainingError) as caught:
        recipe_of(SYSTEM, texts, rounds=2)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("training", "validation"), [(range(2000), range(3000, 3005)), (range(10), range(9, 12)), ([5], [1000])]
)
def test_seeds_are_never_used_twice(training: range, validation: range) -> None:
    with pytest.raises(ValueError, match="overlap"):
        TrainingSetup(workloads=(WorkloadSpec("sched2"),), training_seeds=training, validation_seeds=validation)


def test_a_preset_is_a_recipe_of_which_settings_change_fields() -> None:
    system = replace(SYSTEM, presets={"long": Recipe(rounds=90, mix="heavy")})
    assert recipe_of(system, ["preset=long", "mix=low"]) == Recipe(rounds=90, mix="low")
    assert recipe_of(system, ["preset=long"], rounds=4) == Recipe(rounds=4, mix="heavy")
    assert recipe_of(system) == Recipe()
    with pytest.raises(TrainingError, match=r"no preset 'short'; its presets: long"):
        recipe_of(system, ["preset=short"])
    with pytest.raises(TrainingError, match=r"no field 'speed'; it has rounds, .*, and presets: long"):
        recipe_of(system, ["speed=1"])
    with pytest.raises(TrainingError, match=r"no preset 'long'; its presets: none"):
        recipe_of(SYSTEM, ["preset=long"])
