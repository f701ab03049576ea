"""The experiment of SCHED2: its contenders run, and its figures of fragmentation and locality are those of the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from policies.learned.sched2.system import SYSTEM
from policies.learned.training.systems import VALIDATION_SEEDS
from simulator.errors import SettingError
from simulator.papers.sched2.baselines import BASELINES, CONTROLS
from simulator.papers.sched2.reproduction import contenders as names
from simulator.papers.sched2.reproduction import experiment as sched2
from simulator.papers.sched2.reproduction import measures, stored
from simulator.papers.sched2.reproduction.settings import CALIBRATED, GAPS_S, MIXES, settings
from simulator.reproducing.experiment import Kind, Setting, perform, policy
from simulator.reproducing.registry import reproduction_of
from simulator.results.fragmentation import Fragmentation
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.sched2 import Sched2, generate
from simulator.traces.trace import Trace
from tests.unit.simulator.commands import run


def short(seed: int) -> Trace:
    return generate(Sched2(seed=seed, jobs=60, mean_gap_s=5.0))


def shortened(setting: Setting) -> Setting:
    return replace(setting, trace=short)


def test_every_contender_has_every_figure_of_the_paper() -> None:
    whole = sched2.experiment().only(CALIBRATED)
    found = perform(
        replace(whole, settings=tuple(map(shortened, whole.settings))), (1000, 1001), lambda _share: None, processes=1
    )
    (setting,) = (each.name for each in whole.settings)
    assert {each.name for each in whole.contenders[setting]} >= {
        names.PAPERS, names.FEATURES, names.START, names.OURS, names.WIDEST, names.UNIFORM,
        *names.baselines(names.FIRST_TEN), *names.baselines(names.WHOLE_QUEUE), *names.controls(names.FIRST_TEN),
    }  # fmt: skip
    for each in whole.contenders[setting]:
        if each.kind is Kind.BOUND:
            continue
        for metric in {*measures.PERFORMANCE, *measures.BEHAVIOUR} - {"wait_ratio"}:
            assert len(found.values(setting, each.name, metric)) == 2, (each.name, metric)
        waits = found.values(
            setting, each.name, "wait_insensitive_s"
        )  # where none waits, there is no ratio to their wait
        assert len(found.values(setting, each.name, "wait_ratio")) == sum(wait > 0 for wait in waits)
    assert len(found.findings()) == len(whole.claims)
    assert len(sched2.pictures(found)) == 2


def longer(seed: int) -> Trace:
    return generate(Sched2(seed=seed, jobs=250, mean_gap_s=100.0))


@pytest.mark.parametrize("name", [names.PAPERS, names.FEATURES, names.START, names.OURS, names.WIDEST])
def test_agents_do_in_their_environment_what_their_policies_do(name: str) -> None:
    whole = sched2.experiment().only(CALIBRATED)
    setting = replace(whole.settings[0], trace=longer)
    measured = whole.measures
    (agent,) = (each for each in whole.contenders[setting.name] if each.name == name)
    served = policy(name, Kind.OURS, measures=measured, record=True)
    assert agent.run(setting, 1000, None).figures == pytest.approx(served.run(setting, 1000, None).figures, rel=1e-6)


def test_every_mix_and_every_gap_has_claims() -> None:
    whole = sched2.experiment()
    assert {claim.setting for claim in whole.claims} == {setting.name for setting in whole.settings}
    assert len(whole.settings) == len(GAPS_S) + len(MIXES)
    shares = [
        [float((setting.trace(seed).num_gpus == 1).mean()) for seed in range(3)]
        for setting in whole.only("on one GPU").settings
    ]
    assert [sum(each) / 3 for each in shares] == pytest.approx([0.60, 0.75], abs=0.02)


def test_growth_of_fragmentation_is_that_between_the_halves_of_the_arrivals() -> None:
    result = run([(0, 1, 40), (0, 2, 30), (5, 1, 90), (60, 4, 10), (80, 2, 10)], "2x4", "sched2-fifo")
    assert result.spans is not None
    end = int(result.submit_ns.max())
    first, second = Fragmentation.of(result.spans, result.node_gpus, 0, end, 2).bins
    assert first > 0
    assert measures.fragmentation_growth(result) == pytest.approx(second / first - 1)


def test_three_of_six_models_are_sensitive() -> None:
    assert measures.sensitive(paper_profiles("sched2")) == {"alexnet", "transformer", "vgg16"}


QUICK_TO_RUN = (names.OURS, names.WIDEST, "sif, first ten", "delay, whole queue", "srtf", "lower bound")


@pytest.mark.parametrize("name", QUICK_TO_RUN)
def test_stored_runs_are_those_of_this_version(name: str) -> None:
    seed = stored.SEEDS[7]
    (where,) = sched2.experiment().only(CALIBRATED).settings
    (contender,) = (each for each in sched2.experiment().contenders[CALIBRATED] if each.name == name)
    found = contender.run(where, seed, None).figures
    saved = stored.RUNS.of(contender).run(where, seed, None).figures
    assert saved == pytest.approx({metric: found[metric] for metric in saved}, rel=1e-3, abs=1e-4)


def test_runs_of_all_seeds_are_stored_for_all_that_the_claims_compare() -> None:
    whole, quick = sched2.experiment(), sched2.experiment(quick=True)
    assert CALIBRATED in {each.name for each in quick.settings}
    claims = [claim for claim in whole.claims if claim.setting in quick.contenders]
    assert {claim.name for claim in quick.claims} == {claim.name for claim in claims}
    for setting in quick.settings:
        runs = stored.RUNS.read()[setting.name]
        assert set(runs) == {each.name for each in whole.contenders[setting.name]}
        assert all(len(values) == len(stored.SEEDS) == 30 for of in runs.values() for values in of.values())
    assert reproduction_of("sched2").quick_seeds == 30


def test_stored_runs_have_no_samples_over_time_and_so_no_figure_9() -> None:
    results = perform(sched2.experiment(quick=True).only(CALIBRATED), stored.SEEDS, lambda _share: None, 1)
    assert sched2.pictures(results) == []


def test_stored_runs_are_of_test_seeds_and_of_the_papers_profiles() -> None:
    assert not {*stored.SEEDS} & {*VALIDATION_SEEDS, *SYSTEM.setup(SYSTEM.recipe()).training_seeds[:100]}
    with pytest.raises(SettingError, match="give --seeds 30"):
        perform(sched2.experiment(quick=True).only(CALIBRATED), [999], lambda _share: None, 1)
    with pytest.raises(SettingError, match="leave out --quick"):
        sched2.experiment(paper_profiles("sched2"), quick=True)


def test_storing_runs_what_is_asked_for_and_keeps_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "runs.json"
    file.write_text('{"gap 224 s": {"other": {"avg_jct_s": [1.0]}}}')
    monkeypatch.setattr(stored, "RUNS", replace(stored.RUNS, file=file, seeds=stored.SEEDS[:1]))
    monkeypatch.setattr(stored, "settings", lambda profiles: [shortened(each) for each in settings(profiles)])
    stored.main(["--only", "fifo", "--settings", "gap 224 s", CALIBRATED])
    found = json.loads(file.read_text())
    assert {setting: set(of) for setting, of in found.items()} == {"gap 224 s": {"other", "fifo"}, CALIBRATED: {"fifo"}}
    assert {"reused", "effectiveness"} <= set(found[CALIBRATED]["fifo"])
    assert "reused" not in found["gap 224 s"]["fifo"]
    mixes = [f"{CALIBRATED}, {share:.0%} on one GPU" for share in MIXES]
    every = settings(paper_profiles("sched2"))
    assert [each.name for each in stored.chosen(every, ["on one GPU"])] == mixes
    assert [each.name for each in stored.chosen(every, ["on one GPU", CALIBRATED])] == [CALIBRATED, *mixes]
    with pytest.raises(SettingError, match=r"no setting has 'gap 1 s' in its name; the names: gap 103 s; "):
        stored.chosen(every, ["gap 1 s"])


_DOCS = Path(__file__).parents[6] / "docs" / "policies" / "sched2.md"
_SECONDS, _NUMBER, _RATIO, _SHARE = "{:,.0f} ± {:,.0f}", "{:.3f} ± {:.3f}", "{:.2f} ± {:.2f}", "{:.1f} ± {:.1f} %"
_PERFORMANCE = (
    ("avg_jct_s", _SECONDS, 1), ("effectiveness", _NUMBER, 1), ("makespan_s", _SECONDS, 1), ("avg_wait_s", _SECONDS, 1),
    ("avg_service_s", _SECONDS, 1), ("fragmentation", _NUMBER, 1),
)  # fmt: skip
_BEHAVIOUR = (
    ("fragmentation", _NUMBER, 1), ("fragmentation_growth", "{:.0f} ± {:.0f} %", 100), ("relaxed_sensitive", _SHARE, 100),
    ("relaxed_insensitive", _SHARE, 100), ("relaxed_difference", _SHARE, 100), ("wait_sensitive_s", _SECONDS, 1),
    ("wait_insensitive_s", _SECONDS, 1), ("wait_ratio", _RATIO, 1), ("reused", _SHARE, 100),
)  # fmt: skip
"""The columns of the documents' tables: metric, format, and the unit in which it is shown."""
_TABLES = (
    ("**First ten**", names.FIRST_TEN, _PERFORMANCE),
    ("**Whole queue**", names.WHOLE_QUEUE, _PERFORMANCE),
    ("near the paper's is no evidence.", names.FIRST_TEN, _BEHAVIOUR),
)


