"""Learning curves of RL-TAPS' trainings (figures 4 and 5), stored in `curves.json` beside this file. As a program:

python -m simulator.papers.rl_taps.reproduction.curves --commands            # the commands that train
python -m simulator.papers.rl_taps.reproduction.curves --trained trained     # stores the curves of what is there
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from policies.learned.rl_taps.system import ALONE, NAME, REINFORCED
from simulator.reproducing.experiment import ExperimentResults
from simulator.reproducing.learning_curves import FILE, TrainingEvents, as_text, stored
from simulator.reproducing.pictures import COLOURS, GREY, Picture

STREAMED = "rl-taps-streaming"
TRAININGS: Mapping[str, tuple[str, ...]] = {
    NAME: ("rounds=0", "validate_every=5"),
    REINFORCED: (f"start=trained/{NAME}", "jobs=120", "max_steps=300", "validate_every=5", "rounds=28"),
    ALONE: ("preset=alone",),
    STREAMED: ("preset=alone", "data=streaming", "sequences=60"),
}
"""Trainings by name, and what differs from the default recipe, as for `--set`."""
STATIC, STREAMING = (NAME, ALONE), (STREAMED,)
"""Trainings of figure 4 and of figure 5. REINFORCED has shorter sequences, so its figures are not comparable with theirs."""
_PHASES = ("imitation", "training")
_CURVES = {
    "return": "mean return from the first step, in training",
    "validation": "mean slowdown on validation sequences",
}


@cache
def stored_curves() -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return (rounds, value) of each curve of each stored training."""
    return stored(str(__package__))


def curves_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the curves of the training in that folder, over the rounds of both phases."""
    events = TrainingEvents(folder)
    found: dict[str, list[tuple[int, float]]] = {}
    for name in _CURVES:
        values = {step: value for phase in _PHASES for step, value in events.values(f"{phase}/{name}").items()}
        found[name] = [(step, round(value, 3)) for step, value in sorted(values.items())]
    return found


def progress(title: str, names: Sequence[str]) -> list[Picture]:
    """Return the pictures of the stored curves of these trainings; none where none is stored."""
    found = []
    for curve, label in _CURVES.items():
        there = [name for name in names if stored_curves().get(name, {}).get(curve)]
        found += [_picture(f"{title}: {label}", curve, label, there)] if there else []
    return found


def _picture(title: str, curve: str, label: str, names: Sequence[str]) -> Picture:
    def draw(axes: Any, _results: ExperimentResults) -> None:
        for name, colour in zip(names, COLOURS, strict=False):
            points = stored_curves()[name][curve]
            axes.plot(*zip(*points, strict=True), "o-", markersize=2, linewidth=1, color=colour, label=name)
        axes.set_xlabel("rounds: gradient steps, and rounds of imitation before them", color=GREY, fontsize=9)
        axes.set_ylabel(label, color=GREY, fontsize=9)
        axes.legend(frameon=False, fontsize=7)

    return Picture(title, draw)


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.rl_taps.reproduction.curves",
        description="Learning curves of RL-TAPS' trainings.",
    )
    parser.add_argument("--commands", action="store_true", help="print the commands that train, and end")
    parser.add_argument("--trained", type=Path, default=Path("trained"), help="the folder with a folder per training")
    given = parser.parse_args(arguments)
    if given.commands:
        for name, settings in TRAININGS.items():
            changes = "".join(f" --set {each}" for each in settings)
            sys.stdout.write(f"headway-policy train rl-taps --seed 0 --out trained/{name}{changes}\n")
        return
    there = {name: curves_of(given.trained / name) for name in TRAININGS if (given.trained / name / "events").is_dir()}
    (Path(str(files(__package__))) / FILE).write_text(as_text({**stored_curves(), **there}), encoding="utf-8")


if __name__ == "__main__":
    main()
