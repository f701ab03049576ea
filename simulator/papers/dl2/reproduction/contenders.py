"""Contenders of DL2's experiment."""

from __future__ import annotations

from pathlib import Path

from simulator.papers.dl2.reproduction.bound import average_jct_bound_s
from simulator.papers.dl2.reproduction.settings import MAIN, acting
from simulator.papers.dl2.reproduction.trainings import OFFLINE, OURS, TRAININGS
from simulator.reproducing.experiment import Contender, Kind, Run, Setting
from simulator.runs.progress import OnProgress

DRF, TETRIS, OPTIMUS = "dl2-drf", "dl2-tetris", "dl2-optimus"
GREEDY, RULE, UNIFORM = "dl2-greedy", "dl2-rule", "uniform"
BASELINES = (DRF, TETRIS, OPTIMUS)
FIFO, SRTF, FIXED = "dl2-fifo:workers=4", "dl2-srtf:workers=4", "dl2-fifo:workers=3"
"""The rules of the teachers `fifo` and `srtf`; and three pairs for every job, which was chosen on the validation seeds."""
CONTROLS = (
    UNIFORM, GREEDY, RULE, FIXED, FIFO, SRTF, "dl2-fifo", "dl2-srtf", "dl2-srtf:workers=2", "dl2-tetris:workers=4",
)  # fmt: skip
BOUND = "lower bound"
_PARTS = ", no bundle"
DRF_PARTS, TETRIS_PARTS, OPTIMUS_PARTS, GREEDY_PARTS = (name + _PARTS for name in (DRF, TETRIS, OPTIMUS, GREEDY))
FIFO_PARTS, FIXED_PARTS = "dl2-fifo" + _PARTS, "dl2-fifo:workers=2" + _PARTS
"""Rules without the bundle action: a pair is a server and then a worker, which the placement puts on one node if it can."""
IN_PARTS = (DRF_PARTS, TETRIS_PARTS, OPTIMUS_PARTS, GREEDY_PARTS, FIFO_PARTS, FIXED_PARTS)


def live(setting: Setting) -> tuple[Contender, ...]:
    """Return the contenders that need nothing but what comes with Headway."""
    ours = acting("agent:system=dl2", Kind.OURS, OURS)
    if setting.name != MAIN.name:
        return ours, acting(DRF, Kind.BASELINE), acting(OPTIMUS, Kind.BASELINE)
    baselines = tuple(acting(name, Kind.BASELINE) for name in BASELINES)
    controls = tuple(acting(name, Kind.CONTROL) for name in CONTROLS)
    parts = tuple(acting(name.removesuffix(_PARTS), Kind.CONTROL, name, bundle=False) for name in IN_PARTS)
    return (ours, *baselines, *controls, *parts, Contender(BOUND, Kind.BOUND, _bound))


def trained(setting: Setting, folder: Path) -> tuple[Contender, ...]:
    """Return the contenders that need a training, whose weights are in that folder."""
    if setting.name != MAIN.name:
        return ()
    return tuple(
        acting(f"agent:system=dl2,weights={folder / name}", Kind.BASELINE if name == OFFLINE else Kind.OURS, name)
        for name in TRAININGS
        if name != OURS
    )


def contenders_of(setting: Setting, folder: Path) -> tuple[Contender, ...]:
    """Return all contenders of a setting."""
    return (*live(setting), *trained(setting, folder))


def _bound(setting: Setting, seed: int, _report: OnProgress | None) -> Run:
    return Run({"avg_jct_s": average_jct_bound_s(setting.trace(seed), setting.cluster, setting.profiles)})
