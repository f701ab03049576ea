"""The paper's claims (section IV), and others beside them. A claim holds if its whole 95 % interval reaches the goal.

The paper compares its agent with the best of its six baselines. The same is asked of every agent in its place.
"""

from __future__ import annotations

from simulator.papers.sched2.reproduction import contenders as names
from simulator.papers.sched2.reproduction.contenders import (
    AGENTS,
    FEATURES,
    FIRST_TEN,
    OURS,
    PAPERS,
    UNIFORM,
    WHOLE_QUEUE,
    WIDEST,
)
from simulator.reproducing.experiment import Claim

_PAPER = {
    "avg_jct_s": 4.6,
    "effectiveness": 1.6,
    "makespan_s": 2.1,
    "avg_wait_s": 19_075 / 557,
    "avg_service_s": 8427 / 5422,
}
"""Factors over the best of the paper's baselines (sections IV-B and IV-C; figure 10 does not say which baseline)."""
_OF_MIX = {0.60: 1.64, 0.68: 1.6, 0.75: 1.09}
"""Factors of effectiveness, by the share of jobs on one GPU (figure 7)."""
_RELAXED, _WAITS = 0.154 - 0.325, 1466 / 741
"""Table III: share of jobs without the best locality, sensitive less insensitive, and the ratio of their waits."""
_REUSED = 0.5 / 0.2
_FIRST_TEN = {"avg_jct_s": 3.0, "effectiveness": 2.2, "makespan_s": 1.5}
_WHOLE_QUEUE = {"avg_jct_s": 1.4, "effectiveness": 1.1, "makespan_s": 1.4}
_TO_CONTROLS = -0.03
_LEARNED = (PAPERS, FEATURES, OURS)


def at_calibrated_gap(setting: str) -> list[Claim]:
    """Return the claims of sections IV-B and IV-C."""
    found = [
        _factor(setting, FIRST_TEN, metric, ours, _goal(ours, metric), paper=paper)
        for ours in _LEARNED
        for metric, paper in _PAPER.items()
    ]
    found += [_against(setting, ours, (UNIFORM,), UNIFORM, 0.0) for ours in (PAPERS, FEATURES)]
    found += _to_controls(setting)
    found += [
        _factor(setting, FIRST_TEN, "avg_jct_s", "spf-local, first ten", _FIRST_TEN["avg_jct_s"]),
        _against(setting, OURS, (names.START,), "the rule that the search began with", 0.0),
    ]
    for ours in _LEARNED:
        found += [
            _against(setting, ours, names.baselines(FIRST_TEN), "the best baseline", 0.0, "fragmentation"),
            _figure(setting, ours, "relaxed_difference", "less often relaxed for sensitive jobs", _RELAXED, 0.0),
            _figure(setting, ours, "wait_ratio", "sensitive jobs wait longer", _WAITS, 1.0, factor=True),
            _factor(setting, FIRST_TEN, "reused", ours, 1.0, paper=_REUSED),
        ]
    return found


def of_mix(setting: str, share: float) -> list[Claim]:
    """Return the claims about the mix with that share of jobs on one GPU (figure 7)."""
    paper = _OF_MIX[share]
    found = [_factor(setting, FIRST_TEN, "effectiveness", ours, 1.0, paper=paper) for ours in _LEARNED]
    found += [
        _factor(setting, FIRST_TEN, metric, ours, 1.0) for ours in _LEARNED for metric in ("avg_jct_s", "makespan_s")
    ]
    return [*found, *_to_controls(setting)]


def of_gap(setting: str, *, overload: bool) -> list[Claim]:
    """Return the claims about one mean gap (figure 8: the paper's agent is the best at every interval).

    `overload`: where baselines that choose from the whole queue wait too, with goals of its own for the rule that does so.
    """
    found = [_factor(setting, FIRST_TEN, "effectiveness", ours, 1.0) for ours in _LEARNED]
    found += [_factor(setting, FIRST_TEN, "avg_jct_s", ours, 1.0) for ours in _LEARNED]
    goals = _WHOLE_QUEUE if overload else {"avg_jct_s": 1.0}
    found += [_factor(setting, WHOLE_QUEUE, metric, WIDEST, goal) for metric, goal in goals.items()]
    return [*found, *_to_controls(setting)]


def _goal(ours: str, metric: str) -> float:
    """Return the factor to be reached: for the rule the goal of the reproduction, for agents to be better at all."""
    return _FIRST_TEN.get(metric, 1.0) if ours == OURS else 1.0


def _factor(setting: str, reading: str, metric: str, ours: str, goal: float, *, paper: float | None = None) -> Claim:
    """Return the claim to be so many times as good as the best baseline of that reading."""
    return Claim(
        name=f"{ours}: times as good as the best baseline by {metric}, {reading}, {setting}",
        setting=setting,
        metric=metric,
        ours=ours,
        against=names.baselines(reading),
        paper=paper,
        goal=goal,
        factor=True,
    )


def _to_controls(setting: str) -> list[Claim]:
    """Return the claims to be better than the controls that consider locality, and than those that only place jobs well."""
    found = [
        _against(
            setting, ours, names.controls(reading), f"the controls that consider locality, {reading}", _TO_CONTROLS
        )
        for reading, ours in AGENTS.items()
    ]
    return [
        *found,
        *(_against(setting, ours, names.OTHERS, "the controls that place by best fit", 0.0) for ours in (OURS, WIDEST)),
        _against(setting, WIDEST, names.STOPPING, "the controls that stop jobs", 0.0),
    ]


def _against(
    setting: str, ours: str, against: tuple[str, ...], what: str, goal: float, metric: str = "avg_jct_s"
) -> Claim:
    return Claim(
        name=f"{ours}: {metric} against {what}, {setting}",
        setting=setting,
        metric=metric,
        ours=ours,
        against=against,
        paper=None,
        goal=goal,
    )


def _figure(
    setting: str, ours: str, metric: str, what: str, paper: float, goal: float, *, factor: bool = False
) -> Claim:
    return Claim(
        name=f"{ours}: {what} ({metric}), {setting}",
        setting=setting,
        metric=metric,
        ours=ours,
        against=(),
        paper=paper,
        goal=goal,
        factor=factor,
    )
