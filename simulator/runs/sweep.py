"""Run policies on every combination of options that a file names: `headway-sim compare --config sweep.toml`.

The file has the options of a run by their names on the command line, the policies, and a table `sweep` of options that vary:

    trace = "philly.csv"              # a relative path begins in the file's folder
    cluster = "15x8"
    policies = ["srtf", "las", "headway-rl"]

    [sweep]
    preempt-cost = [0, 30, 120]
    estimates = ["true", "history"]

Options of the command line replace those of the file.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.documents import DocumentError, is_number, is_whole, parse_toml, read_text, short
from simulator.cluster.cluster import parse_cluster
from simulator.errors import SettingError
from simulator.results.metrics import Figure, summary
from simulator.results.table import ROWS, plain_console, text_of
from simulator.runs.one import note_of, run_to_end
from simulator.runs.options import Flag, RunOptions, run_flags
from simulator.runs.process_pool import in_parallel, total_of
from simulator.runs.progress import Bar, OnProgress
from simulator.runs.scenario import Scenario, fallback_figures, opened_policy, report_unread

MOST_RUNS = 10_000
_LARGEST = 2**53
"""Largest whole number of an option."""
_SHOWN = frozenset({"avg_jct_s", "p90_jct_s", "p99_jct_s", "makespan_s", "preemptions"})
_FLAGS = {flag.flag.removeprefix("--"): flag for flag in run_flags()}
_FILES = frozenset({"trace", "profiles"})
"""Options whose values are always paths."""
_FILE_OR_WORD = frozenset({"cluster", "failures"})
"""Options whose values are paths if such a file exists."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The combinations of a file. Invariant: every combination's options are valid, and no policy is named twice."""

    combinations: tuple[tuple[Mapping[str, object], RunOptions], ...]
    """The varied options by their names, with the options of the run."""
    policies: tuple[str, ...]

    @property
    def varied(self) -> tuple[str, ...]:
        """Names of the options that vary."""
        return tuple(self.combinations[0][0])


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One policy with one combination of options."""

    options: Mapping[str, object]
    policy: str
    figures: Mapping[str, Figure]
    note: str
    """A line to print below the table; may be empty."""


def load_sweep(path: Path, given: Mapping[str, object], policies: Sequence[str] | None) -> Sweep:
    """Read a file. `given` and `policies`, where they are given, replace those of the file. Raises SettingError."""
    try:
        found = parse_toml(read_text(path))
    except OSError as error:
        raise SettingError(f"--config {path}: cannot be read ({error.strerror}); give a TOML file") from error
    except DocumentError as error:
        raise SettingError(f"--config {path}: {error}") from error
    where = f"--config {path}"
    named = found.pop("policies", [])
    swept = found.pop("sweep", {})
    if not isinstance(swept, dict) or not _is_texts(named):
        raise SettingError(f"{where}: `sweep` is a table of lists, and `policies` a list of names")
    base = {name: _value(where, name, value, path.parent) for name, value in found.items()}
    varied = {name: _values(where, name, values, path.parent) for name, values in swept.items()}
    both = sorted(base.keys() & varied.keys())
    if both:
        raise SettingError(f"{where}: {both[0]} stands in `sweep` and outside; keep one of them")
    names = tuple(policies if policies is not None else named)
    if not names or len(set(names)) < len(names):
        raise SettingError(f"{where}: give `policies`, a list of different names")
    return Sweep(tuple(_combinations(where, base, varied, given)), names)


def _combinations(
    where: str, base: Mapping[str, Any], varied: Mapping[str, list[tuple[object, Any]]], given: Mapping[str, object]
) -> list[tuple[Mapping[str, object], RunOptions]]:
    over = {name: _FLAGS[name].name for name in (*base, *varied)}
    left = {name: values for name, values in varied.items() if over[name] not in given}
    combinations: list[tuple[Mapping[str, object], RunOptions]] = []
    for chosen in itertools.product(*left.values()):
        values = {over[name]: value for name, value in base.items()}
        values |= {over[name]: value for name, (_, value) in zip(left, chosen, strict=True)}
        values |= given
        missing = [flag.flag for flag in _FLAGS.values() if flag.required and flag.name not in values]
        if missing:
            raise SettingError(f"{where}: `{missing[0].removeprefix('--')}` is missing")
        combinations.append(
            ({name: shown for name, (shown, _) in zip(left, chosen, strict=True)}, RunOptions(**values))
        )
        if len(combinations) > MOST_RUNS:
            raise SettingError(f"{where}: more than {MOST_RUNS:,} combinations; leave some values out")
    return combinations


def _values(where: str, name: str, values: object, folder: Path) -> list[tuple[object, Any]]:
    """Return each value of an option that varies: as the file has it, and as the option takes it."""
    if not isinstance(values, list) or not values:
        raise SettingError(f"{where}: `sweep.{short(name)}` is no list of values")
    return [(value, _value(where, name, value, folder)) for value in values]


def _value(where: str, name: str, value: object, folder: Path) -> Any:
    """Return the value as `RunOptions` takes it. Raises SettingError."""
    if name not in _FLAGS:
        raise SettingError(f"{where}: `{short(name)}` is no option of a run; there are {', '.join(_FLAGS)}")
    flag = _FLAGS[name]
    if flag.several:
        texts = value if isinstance(value, list) else [value]
        if not _is_texts(texts):
            raise SettingError(f"{where}: `{name}` is a text, or a list of texts")
        return tuple(texts)
    return _single(where, flag, value, folder)


def _single(where: str, flag: Flag, value: object, folder: Path) -> Any:
    name = flag.flag.removeprefix("--")
    if flag.kind is bool and isinstance(value, bool):
        return value
    if flag.kind is float and is_number(value):
        return float(value)
    if flag.kind is int and is_whole(value, -_LARGEST, _LARGEST):
        return value
    if flag.kind in (str, Path) and isinstance(value, str):
        path = folder / value
        if name in _FILES or (name in _FILE_OR_WORD and _is_file(path)):
            return path if flag.kind is Path else str(path)
        return value
    wanted = {bool: "true or false", int: "a whole number", float: "a number"}.get(flag.kind, "a text")
    raise SettingError(f"{where}: `{name}` is {short(repr(value))}; give {wanted}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _is_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def run_sweep(sweep: Sweep) -> list[SweepRun]:
    """Run every policy with every combination, each pair in a process of its own. Raises SimulatorError, PolicyError."""
    for slowdown, cluster in dict.fromkeys((options.slowdown, options.cluster) for _, options in sweep.combinations):
        report_unread(slowdown, cluster, parse_cluster(cluster))
    work = {
        f"{policy} with {_words(shown)}": (shown, options, policy)
        for shown, options in sweep.combinations
        for policy in sweep.policies
    }

    def do(label: str, report: OnProgress) -> SweepRun:
        return _one(*work[label], report)

    with Bar("sweep") as bar:
        return in_parallel(list(work), do, total_of(work, bar.on_progress or (lambda _share: None)))


def _one(shown: Mapping[str, object], options: RunOptions, policy: str, on_progress: OnProgress) -> SweepRun:
    scenario = Scenario.of(options, record=False)
    with opened_policy(policy, options, lenient=True) as made:
        _, result = run_to_end(scenario, policy, made, on_progress, own_process=True)
        return SweepRun(shown, policy, summary(result) | fallback_figures(made), note_of(made, result))


def _words(shown: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in shown.items()) or "no option varied"


def sweep_notes(runs: Sequence[SweepRun]) -> dict[str, str]:
    """Return the note of each run, which may be empty, by its policy and options."""
    return {f"{run.policy} with {_words(run.options)}": run.note for run in runs}


def sweep_json(runs: Sequence[SweepRun]) -> str:
    """Return the runs as a JSON list of objects with `options`, `policy` and `figures`."""
    return json.dumps([{"options": run.options, "policy": run.policy, "figures": run.figures} for run in runs])


def sweep_csv(runs: Sequence[SweepRun]) -> str:
    """Return the runs as CSV: a column for each varied option, the policy, and a column for each figure; empty where it is None."""
    figures = list(dict.fromkeys(key for run in runs for key in run.figures))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*runs[0].options, "policy", *figures])
    for run in runs:
        writer.writerow([*run.options.values(), run.policy, *(run.figures.get(key) for key in figures)])
    return text.getvalue()


def write_sweep(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the files into the folder. Raises SettingError."""
    for name, text in texts.items():
        try:
            (folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SettingError(f"{folder / name}: cannot be written ({error.strerror}); give another --out") from error


def sweep_table(runs: Sequence[SweepRun]) -> None:
    """Print one row for each run: the varied options, the policy, and the figures that most comparisons are about."""
    from rich.table import Table

    console = plain_console(220)
    shown = [row for row in ROWS if row.key in _SHOWN]
    table = Table(box=None, header_style="bold")
    for name in (*runs[0].options, "policy"):
        table.add_column(name)
    for row in shown:
        table.add_column(row.label, justify="right")
    for run in runs:
        figures = (text_of(row, run.figures.get(row.key)) for row in shown)
        table.add_row(*map(str, run.options.values()), run.policy, *figures)
    console.print(table)
    for label, note in sweep_notes(runs).items():
        if note:
            console.print(f"{label}: {note}")
