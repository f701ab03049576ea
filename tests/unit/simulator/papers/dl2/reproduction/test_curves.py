"""Learning curves of trainings: read from their figures, and stored line by line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policies.learned.training.run.figures import Figures
from simulator.papers.dl2.reproduction import training_times
from simulator.papers.dl2.reproduction.curves import curve_of
from simulator.reproducing.learning_curves import as_text


def test_a_curve_counts_the_gradient_steps_of_both_phases(tmp_path: Path) -> None:
    recipe = {"supervised_updates": 400}
    (tmp_path / "settings.json").write_text(json.dumps({"card": {"recipe": recipe}}))
    figures = Figures(tmp_path / "events")
    for done, hours in enumerate((6.0, 5.0)):
        figures.add("supervised/validation", hours * 3600, done)
    figures.add("training/updates", 100, 2)
    figures.add("training/updates", 50, 3)
    figures.add("training/validation", 4.5 * 3600, 3)
    figures.close()
    assert curve_of(tmp_path) == [(400, 6.0), (800, 5.0), (950, 4.5)]


def test_a_training_without_a_supervised_phase_begins_with_its_first_round(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"card": {"recipe": {"supervised_updates": 400}}}))
    figures = Figures(tmp_path / "events")
    figures.add("training/updates", 100, 0)
    figures.add("training/validation", 7200.0, 0)
    figures.close()
    assert curve_of(tmp_path) == [(100, 2.0)]


def test_the_times_of_a_training_are_the_cpu_seconds_of_its_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = Figures(tmp_path / "events")
    figures.add("supervised/cpu_s", 5.0, 0)
    figures.add("training/cpu_s", 2.0, 1)
    figures.add("training/cpu_s", 2.5, 2)
    figures.close()
    found = training_times.times_of(tmp_path)
    assert found == {"cpu_s": 9.5, "supervised": 1, "training": 2}
    file = tmp_path / "times.json"
    file.write_text('{"other": {"cpu_s": 1.0}}')
    monkeypatch.setattr(training_times, "_FILE", file)
    training_times.stored_times.cache_clear()
    training_times.store({"this": found, "one without times": {}})
    training_times.stored_times.cache_clear()
    assert json.loads(file.read_text()) == {"other": {"cpu_s": 1.0}, "this": found}


def test_a_training_that_recorded_no_times_has_none(tmp_path: Path) -> None:
    figures = Figures(tmp_path / "events")
    figures.add("training/validation", 1.0, 0)
    figures.close()
    assert training_times.times_of(tmp_path) == {}


def test_the_file_has_one_line_for_each_training() -> None:
    text = as_text({"one": [(1, 2.0)], "two": [(3, 4.5), (5, 4.0)]})
    assert text.count("\n") == 4
    assert json.loads(text) == {"one": [[1, 2.0]], "two": [[3, 4.5], [5, 4.0]]}
