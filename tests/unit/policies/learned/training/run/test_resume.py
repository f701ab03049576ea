"""Trainings in processes of their own that are killed or stopped give the weights of an undisturbed one."""

from __future__ import annotations

import multiprocessing
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("tensorboard", reason="training needs TensorBoard")

from policies.learned.training.run.training_run import TrainingRun  # noqa: E402
from tests.unit.policies.learned.examples import trainee  # noqa: E402

START_S = 60.0
Start = Callable[..., int]


@pytest.fixture(scope="module")
def start() -> Start:
    """Train in a process; its exit code, or minus the signal that ended it."""
    context = multiprocessing.get_context("forkserver")
    examples = "tests.unit.policies.learned.examples"
    context.set_forkserver_preload([f"{examples}.first_optimizer", f"{examples}.trainee"])

    def run(
        folder: Path, *, moment: int | None = None, name: str = "", number: int = signal.SIGKILL, seed: int = 7
    ) -> int:
        resume = TrainingRun.is_in(folder)
        process = context.Process(target=trainee.work, args=(folder, resume, moment, name, number, seed))
        process.start()
        process.join(START_S)
        assert process.exitcode is not None, "the training hangs"
        return process.exitcode

    return run


@pytest.fixture(scope="module")
def alone(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed training."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert start(folder) == trainee.FINISHED
    return folder


def results(folder: Path) -> dict[str, bytes]:
    names = [f"{where}/toy.{kind}" for where in ("best", "last") for kind in ("safetensors", "json")]
    return {name: (folder / name).read_bytes() for name in names}


def moments_of(folder: Path) -> int:
    return int((folder / "moments").read_text())


def test_same_seed_makes_the_same_weights_and_another_seed_makes_others(
    alone: Path, start: Start, tmp_path: Path
) -> None:
    assert start(tmp_path / "again") == trainee.FINISHED
    assert start(tmp_path / "other", seed=8) == trainee.FINISHED
    assert results(tmp_path / "again") == results(alone)
    other = results(tmp_path / "other")
    assert all(other[name] != content for name, content in results(alone).items())


@pytest.mark.parametrize("seed", range(6))
def test_a_training_that_is_killed_repeatedly_gives_the_same_weights(
    alone: Path, start: Start, tmp_path: Path, seed: int
) -> None:
    draw, folder, kills = random.Random(seed), tmp_path / "run", 0
    while (code := start(folder, moment=draw.randint(1, moments_of(alone)) if kills < 4 else None)) != trainee.FINISHED:
        assert code == -signal.SIGKILL
        kills += 1
    assert kills > 0
    assert results(folder) == results(alone)


@pytest.mark.parametrize(
    ("name", "time"),
    [
        ("settings.json", 1),
        ("point", 1),
        ("point", 2),
        ("point", 5),
        ("toy.safetensors", 2),
        ("toy.json", 1),
        ("toy.json", 2),
    ],
)
def test_a_training_killed_while_it_replaces_a_file_gives_the_same_weights(
    alone: Path, start: Start, tmp_path: Path, name: str, time: int
) -> None:
    """With toy.json the weights have changed and the card has not: that pair must not be served, and it is replaced later."""
    folder = tmp_path / "run"
    assert start(folder, moment=time, name=name) == -signal.SIGKILL
    assert start(folder) == trainee.FINISHED
    assert results(folder) == results(alone)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_training_that_is_asked_to_stop_says_how_to_continue_and_does(
    alone: Path, start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "run"
    assert start(folder, moment=moments_of(alone) // 2, number=number) == trainee.STOPPED
    said = (folder / "stopped").read_text()
    assert said.startswith(f"{folder}: stopped by {number.name} after round ")
    assert said.endswith("continue with --resume")
    assert start(folder) == trainee.FINISHED
    assert results(folder) == results(alone)


def test_training_that_has_ended_is_not_done_again(alone: Path, start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert start(folder) == trainee.FINISHED
    before = results(folder)
    assert start(folder) == trainee.FINISHED
    assert moments_of(folder) < moments_of(alone) / 2
    assert results(folder) == before


def test_figures_of_repeated_rounds_are_shown_once(alone: Path, start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert start(folder, moment=moments_of(alone) * 3 // 4) == -signal.SIGKILL
    assert start(folder) == trainee.FINISHED
    for name, rounds in (
        ("warm-up/loss", [0, 1]),
        ("training/loss", [2, 3, 4, 5]),
        ("training/validation", [2, 3, 4, 5]),
    ):
        shown, expected = scalars(folder, name), scalars(alone, name)
        assert [step for step, _ in shown] == rounds
        assert shown == expected


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events: Any = EventAccumulator(str(folder / "events"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]
