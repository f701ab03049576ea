"""Stored runs of DL2's experiment: the figures of every seed, in `runs.json` beside this file.

Trainings take minutes each and their weights do not come with Headway, so their runs are stored, and with them those of the
others, which `headway-sim reproduce dl2 --quick` shows. As a program, it runs contenders and stores the result:

    python -m simulator.papers.dl2.reproduction.stored --commands          # the commands that train
    python -m simulator.papers.dl2.reproduction.stored --trained trained   # all contenders on all seeds
    python -m simulator.papers.dl2.reproduction.stored --trained trained --only dl2-drf uniform
    python -m simulator.papers.dl2.reproduction.stored --only dl2-drf dl2 --missing   # in settings where they have no runs yet
    python -m simulator.papers.dl2.reproduction.stored --trained trained --curves  # learning curves and CPU times of what is there
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from policies.learned.training.systems import TEST_SEEDS
from simulator.papers.dl2.reproduction import training_times
from simulator.papers.dl2.reproduction.contenders import contenders_of
from simulator.papers.dl2.reproduction.curves import curve_of, stored_curves
from simulator.papers.dl2.reproduction.settings import MAIN, OTHERS, SHOWN
from simulator.papers.dl2.reproduction.trainings import TRAININGS
from simulator.reproducing.experiment import Contender, Setting
from simulator.reproducing.learning_curves import FILE, as_text
from simulator.reproducing.stored_runs import StoredRuns

SEEDS = TEST_SEEDS[:30]
STORE = "python -m simulator.papers.dl2.reproduction.stored --trained trained"
RUNS = StoredRuns(Path(__file__).with_name("runs.json"), SEEDS, {"utilization": 5})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run contenders and store their figures, or print the commands of trainings."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.dl2.reproduction.stored", description="Store runs of DL2's experiment."
    )
    parser.add_argument("--commands", action="store_true", help="print the commands that train, and end")
    parser.add_argument("--trained", type=Path, default=Path("trained"), help="the folder with a folder per training")
    parser.add_argument(
        "--curves", action="store_true", help="store the learning curves and CPU times of these trainings, and end"
    )
    parser.add_argument("--only", nargs="*", help="names of contenders; the runs of others stay as they are")
    parser.add_argument(
        "--missing", action="store_true", help="leave out contenders and settings whose runs are stored"
    )
    given = parser.parse_args(arguments)
    if given.commands:
        sys.stdout.write("\n".join(each.command(name) for name, each in TRAININGS.items()) + "\n")
        return
    if given.curves:
        folders = {name: given.trained / name for name in TRAININGS if (given.trained / name / "events").is_dir()}
        there = {name: curve_of(folder) for name, folder in folders.items()}
        (Path(str(files(__package__))) / FILE).write_text(as_text({**stored_curves(), **there}), encoding="utf-8")
        training_times.store({name: training_times.times_of(folder) for name, folder in folders.items()})
        return
    for line in RUNS.store(_work(given.trained, given.only, missing=given.missing), SHOWN):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _work(trained: Path, only: Sequence[str] | None, *, missing: bool = False) -> Iterator[tuple[Setting, Contender]]:
    for setting in (MAIN, *OTHERS):
        for contender in contenders_of(setting, trained):
            is_wanted = only is None or contender.name in only
            if is_wanted and not (missing and RUNS.has(setting.name, contender.name)):
                yield setting, contender


if __name__ == "__main__":
    main()
