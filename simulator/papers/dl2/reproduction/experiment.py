"""DL2 (Peng et al., TPDS 2021), section 6: figures 9, 10, 12, 15, 16 and more, in a setting that fits its baselines.

With `quick`, all runs are those that are stored (`stored.py`). Else whatever needs no training runs anew, and only the trainings
are stored ones.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from simulator.errors import SettingError
from simulator.papers.dl2.reproduction.contenders import (
    BOUND,
    DRF,
    GREEDY,
    OPTIMUS,
    RULE,
    TETRIS,
    UNIFORM,
    live,
    trained,
)
from simulator.papers.dl2.reproduction.settings import MAIN, MEASURES, OTHERS, SHOWN
from simulator.papers.dl2.reproduction.stored import from_stored, is_stored
from simulator.papers.dl2.reproduction.trainings import OFFLINE, OURS, SUPERVISED, UNEXPLORED
from simulator.reproducing.experiment import Claim, Contender, Experiment, ExperimentResults, Setting
from simulator.reproducing.pictures import Picture, scatter
from simulator.slowdown.profiles.model_profiles import ModelProfiles

_HOUR_S = 3600.0
_MARGIN = -0.2
"""Change of the average JCT against uniform random that the agent must reach; stated here, not in the paper."""
_ARRIVALS = -0.20
_EPOCHS = -0.28
_UTILIZATION = 78 / 62 - 1
_MAIN = (
    ("against DRF (figure 9)", (DRF,), -0.441, -0.44),
    ("against Optimus (figure 9)", (OPTIMUS,), -0.175, -0.17),
    ("against OfflineRL (figure 9)", (OFFLINE,), -0.379, -0.37),
    ("against Tetris (figure 9)", (TETRIS,), None, 0.0),
    ("against the supervised phase alone (figure 10)", (SUPERVISED,), None, 0.0),
    ("against training without exploration (table 2)", (UNEXPLORED,), 1 / 1.288 - 1, 1 / 1.288 - 1),
    ("against uniform random", (UNIFORM,), None, _MARGIN),
    ("against the best of DRF, the greedy oracle and the searched rule", (DRF, GREEDY, RULE), None, 0.0),
)
"""Name, contenders, the paper's change of the average JCT (None: not given in numbers), and the goal."""


def experiment(profiles: ModelProfiles | None = None, *, quick: bool = False) -> Experiment:
    """Return the experiment; `profiles` replace those of the published measurements. Raises SettingError."""
    if profiles is not None and quick:
        raise SettingError("the stored runs are those of the paper's models; leave out --quick, or --profiles")
    settings: tuple[Setting, ...] = (MAIN, *OTHERS)
    if profiles is not None:
        settings = tuple(replace(setting, profiles=profiles) for setting in settings)
    contenders = {setting.name: _contenders(setting, quick=quick, stored=profiles is None) for setting in settings}
    names = {setting: {each.name for each in of} for setting, of in contenders.items()}
    return Experiment(
        name="dl2",
        says="DL2 (Peng et al., TPDS 2021), section 6",
        settings=settings,
        contenders=contenders,
        metrics=SHOWN,
        measures=MEASURES,
        claims=tuple(claim for claim in _claims() if {claim.ours, *claim.against} <= names[claim.setting]),
        notes=(
            "The setting was chosen by the baselines on the seeds of validation: DRF's share of GPUs in use (62 % in the paper) "
            "and Optimus' gain over DRF (32 % by the paper's figures).",
            f"{BOUND}: no agent can be better; {GREEDY} knows the true speeds, {RULE} was found by a search on training seeds.",
            "Rows that need a training are stored runs; with --quick all are.",
        ),
    )


def _contenders(setting: Setting, *, quick: bool, stored: bool) -> tuple[Contender, ...]:
    anew = live(setting)
    if quick:
        anew = tuple(from_stored(each) for each in anew if is_stored(setting.name, each.name))
    if not stored:
        return anew
    others = trained(setting, Path())
    return (*anew, *(from_stored(each) for each in others if is_stored(setting.name, each.name)))


def _claims() -> list[Claim]:
    main = [_claim(name, MAIN.name, against, paper, goal) for name, against, paper, goal in _MAIN]
    uniform, poisson, speeds, epochs = (each.name for each in OTHERS)
    return [
        *main,
        _claim("against DRF (6.3)", MAIN.name, (DRF,), None, 0.0, "makespan_s"),
        _claim("against DRF (6.3)", MAIN.name, (DRF,), _UTILIZATION, _UTILIZATION, "utilization"),
        _claim("against Optimus (figure 12)", uniform, (OPTIMUS,), _ARRIVALS, _ARRIVALS),
        _claim("against Optimus (figure 12)", poisson, (OPTIMUS,), _ARRIVALS, _ARRIVALS),
        _claim("against Optimus (figure 15)", speeds, (OPTIMUS,), None, 0.0),
        _claim("against DRF (figure 16)", epochs, (DRF,), _EPOCHS, _EPOCHS),
    ]


def _claim(
    what: str, setting: str, against: tuple[str, ...], paper: float | None, goal: float, metric: str = "avg_jct_s"
) -> Claim:
    return Claim(
        name=f"{OURS}: {metric} {what}, {setting}",
        setting=setting,
        metric=metric,
        ours=OURS,
        against=against,
        paper=paper,
        goal=goal,
    )


def pictures(results: ExperimentResults) -> list[Picture]:
    """Return average JCT and share of GPUs in use of all contenders (figure 9, and section 6.3)."""
    labels = ("share of GPU time in use", "average JCT, h")
    return [
        scatter(f"As figure 9: {setting.name}", setting.name, "utilization", "avg_jct_s", labels, _HOUR_S)
        for setting in results.experiment.settings
    ]
