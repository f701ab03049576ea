"""The tables of docs/policies/sched2.md about mixes and intervals show the stored runs, and the findings of the claims."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from policies.learned.evaluation.statistics import Mean, change
from simulator.papers.sched2.reproduction import experiment as sched2
from simulator.papers.sched2.reproduction import stored
from simulator.papers.sched2.reproduction.contenders import (
    AGENTS,
    FEATURES,
    FIRST_TEN,
    OTHERS,
    OURS,
    PAPERS,
    READINGS,
    WHOLE_QUEUE,
    WIDEST,
    baselines,
    controls,
)
from simulator.papers.sched2.reproduction.settings import CALIBRATED_GAP_S, GAPS_S, MIXES, name_of
from simulator.reproducing.experiment import ClaimFinding, ExperimentResults, perform

_DOCS = Path(__file__).parents[6] / "docs" / "policies" / "sched2.md"
_JCT, _EFFECTIVENESS, _MAKESPAN = "avg_jct_s", "effectiveness", "makespan_s"
_LEARNED = (PAPERS, FEATURES, OURS)
_PAPERS_OWN = 0.68


@cache
def results() -> ExperimentResults:
    return perform(sched2.experiment(quick=True), stored.SEEDS, lambda _share: None, 1)


@cache
def findings() -> dict[str, ClaimFinding]:
    return {each.claim.name: each for each in results().findings()}


def rows(head: str) -> list[list[str]]:
    """Return the cells of the table whose head begins so."""
    _, found, after = _DOCS.read_text(encoding="utf-8").partition(f"\n{head}")
    assert found, f"there is no table {head}"
    lines = after.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def best(setting: str, names: tuple[str, ...], metric: str = _JCT) -> tuple[str, float]:
    """Return the contender with the best mean among these, and that mean."""
    means = {}
    for name in names:
        found = results().mean(setting, name, metric)
        assert found is not None
        means[name] = found.mean
    name = (max if metric == _EFFECTIVENESS else min)(means, key=lambda each: means[each])
    return name, means[name]


def times(setting: str, ours: str, metric: str) -> str:
    """Return how many times as good as the best baseline that agent is, with the first ten."""
    against = best(setting, baselines(FIRST_TEN), metric)[0]
    pairs = zip(results().values(setting, ours, metric), results().values(setting, against, metric), strict=True)
    found = Mean.of([mine / other if metric == _EFFECTIVENESS else other / mine for mine, other in pairs])
    return f"{found.mean:.2f} ± {found.ci95:.2f}"


def percent(found: Mean) -> str:
    assert found.ci95 is not None
    return f"{100 * found.mean:+.1f} % ± {100 * found.ci95:.1f}"


def to_control(setting: str, reading: str) -> str:
    """Return the change of JCT of the rule with that reading to the better of the two controls."""
    ours = AGENTS[reading]
    name = f"{ours}: avg_jct_s against the controls that consider locality, {reading}, {setting}"
    assert findings()[name].against == best(setting, controls(reading))[0]
    return percent(findings()[name].ours)


def to_best_fit(setting: str) -> str:
    """Return the change of JCT of the rule with the whole queue to the best control that places by best fit, and that one."""
    name = best(setting, OTHERS)[0]
    found = change(results().values(setting, WIDEST, _JCT), results().values(setting, name, _JCT))
    return f"{percent(found)}, `{name}`"


def test_mixes() -> None:
    shares = sorted((_PAPERS_OWN, *MIXES))
    shown = rows("| one-GPU jobs |")
    assert [row[0] for row in shown] == [f"{share:.0%}".replace("%", " %") for share in shares]
    for share, (_, paper, *cells) in zip(shares, shown, strict=True):
        setting = name_of(CALIBRATED_GAP_S, share)
        metrics = (_EFFECTIVENESS, _JCT, _MAKESPAN)
        name = f"{PAPERS}: times as good as the best baseline by {_EFFECTIVENESS}, {FIRST_TEN}, {setting}"
        assert f"{findings()[name].claim.paper:.2f}" == paper
        assert cells == [
            *(" / ".join(times(setting, ours, metric) for metric in metrics) for ours in _LEARNED),
            *(to_control(setting, reading) for reading in READINGS),
        ]


def test_intervals() -> None:
    shown = rows("| gap, load | best of the six, JCT |")
    assert [row[0].partition(" s, ")[0] for row in shown] == [f"{gap:g}" for gap in GAPS_S]
    for gap, (_, *cells) in zip(GAPS_S, shown, strict=True):
        setting = name_of(gap)
        assert cells == [
            f"{best(setting, baselines(FIRST_TEN))[1]:,.0f} s",
            *(" / ".join(times(setting, ours, metric) for metric in (_EFFECTIVENESS, _JCT)) for ours in _LEARNED),
            *(to_control(setting, reading) for reading in READINGS),
            to_best_fit(setting),
        ]


def test_average_jct_by_interval() -> None:
    shown = rows("| gap, load | first ten: best of the six |")
    assert [row[0].partition(" s, ")[0] for row in shown] == [f"{gap:g}" for gap in GAPS_S]
    for gap, (_, *cells) in zip(GAPS_S, shown, strict=True):
        expected = []
        for reading in (FIRST_TEN, WHOLE_QUEUE):
            setting = name_of(gap)
            six, control = best(setting, baselines(reading))[1], best(setting, controls(reading))[1]
            ours = best(setting, (AGENTS[reading],))[1]
            expected += [f"{six:,.0f}", f"{control:,.0f} ({six / control:.2f})", f"{ours:,.0f} ({six / ours:.2f})"]
        assert cells == expected
