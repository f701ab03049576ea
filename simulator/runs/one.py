"""One run from the command line: simulate, write, print. Needs no typer."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from policies.api import Policy
from simulator.engine.simulation import Simulation
from simulator.results.files import prepare_folder, write_results
from simulator.results.metrics import summary
from simulator.results.result import Result
from simulator.runs.options import RunOptions
from simulator.runs.progress import Bar, OnProgress, collect_seldom, drive, report_interpreted
from simulator.runs.scenario import Scenario, fallback_figures, fallback_note, opened_policy, report_unread


def run(options: RunOptions, policy: str, out: Path | None = None, as_json: bool = False) -> None:
    """Simulate one policy and print its figures; with `out` write its jobs and series too. Raises SimulatorError, PolicyError."""
    if out is not None:
        prepare_folder(out)
    with opened_policy(policy, options) as made:
        scenario = Scenario.of(options, record=out is not None)
        report_interpreted(len(scenario.trace))
        report_unread(options.slowdown, options.cluster, scenario.cluster)
        with Bar(f"{policy} on {scenario.trace.name}") as bar:
            _, result = run_to_end(scenario, policy, made, bar.on_progress, own_process=True)
        note, by_fallback = note_of(made, result), fallback_figures(made)
    figures = summary(result)
    if out is not None:
        write_results(result, figures, out)
    if as_json:
        sys.stdout.write(json.dumps(figures | by_fallback) + "\n")
        report_notes({policy: note})
        return
    from simulator.results.table import lines_of

    sys.stdout.write("\n".join([f"{policy} on {result.trace_name}, {options.cluster}", *lines_of(figures), ""]))
    if note:
        sys.stdout.write(note + "\n")


def result_of(options: RunOptions, policy: str, *, record: bool = False) -> Result:
    """Run that policy in this process and return the result, for notebooks. Raises SimulatorError, PolicyError.

    `record`: with the state of the cluster over time, and every run of every job.
    """
    with opened_policy(policy, options) as made:
        return run_to_end(Scenario.of(options, record=record), policy, made)[1]


def run_to_end(
    scenario: Scenario, name: str, policy: Policy, on_progress: OnProgress | None = None, *, own_process: bool = False
) -> tuple[Simulation, Result]:
    """Run that policy. Returns the simulation and its result.

    `own_process`: this process exists for the run alone, so its objects need not be looked through for garbage.
    """
    begin = time.perf_counter()
    simulation = scenario.simulation(policy)
    if own_process:
        collect_seldom()
    drive(simulation, on_progress)
    wall_s = time.perf_counter() - begin
    assumptions = scenario.assumptions(name, policy) | {"command": command_line()}
    return simulation, Result.of(
        simulation, name, wall_s, dropped=scenario.dropped, begin_ns=scenario.begin_ns, assumptions=assumptions
    )


def note_of(policy: Policy, result: Result) -> str:
    """Return a line about what a run's figures do not show: decisions of a fallback, and unfinished jobs; may be empty."""
    left = len(result) - int(result.done.sum())
    unfinished = f"{left:,} of {len(result):,} jobs never finished and are in no mean: the policy could not place them"
    return "; ".join(filter(None, (fallback_note(policy), unfinished if left else "")))


def report_notes(notes: Mapping[str, str]) -> None:
    """Write what is not empty to standard error, behind the policy's name; standard output has JSON alone."""
    for name, note in notes.items():
        if note:
            sys.stderr.write(f"headway-sim: {name}: {note}\n")


def command_line() -> str:
    """Return the command that was given, quoted for a shell."""
    return shlex.join(["headway-sim", *sys.argv[1:]])
