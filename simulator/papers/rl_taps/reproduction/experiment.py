"""RL-TAPS (Ryu et al., CASCON 2020), section 5: figures 4 and 5, with stops charged and free.

All run anew, from the weights that come with Headway; only the learning curves are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from policies.learned.rl_taps.system import REINFORCED
from simulator.papers.rl_taps.reproduction.claims import claims
from simulator.papers.rl_taps.reproduction.contenders import BASELINES, BLOCKS, CONTROLS, ONE_EACH, contenders
from simulator.papers.rl_taps.reproduction.curves import STATIC, STREAMING, progress
from simulator.papers.rl_taps.reproduction.settings import CHARGED, FREE, MEASURES, SHOWN, SLOWDOWN
from simulator.reproducing.experiment import Experiment, ExperimentResults, Setting
from simulator.reproducing.pictures import COLOURS, GREY, Picture
from simulator.slowdown.profiles.model_profiles import ModelProfiles

_BARS: Mapping[str, str] = {"reward a step": "reward", "mean slowdown": SLOWDOWN}


def experiment(profiles: ModelProfiles | None = None, *, quick: bool = False) -> Experiment:  # noqa: ARG001 - all runs are quick
    """Return the experiment; `profiles` replace those of the paper. It is the same with `quick`, which means fewer seeds."""
    settings: tuple[Setting, ...] = (CHARGED, FREE)
    if profiles is not None:
        settings = tuple(replace(each, profiles=profiles) for each in settings)
    return Experiment(
        name="rl-taps",
        says="RL-TAPS (Ryu et al., CASCON 2020), section 5",
        settings=settings,
        contenders={setting.name: contenders() for setting in settings},
        metrics=SHOWN,
        measures=MEASURES,
        claims=tuple(claim for setting in settings for claim in claims(setting.name)),
        notes=(
            f"{', '.join(BASELINES)} run without preemption, as in the paper, and so without the penalty of equation 6.",
            f"{', '.join(CONTROLS)} run with preemption; {ONE_EACH} and {BLOCKS} see no more than the agent does.",
            "Agents act in the environment, without the guard that the policy rl-taps has on clusters: as in the paper.",
            "A job that is not finished counts as finished at Tmax. The reward is that of equation 4, with weights of 1.",
        ),
    )


def pictures(results: ExperimentResults) -> list[Picture]:
    """Return figures 4 and 5: learning curves; and mean reward and slowdown of all contenders, for each setting."""
    bars = [
        _bars(f"As figures 4 and 5: {title}, {setting.name}", setting.name, metric, title)
        for setting in results.experiment.settings
        for title, metric in _BARS.items()
    ]
    trainings = {"As figure 4": STATIC, "As figure 4, 120 jobs": (REINFORCED,), "As figure 5": STREAMING}
    return [*(each for title, names in trainings.items() for each in progress(title, names)), *bars]


def _bars(title: str, setting: str, metric: str, label: str) -> Picture:
    def draw(axes: Any, found: ExperimentResults) -> None:
        names = [each.name for each in found.experiment.contenders[setting]]
        means = {name: mean for name in names if (mean := found.mean(setting, name, metric)) is not None}
        at = np.arange(len(means))
        spread = [mean.ci95 or 0.0 for mean in means.values()]
        axes.barh(at, [mean.mean for mean in means.values()], xerr=spread, color=COLOURS[0], ecolor=GREY)
        axes.set_yticks(at, list(means), fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel(label, color=GREY, fontsize=9)

    return Picture(title, draw)
