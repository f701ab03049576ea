"""Stored runs of MARL's experiment: the figures of every seed, in `runs.json` beside this file.

`headway-sim reproduce marl --quick` shows them, except in the settings that it runs anew. As a program, this module runs contenders
and stores the result:

    python -m simulator.papers.marl.reproduction.stored --commands          # the commands that train
    python -m simulator.papers.marl.reproduction.stored --trained trained   # all contenders on all seeds
    python -m simulator.papers.marl.reproduction.stored --trained trained --only marl-alone tetris
    python -m simulator.papers.marl.reproduction.stored --trained trained --curves  # the learning curves of what is there
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from policies.learned.training.systems import TEST_SEEDS
from simulator.papers.marl.reproduction.contenders import TRAININGS, contenders
from simulator.papers.marl.reproduction.curves import RULE_S, curve_of, stored_curves
from simulator.papers.marl.reproduction.settings import SHOWN, WITH_JOBS
from simulator.reproducing.experiment import Contender, Setting
from simulator.reproducing.learning_curves import FILE, as_text
from simulator.reproducing.stored_runs import StoredRuns

SEEDS = TEST_SEEDS[:10]
STORE = "python -m simulator.papers.marl.reproduction.stored --trained trained"
RUNS = StoredRuns(Path(__file__).with_name("runs.json"), SEEDS, {"mean_slowdown": 4})

CURVES = Path(__file__).with_name(FILE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run contenders and store their figures, or print the commands of trainings."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.marl.reproduction.stored", description="Store runs of MARL's experiment."
    )
    parser.add_argument("--commands", action="store_true", help="print the commands that train, and end")
    parser.add_argument("--trained", type=Path, default=Path("trained"), help="the folder with a folder per training")
    parser.add_argument("--only", nargs="*", help="names of contenders; the runs of others stay as they are")
    parser.add_argument("--settings", nargs="*", help="words in names of settings; the runs of others stay as they are")
    parser.add_argument("--curves", action="store_true", help="store the learning curves of these trainings, and end")
    given = parser.parse_args(arguments)
    if given.curves:
        there = {name: curve_of(given.trained / name) for name in RULE_S if (given.trained / name / "events").is_dir()}
        CURVES.write_text(as_text({**stored_curves(), **there}), encoding="utf-8")
        return
    if given.commands:
        for name, settings in {"marl": (), **TRAININGS}.items():
            changes = "".join(f" --set {each}" for each in settings)
            sys.stdout.write(f"headway-policy train marl --seed 0 --out trained/{name}{changes}\n")
        return
    for line in RUNS.store(_work(given.trained, given.only, given.settings), SHOWN):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _work(
    trained: Path, only: Sequence[str] | None, words: Sequence[str] | None
) -> Iterator[tuple[Setting, Contender]]:
    for setting in WITH_JOBS:
        if words is not None and not any(each in setting.name for each in words):
            continue
        for contender in contenders(setting, trained):
            if only is None or contender.name in only:
                yield setting, contender


if __name__ == "__main__":
    main()
