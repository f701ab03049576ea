"""Learning curves of MARL's trainings, in the form of figure 10a: the validation JCT after so many rounds.

They are stored in `curves.json` beside this file, in seconds, by `python -m simulator.papers.marl.reproduction.stored --curves`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from policies.learned.marl.system import NAME, SINGLE
from policies.learned.training.systems import TEST_SEEDS
from simulator.papers.marl.reproduction.contenders import ALONE, PAPERS
from simulator.papers.marl.reproduction.settings import ROUNDS, TRAINED, with_other_figures
from simulator.reproducing.experiment import Contender, ExperimentResults, Kind, Run, Setting
from simulator.reproducing.learning_curves import TrainingEvents, stored
from simulator.reproducing.pictures import COLOURS, GREY, Picture
from simulator.runs.progress import OnProgress

RULE_S = {NAME: 11_134.0, ALONE: 8_397.0, PAPERS: 8_397.0, SINGLE: 10_182.0}
"""Figure of the rule `lookahead-greedy` on the validation jobs of each training, seconds: 15 and 30 jobs an interval at each 100
servers, or 15 alone. From `python -m simulator.papers.marl.rules_by_setting --k 4 --jobs 15`, and `--jobs 30`; with `--single`
for the single agent."""
_CONVERGED = 1.01
"""A curve has converged where its figure is at most so many times its best one."""
Curve = list[tuple[int, float]]
"""Rounds so far, imitation included, and the validation figure in seconds."""


@cache
def stored_curves() -> dict[str, Curve]:
    """Return the stored curves by the name of the training; empty where there are none."""
    return stored(str(__package__))


def curve_of(folder: Path) -> Curve:
    """Read the curve of the training in that folder from its figures for TensorBoard."""
    events = TrainingEvents(folder)
    figures = {**events.values("imitation/validation"), **events.values("training/validation")}
    # The figure of round N is logged when N - 1 are done; only that of the untrained weights is logged when none is.
    return [(done + 1 if done else 0, round(figure)) for done, figure in sorted(figures.items())]


def converged(curve: Curve) -> int:
    """Return the rounds after which the figure is first within 1 % of the best of the curve."""
    least = min(figure for _, figure in curve)
    return next(rounds for rounds, figure in curve if figure <= _CONVERGED * least)


CONVERGENCE = with_other_figures(TRAINED, "convergence", "rounds of each training, imitation included", (ROUNDS,))


def trainings() -> tuple[Contender, ...]:
    """Return the trainings that have a curve. The rounds are a figure of the first seed alone: a training has one seed."""

    def rounds(name: str) -> Contender:
        def run(_where: Setting, seed: int, _report: OnProgress | None) -> Run:
            return Run({ROUNDS: float(converged(stored_curves()[name]))} if seed == TEST_SEEDS[0] else {})

        return Contender(name, Kind.OURS, run)

    return tuple(rounds(name) for name in stored_curves())


def progress() -> Picture:
    """Return a picture of the stored curves, relative to the rule on the same validation jobs."""

    def draw(axes: Any, _results: ExperimentResults) -> None:
        for (name, rule_s), colour in zip(RULE_S.items(), COLOURS, strict=False):
            if curve := stored_curves().get(name):
                rounds, figures = zip(*curve, strict=True)
                axes.plot(rounds, [figure / rule_s for figure in figures], "o-", markersize=3, color=colour, label=name)
        axes.axhline(1.0, color=GREY, linewidth=1, linestyle="--", label="lookahead-greedy")
        axes.set_xlabel("rounds of 16 episodes", fontsize=9)
        axes.set_ylabel("average JCT on validation jobs, relative", fontsize=9)
        axes.legend(frameon=False, fontsize=7)

    return Picture("As figure 10a: convergence", draw)
