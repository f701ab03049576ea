"""Stored runs of MARL's experiment: the figures of every seed, in `runs.json` beside this file.

`headway-sim reproduce marl --quick` shows them. As a program, it runs contenders and stores the result:

    python -m simulator.papers.marl.reproduction.stored --commands          # the commands that train
    python -m simulator.papers.marl.reproduction.stored --trained trained   # all contenders on all seeds
    python -m simulator.papers.marl.reproduction.stored --trained trained --only marl-alone tetris
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from policies.learned.training.systems import TEST_SEEDS
from simulator.errors import SettingError
from simulator.papers.marl.reproduction.contenders import TRAININGS, contenders
from simulator.papers.marl.reproduction.settings import ARRIVALS, NETWORKS, SERVERS, SHOWN, TRAINED
from simulator.reproducing.experiment import Contender, Run, Setting
from simulator.runs.progress import OnProgress

SEEDS = TEST_SEEDS[:10]
STORE = "python -m simulator.papers.marl.reproduction.stored --trained trained"
_FILE = "runs.json"
_DIGITS = {"mean_slowdown": 4}
Runs = dict[str, dict[str, dict[str, list[float]]]]
"""The figures of all seeds, by setting, contender and metric."""


@cache
def stored_runs() -> Runs:
    """Return the stored runs; empty where there are none."""
    file = files(__package__) / _FILE
    found: Runs = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def is_stored(setting: str, contender: str) -> bool:
    """Return whether runs of that contender in that setting are stored."""
    return contender in stored_runs().get(setting, {})


def from_stored(contender: Contender) -> Contender:
    """Return the contender with its stored runs in place of new ones."""

    def run(where: Setting, seed: int, _report: OnProgress | None) -> Run:
        if seed not in SEEDS:
            raise SettingError(f"runs of {contender.name} are stored for {len(SEEDS)} seeds; give --seeds {len(SEEDS)}")
        of_seeds = stored_runs()[where.name][contender.name]
        return Run({metric: values[SEEDS.index(seed)] for metric, values in of_seeds.items()})

    return Contender(contender.name, contender.kind, run)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run contenders and store their figures, or print the commands of trainings."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.marl.reproduction.stored", description="Store runs of MARL's experiment."
    )
    parser.add_argument("--commands", action="store_true", help="print the commands that train, and end")
    parser.add_argument("--trained", type=Path, default=Path("trained"), help="the folder with a folder per training")
    parser.add_argument("--only", nargs="*", help="names of contenders; the runs of others stay as they are")
    parser.add_argument("--settings", nargs="*", help="words in names of settings; the runs of others stay as they are")
    given = parser.parse_args(arguments)
    if given.commands:
        for name, settings in {"marl": (), **TRAININGS}.items():
            changes = "".join(f" --set {each}" for each in settings)
            sys.stdout.write(f"headway-policy train marl --seed 0 --out trained/{name}{changes}\n")
        return
    runs = {setting: dict(of) for setting, of in stored_runs().items()}
    for setting, contender in _work(given.trained, given.only, given.settings):
        runs.setdefault(setting.name, {})[contender.name] = _figures(setting, contender)
        _write(Path(str(files(__package__))) / _FILE, runs)
        sys.stdout.write(f"{contender.name} in {setting.name}\n")
        sys.stdout.flush()


def _work(
    trained: Path, only: Sequence[str] | None, words: Sequence[str] | None
) -> Iterator[tuple[Setting, Contender]]:
    for setting in (*ARRIVALS, *SERVERS, *NETWORKS, TRAINED):
        if words is not None and not any(each in setting.name for each in words):
            continue
        for contender in contenders(setting, trained):
            if only is None or contender.name in only:
                yield setting, contender


def _figures(setting: Setting, contender: Contender) -> dict[str, list[float]]:
    found = [contender.run(setting, seed, None) for seed in SEEDS]
    return {
        metric: [round(run.figures[metric], _DIGITS.get(metric, 1)) for run in found]
        for metric in SHOWN
        if all(metric in run.figures for run in found)
    }


def _write(path: Path, runs: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> None:
    """Write one line for each metric of a contender."""
    parts = []
    for setting, of in runs.items():
        of_setting = []
        for contender, metrics in of.items():
            lines = ",\n".join(f"   {json.dumps(name)}: {json.dumps(values)}" for name, values in metrics.items())
            of_setting.append(f"  {json.dumps(contender)}: {{\n{lines}\n  }}")
        parts.append(f" {json.dumps(setting)}: {{\n" + ",\n".join(of_setting) + "\n }")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
