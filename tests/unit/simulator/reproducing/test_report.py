"""Reports of experiments, and the command that makes them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from simulator.papers.contention_rl.contenders import samples
from simulator.reproducing import registry, report
from simulator.reproducing.experiment import METRICS, Experiment, ExperimentResults, Kind, MoreFigures, perform, policy
from simulator.reproducing.pictures import Picture, cdf, density, lines, scatter, shares, svg
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from tests.unit.simulator.cli.test_bench import call
from tests.unit.simulator.reproducing.test_experiment import claim, setting

PICTURES = (
    cdf("a cdf", "small", "jct_s", "hours", 3600.0),
    shares("shares", "small", "sensitivity", "ideal / observed", (1.0, 1.1, 1.5)),
    density("a density", "small", "utilization", "occupied"),
    scatter("dots", "small", "utilization", "avg_jct_s", ("occupied", "JCT"), 3600.0),
    lines("lines", {1.0: "small"}, "avg_jct_s", ("load", "JCT")),
)


def experiment(_profiles: ModelProfiles | None = None, *, quick: bool = False) -> Experiment:
    """`quick` leaves one contender out."""
    names = ("fifo", "fewest-gpus") if quick else ("fifo", "fewest-gpus", "las")
    return Experiment(
        name="toy",
        says="a <toy>",
        settings=(setting(),),
        contenders={"small": tuple(policy(name, Kind.BASELINE, samples) for name in names)},
        metrics=("avg_jct_s", "utilization"),
        more_tables=(MoreFigures("small", "more of <it>", ("makespan_s",)),),
        claims=(claim(against=("fifo",)), claim(name="twice as good", against=("fifo",), factor=True, goal=2.0)),
        notes=("Look & see.",),
    )


def pictures(_results: ExperimentResults) -> tuple[Picture, ...]:
    return PICTURES


@pytest.fixture(scope="module")
def results() -> ExperimentResults:
    return perform(experiment(), range(1000, 1002), lambda _share: None)


def test_json_output_is_one_object(results: ExperimentResults) -> None:
    found = json.loads(report.as_json(results))
    assert found["system"] == "toy" and found["seeds"] == [1000, 1001]
    assert {frozenset(row) for row in found["table"]} == {frozenset({"policy", "setting", "metric", "value", "ci95"})}
    assert len(found["table"]) == 3 * len(METRICS)
    first = found["claims"][0]
    assert first["paper"] == -0.1 and first["holds"] is True and isinstance(first["ci95"], float)


def test_text_output_has_tables(results: ExperimentResults, capsys: pytest.CaptureFixture[str]) -> None:
    report.print_results(results)
    lines = capsys.readouterr().out.splitlines()
    order = [line.split()[0] for line in lines if line.split() and line.split()[0] in {"fifo", "fewest-gpus", "las"}]
    names = sorted(set(order))
    assert order == [
        name
        for metric in ("avg_jct_s", "makespan_s")
        for name in sorted(names, key=lambda name: sum(results.values("small", name, metric)))
    ]
    assert "small: more of <it>" in [line.strip() for line in lines]
    (twice,) = (line for line in lines if "twice as good" in line)
    assert "2.00x" in twice and twice.rstrip().endswith("no")


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.title)
def test_a_picture_is_an_element_that_stands_alone(picture: Picture, results: ExperimentResults) -> None:
    root = ElementTree.fromstring(svg(picture, results))
    assert root.tag.endswith("svg") and len(list(root.iter())) > 30


def test_the_page_needs_no_network(results: ExperimentResults, tmp_path: Path) -> None:
    report.write_page(tmp_path / "page.html", results, PICTURES, "headway-sim reproduce toy")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == len(PICTURES)
    assert "a &lt;toy&gt;" in page and "more of &lt;it&gt;" in page and "Look &amp; see." in page
    assert "src=" not in page and "<script" not in page and "@import" not in page


def test_a_system_is_listed_and_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(registry.REPRODUCTIONS, "toy", registry.Reproduction("a toy", __name__))
    assert call(monkeypatch, "reproduce") == 0
    assert "toy: a toy\n" in capsys.readouterr().out
    assert call(monkeypatch, "reproduce", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {name: each.says for name, each in registry.REPRODUCTIONS.items()}
    out = tmp_path / "made"
    assert call(monkeypatch, "reproduce", "toy", "--quick", "--json", "--out", str(out)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {row["policy"] for row in printed["table"]} == {"fifo", "fewest-gpus"}
    assert len(printed["seeds"]) == registry.QUICK_SEEDS == 3
    assert json.loads((out / registry.JSON).read_text())["table"] == printed["table"]
    assert call(monkeypatch, "reproduce", "toy", "--only", "none-such") == 2
    assert "toy has no setting with 'none-such' in its name" in capsys.readouterr().err
    assert "<svg" in (out / registry.PAGE).read_text()


def test_the_help_names_the_seeds_of_each_system(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "reproduce", "--help") == 0
    said = " ".join(capsys.readouterr().out.split()).replace("- ", "-")  # names are also broken at their hyphens
    usual, _, quick = said.partition("[default: (")[2].partition(")")[0].partition("; with --quick ")
    for text, counts in (
        (usual, {name: each.default_seeds for name, each in registry.REPRODUCTIONS.items()}),
        (quick, {name: each.quick_seeds for name, each in registry.REPRODUCTIONS.items()}),
    ):
        pairs = (part.split(" of ") for part in text.split(", "))
        assert {name: int(count) for count, names in pairs for name in names.split(" and ")} == counts


def test_unknown_names_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(registry.REPRODUCTIONS, "toy", registry.Reproduction("a toy", __name__))
    assert call(monkeypatch, "reproduce", "none-such") == 2
    assert "there is no system 'none-such' to reproduce; take one of " in capsys.readouterr().err
    assert call(monkeypatch, "reproduce", "toy", "--profiles", "/none/such.json") == 2
    assert "/none/such.json" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(registry.REPRODUCTIONS))
@pytest.mark.parametrize("quick", [True, False])
def test_shipped_experiments_hold_together(name: str, quick: bool) -> None:
    """Claims name existing settings, metrics and contenders; those with quick are among the others."""
    whole = registry.REPRODUCTIONS[name].experiment(None, quick=False)
    found = registry.REPRODUCTIONS[name].experiment(None, quick=quick)
    there = {setting.name: {each.name for each in found.contenders[setting.name]} for setting in found.settings}
    assert there.keys() == found.contenders.keys()
    assert there.keys() <= {setting.name for setting in whole.settings}
    assert set(found.metrics) <= set(found.measures)
    assert {each.setting for each in found.more_tables} <= there.keys()
    assert {metric for each in found.more_tables for metric in each.metrics} <= set(found.measures)
    for each in found.claims:
        assert {each.ours, *each.against} <= there[each.setting], each.name
        assert each.metric in found.measures
    assert len({each.name for each in found.claims}) == len(found.claims)