def rows_of_the_documents(begin: str) -> list[list[str]]:
    """Return the rows about this version's contenders in the first table after that text."""
    after = _DOCS.read_text(encoding="utf-8").partition(begin)[2].lstrip("\n").partition("\n\n")[0]
    rows = [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in after.splitlines()[2:]]
    return [row for row in rows if not row[0].startswith("the paper's")]


def in_the_experiment(name: str, reading: str) -> str:
    """Return the contender that the documents call so."""
    short = name.removeprefix("sched2-").lower()
    return names.rule_name(short, reading) if short in (*BASELINES, *CONTROLS) else name


@pytest.mark.parametrize(("begin", "reading", "columns"), _TABLES)
def test_the_tables_of_the_documents_show_the_stored_runs(
    begin: str, reading: str, columns: tuple[tuple[str, str, int], ...]
) -> None:
    results = perform(sched2.experiment(quick=True).only(CALIBRATED), stored.SEEDS, lambda _share: None, 1)
    rows = rows_of_the_documents(begin)
    assert len(rows) >= 12
    for name, *cells in rows:
        for cell, (metric, form, unit) in zip(cells, columns, strict=True):
            mean = results.mean(CALIBRATED, in_the_experiment(name, reading), metric)
            assert mean is not None and mean.ci95 is not None
            assert cell == form.format(unit * mean.mean, unit * mean.ci95).replace("-0.0 ", "0.0 "), (name, metric)
