"""MARL's experiment: claims about its contenders, settings as in the figures of the paper, and stored runs that fit them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from policies.learned.evaluation.statistics import Mean
from policies.learned.marl.system import SINGLE, SYSTEM, is_shipped
from policies.learned.training.recipes import recipe_of
from policies.learned.training.systems import TEST_SEEDS, VALIDATION_SEEDS
from policies.learned.weights.card import ModelCard
from policies.learned.weights.weights import pretrained
from simulator.errors import SettingError
from simulator.papers.marl.interference_fit.models import MODELS
from simulator.papers.marl.reproduction import large, settings, stored
from simulator.papers.marl.reproduction.contenders import (
    BASELINES,
    BOUND,
    CONTENTION_GREEDY,
    CONTROLS,
    OF_MIXED,
    OURS,
    TRAININGS,
    with_schedulers,
)
from simulator.papers.marl.reproduction.curves import CONVERGENCE
from simulator.papers.marl.reproduction.experiment import experiment, pictures
from simulator.papers.marl.reproduction.fits import AGAIN, FITS
from simulator.papers.marl.reproduction.settings import (
    BUSY,
    COUNTS,
    CROWDED,
    DAILY,
    JCT,
    LARGE_SERVERS,
    MIXED,
    SCHEDULERS,
    SLOWDOWN_ERROR,
    TIME_ERROR,
    TRAINED,
    TWO_SIZES,
    UNIFORM,
)
from simulator.papers.marl.rules.named import RULES
from simulator.reproducing.experiment import Experiment, Setting, perform
from simulator.reproducing.pictures import svg
from simulator.reproducing.registry import reproduction_of
from simulator.slowdown.profiles.papers import paper_profiles

PAGE = Path(__file__).parents[6] / "docs/policies/marl.md"
SMALL = settings.setting(DAILY.name, "few jobs", k=4, intervals=1, jobs_per_interval=20.0)


def small() -> Experiment:
    """Return the experiment with a few jobs on 16 servers."""
    return replace(experiment().only(DAILY.name), settings=(SMALL,))


def test_claims_are_about_contenders_of_their_setting() -> None:
    for whole in (experiment(), experiment(quick=True)):
        for setting in whole.settings:
            names = {each.name for each in whole.contenders[setting.name]}
            assert setting.metrics or setting.name == SCHEDULERS.name or names >= {*BASELINES, *CONTROLS, BOUND}
            claims = [claim for claim in whole.claims if claim.setting == setting.name]
            assert all({claim.ours, *claim.against} <= names and claim.metric in whole.measures for claim in claims)
        assert len({claim.name for claim in whole.claims}) == len(whole.claims)
    assert is_shipped() and {claim.setting for claim in whole.claims} == {each.name for each in whole.settings}
    assert reproduction_of("marl").experiment(None, quick=True).name == "marl"


def test_figure_10_has_an_agent_that_was_trained_as_the_only_one() -> None:
    for whole in (experiment(), experiment(quick=True)):
        there = {setting for setting, of in whole.contenders.items() if SINGLE in {each.name for each in of}}
        assert there == {*(each.name for each in (DAILY, UNIFORM, BUSY, TRAINED, CROWDED)), CONVERGENCE.name}
        compared = {claim.setting for claim in whole.claims if SINGLE in claim.against and claim.ours == OURS}
        assert compared == there
    card = ModelCard.from_json((pretrained() / f"{SINGLE}.json").read_text(encoding="utf-8"), SINGLE)
    assert card.recipe["single"] is True


def test_the_agent_of_mixed_servers_acts_where_servers_differ() -> None:
    for whole in (experiment(), experiment(quick=True)):
        there = {setting for setting, of in whole.contenders.items() if OF_MIXED in {each.name for each in of}}
        assert there == {each.name for each in (DAILY, BUSY, LARGE_SERVERS, TWO_SIZES, MIXED, TRAINED, CROWDED)}


def stored_mean(setting: Setting, contender: str) -> str:
    """Return the stored average JCT as the page writes it."""
    mean = Mean.of(stored.RUNS.read()[setting.name][contender][JCT])
    return f"{mean.mean:,.0f} ± {mean.ci95:,.0f}"


def table_below(title: str) -> list[list[str]]:
    """Return the cells of the page's first table below a title, without its two lines of head."""
    table = PAGE.read_text(encoding="utf-8").split(f"**{title}**", 1)[1].split("\n\n")[1]
    return [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


@pytest.mark.parametrize(
    ("setting", "title"),
    [
        (DAILY, "Daily arrivals"),
        (BUSY, "Twice the jobs"),
        (TRAINED, "16 servers"),
        (CROWDED, "Three times the jobs"),
    ],
)
def test_the_tables_of_the_page_have_the_stored_jcts(setting: Setting, title: str) -> None:
    names = [each.name for each in experiment(quick=True).contenders[setting.name]]
    assert {cells[0]: cells[1] for cells in table_below(title)} == {name: stored_mean(setting, name) for name in names}


def test_the_table_of_numbers_of_schedulers_has_the_stored_jcts() -> None:
    found = {cells[0]: cells[1:] for cells in table_below("Numbers of schedulers")}
    assert found == {
        name: [stored_mean(SCHEDULERS, with_schedulers(name, count)) for count in COUNTS]
        for name in (OURS, *BASELINES, CONTENTION_GREEDY)
    }


def test_numbers_of_schedulers_have_a_picture() -> None:
    results = perform(experiment(quick=True).only(SCHEDULERS.name), stored.SEEDS, lambda _share: None)
    (drawn,) = (each for each in pictures(results) if "Number of schedulers" in each.title)
    assert svg(drawn, results).startswith("<svg")
    assert len(results.findings()) == 3 * len(COUNTS) - 1


def test_numbers_of_schedulers_that_other_settings_have_too_give_their_jcts() -> None:
    of_number, busy = (stored.RUNS.read()[each.name] for each in (SCHEDULERS, BUSY))
    for name in (OURS, *BASELINES, CONTENTION_GREEDY):
        assert of_number[with_schedulers(name, 8)] == busy[name]
    assert of_number[with_schedulers(OURS, 1)] == busy["marl, one scheduler"]
    assert of_number[BOUND] == busy[BOUND]


def test_a_number_of_schedulers_is_that_of_its_row() -> None:
    few = replace(SCHEDULERS, options={**SCHEDULERS.options, "intervals": 1, "jobs_per_interval": 8.0})
    rows = {each.name: each for each in experiment().contenders[SCHEDULERS.name]}
    one = rows[with_schedulers("tetris", 1)].run(few, 1000, None).figures
    eight = rows[with_schedulers("tetris", 8)].run(few, 1000, None).figures
    assert one == settings.run_rule(RULES["tetris"](), few, 1000, single=True).figures
    assert eight == settings.run_rule(RULES["tetris"](), few, 1000).figures
    assert one != eight


def test_a_small_run_has_a_row_for_each_and_none_is_below_the_bound() -> None:
    results = perform(small(), TEST_SEEDS[:2], lambda _share: None)
    assert len(results.findings()) == len(small().claims)
    means = {name: results.mean(DAILY.name, name, JCT) for name in (OURS, *BASELINES, *CONTROLS, BOUND)}
    bound = means.pop(BOUND)
    assert bound is not None
    assert all(mean is not None and mean.mean >= bound.mean for mean in means.values())
    assert all(svg(each, results).startswith("<svg") for each in pictures(results))


def test_one_scheduler_has_the_same_jobs_as_several() -> None:
    one = settings.run_bound(settings.setting("one", "one scheduler", k=4, single=True), 1000)
    assert one.figures == settings.run_bound(TRAINED, 1000).figures


def test_stored_runs_are_those_of_all_contenders_and_seeds() -> None:
    runs = stored.RUNS.read()
    whole = experiment()
    with_jobs = [each for each in whole.settings if not each.metrics]
    assert set(runs) == {each.name for each in with_jobs}
    for setting in with_jobs:
        assert {each.name for each in whole.contenders[setting.name]} <= set(runs[setting.name])
        assert all(len(values) == len(stored.SEEDS) for of in runs[setting.name].values() for values in of.values())
    assert runs[DAILY.name] != runs[BUSY.name]
    with pytest.raises(SettingError, match="are stored for 10 seeds"):
        perform(experiment(quick=True).only(BUSY.name), [0], lambda _share: None)
    with pytest.raises(SettingError, match="leave out --quick"):
        experiment(paper_profiles("dl2"), quick=True)


def test_a_stored_run_is_what_its_contender_does() -> None:
    whole = experiment().only(TRAINED.name)
    for contender in whole.contenders[TRAINED.name]:
        if contender.name not in TRAININGS or is_shipped(contender.name):
            found = contender.run(whole.settings[0], TEST_SEEDS[0], None).figures
            saved = stored.RUNS.read()[TRAINED.name][contender.name]
            assert {name: values[0] for name, values in saved.items()} == pytest.approx(found, rel=1e-3)


def test_quick_runs_the_data_center_of_the_training_anew() -> None:
    anew = {each.name: each for each in experiment(quick=True).contenders[TRAINED.name]}
    unstored = TEST_SEEDS[len(stored.SEEDS)]
    for name in ("tetris", BOUND):
        assert anew[name].run(TRAINED, unstored, None).figures
    with pytest.raises(SettingError, match="are stored for 10 seeds"):
        anew[next(name for name in TRAININGS if not is_shipped(name))].run(TRAINED, unstored, None)


def test_the_fits_of_slowdowns_have_rows_and_claims() -> None:
    whole = experiment(quick=True).only(FITS.name)
    results = perform(whole, TEST_SEEDS[:2], lambda _share: None)
    rows = {(row["policy"], row["metric"]): row for row in results.rows()}
    assert {name for name, _ in rows} == {*MODELS, AGAIN} and {metric for _, metric in rows} == {
        SLOWDOWN_ERROR,
        TIME_ERROR,
    }
    assert all(0.0 < float(str(row["value"])) < 3.0 for row in rows.values())
    assert rows[AGAIN, TIME_ERROR]["ci95"] is None, "nothing is drawn"
    found = {finding.claim.name: finding for finding in results.findings()}
    assert found["error of the interference model"].claim.paper == 0.131
    assert found["error of the interference model against linear model"].claim.paper == pytest.approx(0.131 / 0.246 - 1)
    assert len(found) == 6


def test_storing_writes_the_rows_that_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "runs.json"
    monkeypatch.setattr(stored, "RUNS", replace(stored.RUNS, file=file, seeds=TEST_SEEDS[:1]))
    stored.main(["--only", "lb", "--settings", TRAINED.name])
    assert '"16 servers"' in file.read_text()


def test_commands_name_all_trainings(capsys: pytest.CaptureFixture[str]) -> None:
    stored.main(["--commands"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[6].removeprefix("trained/") for line in lines] == [OURS, *TRAININGS]


@pytest.mark.parametrize("name", TRAININGS)
def test_the_settings_of_a_training_are_fields_of_the_recipe(name: str) -> None:
    recipe_of(SYSTEM, TRAININGS[name], None)


def test_seeds_of_validation_and_tests_are_disjoint() -> None:
    assert not set(VALIDATION_SEEDS) & set(TEST_SEEDS)
    assert set(SYSTEM.setup(SYSTEM.recipe()).validation_seeds) == set(VALIDATION_SEEDS)


def test_the_time_of_decisions_on_other_data_centers() -> None:
    found = large.program(["--k", "6", "--intervals", "1", "--rules", "tetris"])
    assert json.dumps(found)
    assert found["data_center"].endswith("54 servers, 216 GPUs, 6 schedulers")
    assert found["decision_ms"]["count"] > found["job_ms"]["count"] == 8
    assert 0 < found["decision_ms"]["median"] <= found["job_ms"]["median"]
    assert found[JCT]["lower bound"]["mean"] <= min(found[JCT]["tetris"]["mean"], found[JCT][OURS]["mean"])
