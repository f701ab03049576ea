"""The paper's claims (section VI), and others beside them. A claim holds if its whole 95 % interval reaches the goal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policies.learned.marl.system import SINGLE
from simulator.papers.marl.interference_fit.models import (
    CONSTANT,
    INTERFERENCE,
    LINEAR,
    QUADRATIC,
    WITHOUT_CPU,
    WITHOUT_PCIE,
)
from simulator.papers.marl.reproduction.contenders import (
    ALWAYS,
    BASELINES,
    CONTENTION_GREEDY,
    INTERFERENCE_GREEDY,
    KUBERNETES,
    LB,
    LIF,
    LOOKAHEAD_GREEDY,
    NEVER,
    ONE,
    OURS,
    RANDOM,
    TETRIS,
    TRAININGS,
    with_schedulers,
)
from simulator.papers.marl.reproduction.curves import CONVERGENCE
from simulator.papers.marl.reproduction.fits import FITS
from simulator.papers.marl.reproduction.settings import (
    BUSY,
    COMPARED,
    COUNTS,
    CROWDED,
    DAILY,
    JCT,
    NETWORKS,
    POISSON,
    ROUNDS,
    SCHEDULERS,
    SERVERS,
    SLOWDOWN_ERROR,
    TESTBED,
    TRAINED,
    UNIFORM,
)
from simulator.reproducing.experiment import Claim

_BEST = "the best baseline of the paper"
_TO_CONTROLS = -0.03
"""Change against the best control; stated here, not in the paper."""
_PAPER = {
    **{each.name: -0.243 for each in (DAILY, UNIFORM, POISSON)},
    **{each.name: -0.22 for each in SERVERS},
    **{each.name: -0.21 for each in NETWORKS},
}
"""The paper's least improvement on all its baselines: figures 7, 8 and 9."""


_OF_FIGURE_11, _FIGURE_11 = (TETRIS, LB, LIF, KUBERNETES), -0.189
"""Schemes of figure 11, and the least improvement on them ("at least 18.9 %")."""
_ERROR = 0.131
"""Error of the paper's interference model (table III)."""
_ERRORS = {LINEAR: 0.246, QUADRATIC: 0.229, WITHOUT_PCIE: 0.275, WITHOUT_CPU: 0.363}


def claims() -> list[Claim]:
    """Return all claims."""
    found = []
    for where in COMPARED:
        paper = _PAPER.get(where.name)
        found.append(_claim(where.name, BASELINES, _BEST, paper, paper if paper is not None else 0.0))
        controls = (CONTENTION_GREEDY, INTERFERENCE_GREEDY)
        found.append(_claim(where.name, controls, "the better of the greedy controls", None, _TO_CONTROLS))
        found.append(_claim(where.name, (LOOKAHEAD_GREEDY,), "the rule that is imitated", None, 0.0))
        found.append(_claim(where.name, (RANDOM,), "uniform random", None, 0.0))
    for where, paper in ((DAILY, _PAPER[DAILY.name]), (CROWDED, None)):
        found += [_claim(where.name, (name,), name, paper, _PAPER[DAILY.name]) for name in BASELINES]
    found += [_claim(TESTBED.name, (name,), f"{name} (figure 11)", _FIGURE_11, _FIGURE_11) for name in _OF_FIGURE_11]
    for where in (DAILY, BUSY, CROWDED):
        found.append(_claim(where.name, (ONE,), "one scheduler (figure 10)", None, 0.0))
    for where in (DAILY, UNIFORM, BUSY, CROWDED):
        found.append(_claim(where.name, (SINGLE,), "an agent trained as the only one (figure 10)", None, 0.0))
    for where in (DAILY, UNIFORM):
        found.append(_tetris_against_single(where.name))
    for name in TRAININGS:
        found.append(_claim(TRAINED.name, (name,), name, None, 0.0))
    for where in (BUSY, CROWDED):
        found.append(_claim(where.name, (ALWAYS, NEVER), "other forwarding", None, 0.0))
    return [*found, *_by_number(), _convergence(), *_fits()]


def _by_number() -> Iterator[Claim]:
    """Yield the claims about each number of schedulers: against the rules with as many, and against fewer schedulers."""
    for count in COUNTS:
        ours = with_schedulers(OURS, count)
        baselines = tuple(with_schedulers(name, count) for name in BASELINES)
        yield _counted(ours, baselines, f"{_BEST} with as many", 0.0)
        yield _counted(
            ours, (with_schedulers(CONTENTION_GREEDY, count),), f"{CONTENTION_GREEDY} with as many", _TO_CONTROLS
        )
        if count > 1:
            yield _counted(ours, (with_schedulers(OURS, 1),), "one scheduler", 0.0)


def _counted(ours: str, against: tuple[str, ...], what: str, goal: float) -> Claim:
    name = f"{JCT} of {ours} against {what}"
    return Claim(name=name, setting=SCHEDULERS.name, metric=JCT, ours=ours, against=against, paper=None, goal=goal)


def _tetris_against_single(setting: str) -> Claim:
    """Return the claim of figure 10 that Tetris has a lower JCT than the single agent; the paper gives no number."""
    name = f"{JCT} of {TETRIS} against an agent trained as the only one (figure 10), {setting}"
    return Claim(name=name, setting=setting, metric=JCT, ours=TETRIS, against=(SINGLE,), paper=None, goal=0.0)


def _convergence() -> Claim:
    """Return the claim of figure 10a: 200 epochs, where one agent takes more than 400. A training has one seed, so no interval."""
    name = "rounds of training against one agent (figure 10)"
    shared: dict[str, Any] = {"setting": CONVERGENCE.name, "metric": ROUNDS, "paper": -0.5, "goal": -0.5}
    return Claim(name=name, ours=OURS, against=(SINGLE,), **shared)


def _fits() -> list[Claim]:
    """Return the claims of table III: the error of the interference model, and against each other fit."""
    shared: dict[str, Any] = {"setting": FITS.name, "metric": SLOWDOWN_ERROR, "ours": INTERFERENCE}
    error = "error of the interference model"
    found = [Claim(name=error, against=(), paper=_ERROR, goal=_ERROR, **shared)]
    for other, paper in _ERRORS.items():
        gain = _ERROR / paper - 1.0
        found.append(Claim(name=f"{error} against {other}", against=(other,), paper=gain, goal=gain, **shared))
    return [*found, Claim(name=f"{error} against {CONSTANT}", against=(CONSTANT,), paper=None, goal=0.0, **shared)]


def _claim(setting: str, against: tuple[str, ...], what: str, paper: float | None, goal: float) -> Claim:
    name = f"{JCT} against {what}, {setting}"
    return Claim(name=name, setting=setting, metric=JCT, ours=OURS, against=against, paper=paper, goal=goal)
