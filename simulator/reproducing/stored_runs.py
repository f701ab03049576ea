"""Stored runs of an experiment: the figures of every seed, in a JSON file beside the experiment.

Trainings take minutes each, and most of their weights do not come with Headway, so the runs of all contenders are stored.
`headway-sim reproduce NAME --quick` shows them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simulator.errors import SettingError
from simulator.reproducing.experiment import Contender, Run, Setting
from simulator.runs.progress import OnProgress

_DIGITS = 1
Runs = dict[str, dict[str, dict[str, list[float]]]]
"""The figures of all seeds, by setting, contender and metric."""


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """The file of one experiment. Invariant: each list of figures has one for each seed, in the order of `seeds`."""

    file: Path
    seeds: Sequence[int]
    digits: Mapping[str, int]
    """Decimal places by metric; of others one."""

    def read(self) -> Runs:
        """Return all stored runs; empty where there are none."""
        return _read(self.file)

    def has(self, setting: str, contender: str) -> bool:
        """Return whether runs of that contender in that setting are stored."""
        return contender in self.read().get(setting, {})

    def of(self, contender: Contender) -> Contender:
        """Return the contender with its stored runs in place of new ones."""

        def run(where: Setting, seed: int, _report: OnProgress | None) -> Run:
            if seed not in self.seeds:
                count = len(self.seeds)
                raise SettingError(f"runs of {contender.name} are stored for {count} seeds; give --seeds {count}")
            figures = self.read()[where.name][contender.name]
            return Run({metric: values[self.seeds.index(seed)] for metric, values in figures.items()})

        return Contender(contender.name, contender.kind, run)

    def store(self, work: Iterable[tuple[Setting, Contender]], metrics: Collection[str]) -> Iterator[str]:
        """Run these contenders on all seeds and store their figures; those of others stay. Yields what is stored, one by one."""
        runs = {setting: dict(found) for setting, found in self.read().items()}
        for setting, contender in work:
            runs.setdefault(setting.name, {})[contender.name] = self._figures(setting, contender, metrics)
            self.file.write_text(as_text(runs), encoding="utf-8")
            yield f"{contender.name} in {setting.name}"

    def _figures(self, setting: Setting, contender: Contender, metrics: Collection[str]) -> dict[str, list[float]]:
        found = [contender.run(setting, seed, None) for seed in self.seeds]
        return {
            metric: [round(run.figures[metric], self.digits.get(metric, _DIGITS)) for run in found]
            for metric in metrics
            if all(metric in run.figures for run in found)
        }


@cache
def _read(file: Path) -> Runs:
    found: Runs = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def as_text(runs: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> str:
    """Return the runs as JSON, with one line for each metric of a contender."""
    parts = []
    for setting, contenders in runs.items():
        of_setting = []
        for contender, metrics in contenders.items():
            lines = ",\n".join(f"   {json.dumps(name)}: {json.dumps(values)}" for name, values in metrics.items())
            of_setting.append(f"  {json.dumps(contender)}: {{\n{lines}\n  }}")
        parts.append(f" {json.dumps(setting)}: {{\n" + ",\n".join(of_setting) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"
