"""Systems by their entry points, their setups, and recipes from the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from policies.errors import TrainingError
from policies.learned.training.recipes import recipe_of
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import (
    CardDetails,
    SetupOverrides,
    SimulationBackend,
    TrainableSystem,
    TrainingSetup,
    WorkloadSpec,
    find_backend,
    find_system,
    system_names,
)
from policies.learned.training.train import TrainingRequest, train
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
    limited = replace(SYSTEM, presets={"limited": Recipe(limit=3.0)})
    assert recipe_of(limited, ["preset=limited", "limit=none"]).limit is None
    assert recipe_of(SYSTEM, ["mix=none"]).mix == "none"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["speed=1"], ["no field 'speed'", "rounds, rate, mix, sizes, careful, limit"]),
        (["rate"], ["'rate'", "name=value"]),
        (["rate="], ["'rate='", "name=value"]),
        (["rate=fast"], ["rate cannot be 'fast'", "rate=0.5"]),
        (["sizes=1/x"], ["sizes cannot be '1/x'", "sizes=1/2"]),
        (["rate=none"], ["rate cannot be 'none'", "rate=0.5"]),
        (["sizes=1/none"], ["sizes cannot be '1/none'", "sizes=1/2"]),
        (["careful=none"], ["careful cannot be 'none'", "careful=false"]),
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


@dataclass(frozen=True)
class Nothing:
    """A recipe without fields but the rounds."""

    rounds: int = 1


def _in_an_environment(_run: TrainingRun, backend: SimulationBackend, _recipe: Nothing) -> None:
    backend.envs("headway/Contention-v0", 2, workers=0).reset(seed=1)


WIDE = TrainableSystem(
    name="wide",
    summary="its jobs cannot be divided evenly among its nodes",
    recipe=Nothing,
    setup=lambda _: TrainingSetup(workloads=(WorkloadSpec("contention-rl", {"demands": (24,)}),), cluster="3x8"),
    card=lambda _, backend: CardDetails("wide/1", (f"{len(backend.gpus)} nodes",)),
    train=_in_an_environment,
)


def test_an_error_of_an_environment_ends_a_training_with_its_message(install: Install, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs torch")
    pytest.importorskip("tensorboard", reason="training needs TensorBoard")
    install("headway.systems", wide="tests.unit.policies.learned.training.test_systems:WIDE")
    request = TrainingRequest(system="wide", folder=tmp_path / "run", overrides=SetupOverrides())
    with pytest.raises(TrainingError, match="a job of 24 GPUs cannot be divided evenly") as caught:
        train(request)
    assert "Traceback" not in str(caught.value)
