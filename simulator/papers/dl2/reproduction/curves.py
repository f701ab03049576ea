"""Learning curves of DL2's trainings (figures 10 and 17): the validation JCT after so many gradient steps.

They are stored in `curves.json` beside this file, by `python -m simulator.papers.dl2.reproduction.stored --curves`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from simulator.reproducing.experiment import ExperimentResults
from simulator.reproducing.learning_curves import TrainingEvents, stored
from simulator.reproducing.pictures import COLOURS, Picture

_HOUR_S = 3600.0
_SUPERVISED, _TRAINING = "supervised", "training"
Curve = list[tuple[int, float]]
"""Gradient steps so far, and hours of the validation figure."""


@cache
def stored_curves() -> dict[str, Curve]:
    """Return the stored curves by the name of the training; empty where there are none."""
    return stored(str(__package__))


def curve_of(folder: Path) -> Curve:
    """Read the curve of the training in that folder from its figures for TensorBoard."""
    events = TrainingEvents(folder)
    recipe = json.loads((folder / "settings.json").read_text(encoding="utf-8"))["card"]["recipe"]
    taught = events.values(f"{_SUPERVISED}/validation")
    begin = int(recipe["supervised_updates"]) * len(taught)
    found = [(int(recipe["supervised_updates"]) * (number + 1), value) for number, value in enumerate(taught.values())]
    made, learned = begin, events.values(f"{_TRAINING}/validation")
    for at, updates in events.values(f"{_TRAINING}/updates").items():
        made += int(updates)
        if at in learned:
            found.append((made, learned[at]))
    return [(steps, round(value / _HOUR_S, 3)) for steps, value in found]


def progress(title: str, names: Sequence[str], clusters: Sequence[int] = ()) -> Picture:
    """Return a picture of the stored curves of these trainings. With `clusters`, steps are divided by their number."""

    def draw(axes: Any, _results: ExperimentResults) -> None:
        for name, colour, share in zip(names, COLOURS, clusters or [1] * len(names), strict=False):
            if curve := stored_curves().get(name):
                steps, hours = zip(*curve, strict=True)
                axes.plot([each / share for each in steps], hours, "o-", markersize=3, color=colour, label=name)
        axes.set_xlabel("gradient steps", fontsize=9)
        axes.set_ylabel("average JCT on validation traces, h", fontsize=9)
        axes.legend(frameon=False, fontsize=7)

    return Picture(title, draw)
