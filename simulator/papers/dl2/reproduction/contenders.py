"""Contenders of DL2's experiment."""

from __future__ import annotations

from pathlib import Path

from simulator.papers.dl2.reproduction.bound import average_jct_bound_s
from simulator.papers.dl2.reproduction.settings import ARRIVALS, MAIN, acting
from simulator.papers.dl2.reproduction.trainings import FIFO_TAUGHT, OFFLINES, PAPER, PPO, TRAININGS
from simulator.reproducing.experiment import Contender, Kind, Run, Setting
from simulator.runs.progress import OnProgress

DRF, TETRIS, OPTIMUS = "dl2-drf", "dl2-tetris", "dl2-optimus"
GREEDY, RULE, PAIRS, UNIFORM = "dl2-greedy", "dl2-rule", "dl2-pairs", "uniform"
BASELINES = (DRF, TETRIS, OPTIMUS)
FIFO, SRTF = "dl2-fifo:workers=2", "dl2-srtf:workers=2"
"""The rules of the teachers `fifo` and `srtf`; the number of workers was chosen on the validation seeds."""
CONTROLS = (UNIFORM, GREEDY, RULE, PAIRS, FIFO, SRTF, "dl2-fifo", "dl2-fifo:workers=4", "dl2-tetris:workers=4")
BOUND = "lower bound"


def live(setting: Setting) -> tuple[Contender, ...]:
    """Return the contenders that need nothing but what comes with Headway."""
    ours = tuple(acting(f"agent:system={name}", Kind.OURS, name) for name in (PAPER, PPO))
    if setting.name != MAIN.name:
        against = (OPTIMUS,) if setting.name in {each.name for each in ARRIVALS} else (OPTIMUS, DRF)
        return *ours, *(acting(name, Kind.BASELINE) for name in against)
    baselines = tuple(acting(name, Kind.BASELINE) for name in BASELINES)
    controls = tuple(acting(name, Kind.CONTROL) for name in CONTROLS)
    return (*ours, *baselines, *controls, Contender(BOUND, Kind.BOUND, _bound))


def trained(setting: Setting, folder: Path) -> tuple[Contender, ...]:
    """Return the contenders that need a training, whose weights are in that folder; beside the main setting one of them."""
    names = [name for name in TRAININGS if name not in (PAPER, PPO)] if setting.name == MAIN.name else [FIFO_TAUGHT]
    return tuple(
        acting(
            f"agent:system={TRAININGS[name].system},weights={folder / name}",
            Kind.BASELINE if name in OFFLINES else Kind.OURS,
            name,
        )
        for name in names
    )


def contenders_of(setting: Setting, folder: Path) -> tuple[Contender, ...]:
    """Return all contenders of a setting."""
    return (*live(setting), *trained(setting, folder))


def _bound(setting: Setting, seed: int, _report: OnProgress | None) -> Run:
    return Run({"avg_jct_s": average_jct_bound_s(setting.trace(seed), setting.cluster, setting.profiles)})
