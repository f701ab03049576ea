"""Run several policies on the same trace in parallel; print a table or JSON, and write one page. Needs no typer."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from policies.api import Policy
from policies.rule import rule_of
from simulator.errors import SettingError
from simulator.results.files import folder_name, prepare_folder, write_results
from simulator.results.metrics import Figure, summary
from simulator.runs.one import command_line, note_of, report_notes, run_to_end
from simulator.runs.options import RunOptions
from simulator.runs.process_pool import in_parallel
from simulator.runs.progress import OnProgress, bars, report_interpreted
from simulator.runs.scenario import Scenario, fallback_figures, opened_policy, report_unread, takes

REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class Compared:
    """One policy's run."""

    figures: Mapping[str, Figure]
    drawn: Mapping[str, object] | None
    """The data from which the page draws it; None without a page."""
    note: str
    """A line to print below the table; may be empty."""


def compare(options: RunOptions, names: Sequence[str], out: Path | None = None, as_json: bool = False) -> None:
    """Simulate the policies and print a table; with `out` write each one's files and a page. Raises SimulatorError, PolicyError."""
    _check(options, names)
    if out is not None:
        prepare_folder(out)
    scenario = Scenario.of(options, record=True)
    if out is not None and not len(scenario.trace):
        raise SettingError(f"{options.trace}: no job is left to draw; leave --out out, or give a larger cluster")
    report_interpreted(len(scenario.trace))
    report_unread(options.slowdown, options.cluster, scenario.cluster)
    begin = time.perf_counter()

    def work(name: str, on_progress: OnProgress) -> Compared:
        return _one(scenario, name, out, on_progress)

    with bars() as progress:
        tasks = {name: progress.add_task(name, total=1.0) for name in names}

        def show(name: str, share: float) -> None:
            progress.update(tasks[name], completed=share)
            progress.refresh()

        found = in_parallel(names, work, show)
    if out is not None:
        from simulator.runs.report.page import write_page

        write_page(out / REPORT, scenario, [each.drawn for each in found if each.drawn], command_line())
    figures = {name: each.figures for name, each in zip(names, found, strict=True)}
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")
        report_notes({name: each.note for name, each in zip(names, found, strict=True)})
        return
    _print(figures, scenario, time.perf_counter() - begin)
    for name, each in zip(names, found, strict=True):
        if each.note:
            sys.stdout.write(f"{name}: {each.note}\n")
    if out is not None:
        sys.stdout.write(f"\n{out / REPORT}\n")


def _check(options: RunOptions, names: Sequence[str]) -> None:
    """Check the policies before the trace is read. Raises PolicyLoadError, SettingError."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names or twice:
        raise SettingError(f"--policies: {twice[0]} is given twice" if twice else "--policies: give a,b,c")
    followed = [_follows_placement(name, options) for name in names]
    if options.placement is not None and not any(followed):
        raise SettingError("none of the policies takes --placement; leave it out")


def _follows_placement(name: str, options: RunOptions) -> bool:
    """Return whether --placement has an effect on that policy. Raises PolicyLoadError, SettingError."""
    with opened_policy(name, options, lenient=True) as policy:
        return rule_of(policy) is not None or takes(name, "layout")


def _one(scenario: Scenario, name: str, out: Path | None, on_progress: OnProgress) -> Compared:
    """Run one policy, in a process of its own."""
    with opened_policy(name, scenario.options, lenient=True) as policy:
        return _compared(scenario, name, policy, out, on_progress)


def _compared(scenario: Scenario, name: str, policy: Policy, out: Path | None, on_progress: OnProgress) -> Compared:
    simulation, result = run_to_end(scenario, name, policy, on_progress, own_process=True)
    figures = summary(result)
    shown = figures | fallback_figures(policy)
    if out is None:
        return Compared(shown, None, note_of(policy, result))
    from simulator.runs.report.data import of_run

    folder = out / folder_name(name)
    prepare_folder(folder)
    write_results(result, figures, folder)
    models = scenario.models(policy)
    drawn = of_run(result, figures, simulation.trace, models, scenario.cluster.topology)
    return Compared(shown, drawn, note_of(policy, result))


def _print(figures: Mapping[str, Mapping[str, Figure]], scenario: Scenario, wall_s: float) -> None:
    from simulator.results.table import plain_console, table_of, title_of

    title = title_of(scenario.trace.name, f" on {scenario.options.cluster}, all in {wall_s:.1f} s")
    plain_console(60 + 18 * len(figures)).print(table_of(list(figures), list(figures.values()), title))
