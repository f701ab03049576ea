"""Learning curves of MARL's trainings: read from their figures, stored, and the same as in the documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policies.learned.marl.system import NAME, SINGLE
from policies.learned.training.run.figures import Figures
from policies.learned.training.systems import TEST_SEEDS
from simulator.papers.marl.reproduction import stored
from simulator.papers.marl.reproduction.contenders import ALONE, PAPERS
from simulator.papers.marl.reproduction.curves import CONVERGENCE, converged, curve_of, stored_curves
from simulator.papers.marl.reproduction.experiment import experiment
from simulator.reproducing.experiment import perform

PAGE = Path(__file__).parents[6] / "docs/policies/marl.md"


def trained(folder: Path, *figures: tuple[str, int, float]) -> Path:
    writer = Figures(folder / "events")
    for phase, done, figure in figures:
        writer.add(f"{phase}/validation", figure, done)
    writer.close()
    return folder


def test_a_curve_counts_the_rounds_of_both_phases(tmp_path: Path) -> None:
    folder = trained(tmp_path, ("imitation", 9, 11_000.4), ("imitation", 19, 10_900.0), ("training", 29, 10_500.0))
    assert curve_of(folder) == [(10, 11_000), (20, 10_900), (30, 10_500)]


def test_a_training_without_imitation_begins_before_its_first_round(tmp_path: Path) -> None:
    assert curve_of(trained(tmp_path, ("training", 0, 12_000.0), ("training", 9, 11_000.0))) == [
        (0, 12_000),
        (10, 11_000),
    ]


def test_trainings_that_are_there_replace_stored_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path / ALONE, ("training", 0, 12_000.0))
    monkeypatch.setattr(stored, "CURVES", tmp_path / "curves.json")
    stored.main(["--trained", str(tmp_path), "--curves"])
    written = json.loads((tmp_path / "curves.json").read_text())
    assert written[ALONE] == [[0, 12_000]]
    assert written[NAME] == stored_curves()[NAME]


def test_a_training_has_converged_when_it_is_within_one_percent_of_its_best() -> None:
    assert converged([(0, 1_200), (10, 1_011), (20, 1_010), (30, 1_000), (40, 1_200)]) == 20


def test_the_rounds_of_trainings_are_rows_without_an_interval() -> None:
    results = perform(experiment(quick=True).only(CONVERGENCE.name), TEST_SEEDS[:2], lambda _share: None)
    rows = {row["policy"]: row for row in results.rows()}
    assert set(rows) == set(stored_curves())
    assert rows[NAME]["value"] == 50.0 and rows[NAME]["ci95"] is None
    assert rows[SINGLE]["value"] == 10.0, "figure 10a has a row for the single agent"


def test_the_stored_curves_are_those_of_the_documents() -> None:
    page = PAGE.read_text()
    for name in (NAME, ALONE, PAPERS, SINGLE):
        shown = " | ".join(f"{figure:,}" for _, figure in stored_curves()[name][-6 if name == NAME else 0 :])
        assert shown in page.replace("**", ""), name
