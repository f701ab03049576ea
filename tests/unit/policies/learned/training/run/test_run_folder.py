"""The folder of a training: when checkpoints are written, when training ends, what is kept, and which requests are refused."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("tensorboard", reason="training needs TensorBoard")

from tensorboard.backend.event_processing import event_accumulator  # noqa: E402

from policies.errors import TrainingError, TrainingStoppedError, WeightsError  # noqa: E402
from policies.learned.training.run.early_stop import EarlyStop  # noqa: E402
from policies.learned.training.run.folder_lock import locked  # noqa: E402
from policies.learned.training.run.progress import TrainingProgress  # noqa: E402
from policies.learned.training.run.training_run import TrainingRun  # noqa: E402
from policies.learned.weights.weights import load  # noqa: E402
from tests.unit.policies.learned.examples.cards import card  # noqa: E402


class Terminal(io.StringIO):
    """A terminal, as a person has it."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Count:
    """An object with a state."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def begin(folder: Path, *, resume: bool = False, seed: int = 7, **options: Any) -> TrainingRun:
    options = {"progress": TrainingProgress(io.StringIO()), "better": "lower"} | options
    return TrainingRun(folder, options.pop("card", card(seed=seed)), resume=resume, **options)


def weights(number: float) -> dict[str, Any]:
    return {"a": np.array([number], dtype=np.float32)}


class KilledError(Exception):
    """Raised in place of a signal."""


def killed_after(run: TrainingRun, rounds: int) -> None:
    """Train for so many rounds, and lose the present one."""
    with pytest.raises(KilledError), run:
        run.keep(count=(count := Count()))
        for number in run.rounds(100):
            if number == rounds:
                raise KilledError
            count.count += 1


@pytest.mark.parametrize(
    ("lengths", "points"),
    [
        # A point is written where the next round might end too late: no two are more than 30 s apart.
        ([10] * 8, [3, 6]),
        ([12] * 8, [2, 4, 6, 8]),
        ([1] * 70, [30, 60]),
        ([40, 40, 40], [1, 2, 3]),
        ([1, 1, 20, 5, 5, 5], [3, 6]),
    ],
)
def test_checkpoints_are_at_most_an_interval_apart(folder: Path, lengths: list[float], points: list[int]) -> None:
    clock, seen = Clock(), []
    with begin(folder, clock=clock) as run:
        for number in run.rounds(len(lengths) + 1):
            if (point := folder / "state" / "point").exists():
                seen.append(number)
                point.unlink()
            if number < len(lengths):
                clock.now += lengths[number]
    assert seen == points


def test_a_round_that_is_too_long_is_reported_once(folder: Path, out: io.StringIO) -> None:
    clock = Clock()
    with begin(folder, clock=clock, progress=TrainingProgress(out)) as run:
        for _ in run.rounds(3):
            clock.now += 45
    assert out.getvalue().count("a round took 45 s") == 1


def test_a_training_continues_after_the_last_checkpoint(folder: Path, out: io.StringIO) -> None:
    killed_after(begin(folder, point_every_s=0.0), 3)
    with begin(folder, resume=True, progress=TrainingProgress(out)) as run:
        run.keep(count=(count := Count()))
        rest = []
        for number in run.rounds(5):
            rest.append((number, count.count))
            count.count += 1
    assert rest == [(3, 3), (4, 4)]
    assert f"{folder}: continues after round 3 of training" in out.getvalue()


def test_a_training_without_a_checkpoint_begins_anew(folder: Path) -> None:
    killed_after(begin(folder), 3)
    with begin(folder, resume=True) as run:
        run.keep(count=(count := Count()))
        assert next(run.rounds(5)) == 0
        assert count.count == 0


def test_phases_follow_each_other_once(folder: Path) -> None:
    with pytest.raises(KilledError), begin(folder, point_every_s=0.0) as run:
        assert list(run.rounds(2, "warm-up")) == [0, 1]
        for number in run.rounds(5):
            if number == 1:
                raise KilledError
    with begin(folder, resume=True) as run:
        assert list(run.rounds(2, "warm-up")) == []
        assert list(run.rounds(5)) == [1, 2, 3, 4]
    with (
        begin(folder, resume=True) as run,
        pytest.raises(TrainingError, match="was in phase training, which this recipe"),
    ):
        list(run.rounds(2, "cooling"))


def test_recipe_that_keeps_other_parts_is_refused(folder: Path) -> None:
    killed_after(begin(folder, point_every_s=0.0), 2)
    with begin(folder, resume=True) as run:
        run.keep(net=Count())
        with pytest.raises(TrainingError, match="the checkpoint has count, and this recipe needs net"):
            next(run.rounds(5))
    with begin(folder, resume=True) as run:
        run.keep(net=Count())
        with pytest.raises(ValueError, match="net is kept already"):
            run.keep(net=Count())


def test_random_sources_belong_to_the_round(folder: Path) -> None:
    def drawn(run: TrainingRun) -> list[Any]:
        return [(run.seeds("a", 2), run.seeds("b", 2), run.rng("a").random()) for _ in run.rounds(3)]

    with begin(folder) as run:
        first = drawn(run)
        again = [run.seeds("a", 2) for _ in run.rounds(3, "other")]
    with begin(folder.with_name("same")) as run:
        assert drawn(run) == first
    with begin(folder.with_name("other"), seed=8) as run:
        assert all(one != other for one, other in zip(drawn(run), first, strict=True))
    numbers = [tuple(seeds) for seeds in again] + [tuple(s) for one in first for s in one[:2]]
    assert len(set(numbers)) == 9


def test_nothing_is_counted_outside_of_rounds(folder: Path) -> None:
    with begin(folder) as run:
        calls = [
            lambda: run.log(a=1.0),
            lambda: run.evaluate(1.0, {}),
            lambda: run.seeds("a", 1),
            lambda: run.rng("a"),
            run.enough,
        ]
        list(run.rounds(1))
        for call in calls:
            with pytest.raises(RuntimeError, match="outside of a round"):
                call()


# Evaluations


@pytest.mark.parametrize(("better", "best", "done"), [("lower", 2.0, 5), ("higher", 5.0, 3)])
def test_a_training_ends_when_patience_is_used_up_and_keeps_the_best_weights(
    folder: Path, better: Any, best: float, done: int
) -> None:
    figures = [5.0, 3.0, 2.0, 4.0, 2.0, 1.0]
    with begin(folder, better=better, patience=2) as run:
        rounds = list(evaluated(run, figures))
    assert len(rounds) == done
    kept, reported = load(run.best_folder, "toy", system="toy", encoder="toy/1", network=weights(0.0))
    assert kept["a"].tolist() == [best]
    assert reported.results == {
        "validation": best,
        "jct_s": 10 * best,
        "round": figures.index(best) + 1,
        "last_round": done,
    }
    assert reported.recipe == card().recipe
    with begin(folder, better=better, patience=2, resume=True) as run:
        assert list(run.rounds(100)) == []


def test_the_card_has_the_round_of_the_weights_and_that_after_which_the_training_was_stopped(folder: Path) -> None:
    with pytest.raises(TrainingStoppedError), begin(folder) as run:
        for number in run.rounds(60):
            run.evaluate([3.0, 2.0, 4.0][number], weights(number))
            if number == 2:
                os.kill(os.getpid(), signal.SIGTERM)
    _, stopped = load(run.best_folder, "toy", system="toy", encoder="toy/1", network=weights(0.0))
    assert (stopped.results["round"], stopped.results["last_round"]) == (2, 3)
    with begin(folder, resume=True) as run:
        for number in run.rounds(5):
            run.evaluate(1.0 if number == 3 else 5.0, weights(number))
    _, ended = load(run.best_folder, "toy", system="toy", encoder="toy/1", network=weights(0.0))
    assert (ended.results["round"], ended.results["last_round"]) == (4, 5)


def test_the_last_round_of_a_training_that_was_killed_is_that_of_its_checkpoint(folder: Path) -> None:
    with pytest.raises(TrainingStoppedError), begin(folder) as run:
        run.keep(count=Count())
        for number in run.rounds(60):
            run.evaluate(float(number), weights(number))
            os.kill(os.getpid(), signal.SIGTERM)
    killed_after(begin(folder, resume=True, point_every_s=0.0), 5)
    _, found = load(run.best_folder, "toy", system="toy", encoder="toy/1", network=weights(0.0))
    assert found.results["last_round"] == 5


def test_weights_of_an_earlier_phase_are_of_round_0(folder: Path) -> None:
    with begin(folder) as run:
        for number in run.rounds(2, "warm-up"):
            run.evaluate(float(number), weights(number))
        for _ in run.rounds(3):
            run.evaluate(9.0, weights(9.0))
    _, found = load(run.best_folder, "toy", system="toy", encoder="toy/1", network=weights(0.0))
    assert (found.results["round"], found.results["last_round"]) == (0, 3)


def test_each_round_has_its_cpu_time(folder: Path) -> None:
    with begin(folder) as run:
        for _ in run.rounds(2):
            began = time.process_time()
            while time.process_time() - began < 0.05:
                pass
    events = event_accumulator.EventAccumulator(str(folder / "events"))
    events.Reload()
    seconds = [each.value for each in events.Scalars("training/cpu_s")]
    assert len(seconds) == 2 and all(0.03 < each < 10 for each in seconds)


def evaluated(run: TrainingRun, figures: list[float]) -> Iterator[bool]:
    for number in run.rounds(len(figures)):
        yield run.evaluate(figures[number], weights(figures[number]), jct_s=10 * figures[number])


def test_patience_continues_from_the_checkpoint(folder: Path) -> None:
    with pytest.raises(KilledError), begin(folder, patience=3, point_every_s=0.0) as run:
        for number, _ in enumerate(evaluated(run, [1.0, 2.0, 2.0, 2.0, 2.0])):
            if number == 2:
                raise KilledError
    with begin(folder, patience=3, resume=True) as run:
        assert list(evaluated(run, [1.0, 2.0, 2.0, 2.0, 2.0])) == [False, False]
        assert run.early.best == 1.0


def test_a_figure_that_is_not_a_number_ends_the_training(folder: Path) -> None:
    with begin(folder) as run, pytest.raises(TrainingError, match="validation figure is nan: the training diverged"):
        list(evaluated(run, [float("nan")]))
    with begin(folder, resume=True) as run:
        for _ in run.rounds(1):
            with pytest.raises(WeightsError, match="the training diverged"):
                run.evaluate(1.0, weights(float("inf")))


def test_a_figure_must_be_better_by_the_minimum_gain() -> None:
    early = EarlyStop("lower", 2)

    # 1 % better is not 5 % better than the best figure, and counts against patience
    assert [early.offer(figure, min_gain=0.05) for figure in (100.0, 99.0, 94.0, 93.0, 92.0)] == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert early.best == 94.0
    assert early.is_over


def test_without_patience_a_training_never_stops_early() -> None:
    early = EarlyStop("lower", None)
    assert [early.offer(figure) for figure in (1.0, 1.0, 0.5, 2.0)] == [True, False, True, False]
    assert early.best == 0.5
    assert not early.is_over


# Refused requests


def test_another_process_is_refused_until_this_one_ends(folder: Path) -> None:
    with begin(folder), pytest.raises(TrainingError, match="another process trains there; wait for it"):
        begin(folder, resume=True).__enter__()
    with begin(folder, resume=True):
        pass


def test_forked_process_does_not_keep_the_folder(folder: Path) -> None:
    ready, child_ready = os.pipe()
    child_done, done = os.pipe()
    with locked(folder):
        if not (child := os.fork()):
            os.close(done)
            os.write(child_ready, b"x")
            os.read(child_done, 1)
            os._exit(0)
        os.read(ready, 1)
    try:
        with locked(folder):
            pass
    finally:
        for end in (done, ready, child_ready, child_done):
            os.close(end)
        os.waitpid(child, 0)


def test_a_folder_without_a_training_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no training to continue; begin without --resume"):
        begin(folder, resume=True).__enter__()
    with begin(folder):
        pass
    with pytest.raises(TrainingError, match=r"continue that training \(--resume\), or give another folder"):
        begin(folder).__enter__()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").touch()
    with pytest.raises(TrainingError, match=r"contains thesis\.tex; .*leave it, or give another folder"):
        begin(tmp_path / "home").__enter__()
    (tmp_path / "file").touch()
    with pytest.raises(TrainingError, match="give a folder that you can write to"):
        begin(tmp_path / "file").__enter__()


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"seed": 8}, "card.seed was 7, is 8"),
        ({"card": replace(card(), recipe={**card().recipe, "rate": 0.1})}, "card.recipe.rate was 0.01, is 0.1"),
        ({"card": replace(card(), recipe={})}, "card.recipe.rate was 0.01, is not there"),
        ({"card": replace(card(), data_sha256="1" * 64)}, "card.data_sha256 was 000"),
        ({"card": replace(card(), shapes=("8x8",))}, "card.shapes was"),
        ({"patience": 3}, "patience was None, is 3"),
        ({"better": "higher"}, "better was lower, is higher"),
    ],
)
def test_a_training_continues_with_the_settings_that_it_began_with(
    folder: Path, changes: dict[str, Any], reported: str
) -> None:
    with begin(folder):
        pass
    with pytest.raises(TrainingError) as refused:
        begin(folder, resume=True, **changes).__enter__()
    assert reported in str(refused.value)
    assert str(folder / "settings.json") in str(refused.value)


def test_a_field_that_an_earlier_version_did_not_have_is_reported(folder: Path, out: io.StringIO) -> None:
    with begin(folder, card=replace(card(), recipe={"rate": 0.01})):
        pass
    with begin(
        folder,
        card=replace(card(), recipe={"rate": 0.01, "min_gain": 0.0}),
        progress=TrainingProgress(out),
        resume=True,
    ):
        pass
    assert "recipe.min_gain was not there, is 0.0: weights may differ from those of one version" in out.getvalue()


def test_another_version_is_reported_and_another_description_is_not(folder: Path, out: io.StringIO) -> None:
    with begin(folder):
        pass
    other = replace(card(), versions={**card().versions, "torch": "9.0"}, data="the same beam")
    with begin(folder, resume=True, card=other, progress=TrainingProgress(out)):
        pass
    assert out.getvalue() == "versions.torch was 2.13.0, is 9.0: weights may differ from those of one version\n"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', "\x00"])
def test_invalid_settings_are_refused(folder: Path, text: str) -> None:
    with begin(folder):
        pass
    (folder / "settings.json").write_text(text)
    with pytest.raises(TrainingError, match=r"settings\.json: (cannot be read|not of format 1)"):
        begin(folder, resume=True).__enter__()


def test_a_damaged_checkpoint_is_refused(folder: Path) -> None:
    killed_after(begin(folder, point_every_s=0.0), 2)
    point = folder / "state" / "point"
    content = point.read_bytes()
    for damaged in (b"", content[:-1], content[:80], content[:-1] + bytes([content[-1] ^ 1])):
        point.write_bytes(damaged)
        with pytest.raises(TrainingError, match=r"state/point: damaged"):
            begin(folder, resume=True).__enter__()


def test_torch_is_left_as_it_was(folder: Path) -> None:
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with begin(folder):
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


def test_settings_are_those_that_the_training_was_given(folder: Path) -> None:
    with begin(folder, patience=4):
        pass
    reported = json.loads((folder / "settings.json").read_text())
    assert reported["patience"] == 4
    assert reported["card"] == json.loads(card().to_json())


# Progress


def test_plain_lines_off_a_terminal(folder: Path, out: io.StringIO) -> None:
    with begin(folder, progress=TrainingProgress(out)) as run:
        list(evaluated(run, [3.0, 2.5, 2.75]))
    assert out.getvalue().splitlines() == [
        "training 0/3: validation 3",
        "training 1/3: validation 2.5",
        "training 2/3: validation 2.75, best 2.5",
    ]


def test_bar_with_the_last_evaluation_on_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    terminal = Terminal()
    with begin(folder, progress=TrainingProgress(terminal)) as run:
        list(run.rounds(1, "warm-up"))
        list(evaluated(run, [3.0, 2.5, 2.75]))
    text = terminal.getvalue()
    assert "warm-up" in text
    assert "3/3" in text
    assert "validation 2.75, best 2.5" in text
