"""MARL (Zhao and Wu, TNSM 2021), section VI: figures 7 to 10, on a smaller data center.

With `quick`, the settings of `_ANEW` run anew, and the runs of the others are those that are stored (`stored.py`). Without it, all
run anew, except those of trainings whose weights do not come with Headway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from policies.learned.marl.system import is_shipped
from simulator.errors import SettingError
from simulator.papers.marl.reproduction.claims import claims
from simulator.papers.marl.reproduction.contenders import (
    BASELINES,
    BOUND,
    CONTENTION_GREEDY,
    OURS,
    TRAININGS,
    contenders,
    with_schedulers,
)
from simulator.papers.marl.reproduction.curves import CONVERGENCE, progress, trainings
from simulator.papers.marl.reproduction.fits import FITS, fits
from simulator.papers.marl.reproduction.settings import (
    ARRIVALS,
    COUNTS,
    DAILY,
    JCT,
    MEASURES,
    NETWORKS,
    SCHEDULERS,
    SERVERS,
    SHOWN,
    TESTBED,
    TRAINED,
    WITH_JOBS,
)
from simulator.papers.marl.reproduction.stored import RUNS, STORE
from simulator.reproducing.experiment import Contender, Experiment, ExperimentResults, Kind, Run, Setting
from simulator.reproducing.pictures import COLOURS, GREY, Picture
from simulator.runs.progress import OnProgress
from simulator.slowdown.profiles.model_profiles import ModelProfiles

_INTERVAL_S = 1800.0
_ANEW = {DAILY.name, TRAINED.name}
"""Settings that run anew with `quick`: together about three minutes of CPU time, of which the agents need most."""
_FIGURES: Mapping[str, tuple[Setting, ...]] = {
    "As figure 7: arrivals": ARRIVALS,
    "As figure 8: servers": SERVERS,
    "As figure 9: networks": NETWORKS,
    "As figure 11b: testbed": (TESTBED,),
}


def experiment(profiles: ModelProfiles | None = None, *, quick: bool = False) -> Experiment:
    """Return the experiment; `profiles` replace those that follow from the papers. Raises SettingError."""
    if profiles is not None and quick:
        raise SettingError("the stored runs are those of the paper's models; leave out --quick, or --profiles")
    settings: tuple[Setting, ...] = WITH_JOBS
    if profiles is not None:
        settings = tuple(replace(setting, profiles=profiles) for setting in settings)
    found = {setting.name: _contenders(setting, quick=quick, stored=profiles is None) for setting in settings}
    settings = (*settings, CONVERGENCE, FITS)
    found |= {CONVERGENCE.name: trainings(), FITS.name: fits()}
    names = {setting: {each.name for each in of} for setting, of in found.items()}
    return Experiment(
        name="marl",
        says="MARL (Zhao and Wu, TNSM 2021), section VI",
        settings=settings,
        contenders=found,
        metrics=SHOWN,
        measures=MEASURES,
        claims=tuple(claim for claim in claims() if {claim.ours, *claim.against} <= names[claim.setting]),
        notes=(
            f"{OURS} was trained on 16 servers, and acts in all settings without further training.",
            f"{BOUND}: no scheduler can be better. DeepSys and Atte are simplified.",
            *([f"{' and '.join(sorted(_ANEW))} ran anew; the other runs are stored."] if quick else []),
            f"Stored runs were made by: {STORE}",
        ),
    )


def _contenders(setting: Setting, *, quick: bool, stored: bool) -> tuple[Contender, ...]:
    anew = contenders(setting)
    if quick and setting.name not in _ANEW:
        anew = tuple(RUNS.of(each) for each in anew if RUNS.has(setting.name, each.name))
    trained = [name for name in TRAININGS if not is_shipped(name)]
    others = [Contender(name, Kind.OURS, _untrained) for name in trained] if stored else []
    return (*anew, *(RUNS.of(each) for each in others if RUNS.has(setting.name, each.name)))


def _untrained(_where: Setting, _seed: int, _report: OnProgress | None) -> Run:
    raise SettingError("the weights of this training do not come with Headway; its runs are stored")


def pictures(results: ExperimentResults) -> list[Picture]:
    """Return the mean JCT of all contenders in the form of figures 7, 8 and 9, and learning curves in that of figure 10a."""
    there = {setting.name for setting in results.experiment.settings}
    shown = {title: [each.name for each in of if each.name in there] for title, of in _FIGURES.items()}
    counts = [_by_number()] if SCHEDULERS.name in there else []
    return [*(_bars(title, names) for title, names in shown.items() if names), *counts, progress()]


def _by_number() -> Picture:
    def draw(axes: Any, found: ExperimentResults) -> None:
        names = (OURS, *BASELINES, CONTENTION_GREEDY)
        for name, colour in zip(names, COLOURS, strict=False):
            means = [found.mean(SCHEDULERS.name, with_schedulers(name, count), JCT) for count in COUNTS]
            heights = [mean.mean / _INTERVAL_S if mean else np.nan for mean in means]
            axes.plot(COUNTS, heights, "o-", markersize=3, color=colour, label=name)
        bound = found.mean(SCHEDULERS.name, BOUND, JCT)
        axes.axhline(
            bound.mean / _INTERVAL_S if bound else np.nan, color=GREY, linewidth=1, linestyle="--", label=BOUND
        )
        axes.set_xscale("log", base=2)
        axes.set_xticks(COUNTS, list(map(str, COUNTS)))
        axes.set_xlabel("schedulers of the same 128 servers", color=GREY, fontsize=9)
        axes.set_ylabel("average JCT, intervals", color=GREY, fontsize=9)
        axes.legend(frameon=False, fontsize=6)

    return Picture("Number of schedulers, twice the jobs", draw)


def _bars(title: str, settings: list[str]) -> Picture:
    def draw(axes: Any, found: ExperimentResults) -> None:
        names = [each.name for each in found.experiment.contenders[settings[0]]]
        width = 0.8 / len(names)
        for place, name in enumerate(names):
            means = [found.mean(setting, name, JCT) if (setting, name) in found.runs else None for setting in settings]
            at = [number + place * width for number, mean in enumerate(means) if mean is not None]
            heights = [mean.mean / _INTERVAL_S for mean in means if mean is not None]
            axes.bar(at, heights, width, color=COLOURS[place % len(COLOURS)], label=name)
        axes.set_xticks(np.arange(len(settings)) + 0.4, settings, fontsize=7)
        axes.set_ylabel("average JCT, intervals", color=GREY, fontsize=9)
        axes.legend(frameon=False, fontsize=6)

    return Picture(title, draw)
