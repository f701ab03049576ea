"""Runs the benchmarks, prints a table, and writes JSON into bench-results/."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from slurm.experiments.machine import machine
from slurm.prerequisites import missing
from tests.bench.measuring.figures import Figure, Findings

ALL = (
    "cycle",
    "sbatch",
    "latency",
    "burst",
    "large",
    "idle",
    "preempt",
    "agent",
    "jobside",
    "web",
    "marl",
    "rl_taps",
    "estimates",
    "decisions",
)
"""Modules of `cases`, each with `run(quick=...) -> Findings`."""
LONG = ("size", "backlog", "starts", "formats")
"""Others that take long, and run only when they are named."""
_NO_SLURM = frozenset({"cycle", "jobside", "marl", "rl_taps", "web", "estimates", "decisions"})
RESULTS = Path("bench-results")


def main() -> int:
    """Run the command line. The exit status is 1 if a target was missed, 2 if a benchmark failed."""
    arguments = _parse()
    says = Console(stderr=True)
    reasons = missing()
    found: list[Findings] = []
    broken = False
    for name in arguments.only or ALL:
        if reasons and name not in _NO_SLURM:
            says.print(f"[yellow]{name}: left out: {'; '.join(reasons)}")
            continue
        says.print(f"[dim]{name} ...")
        begun_s = time.monotonic()
        try:
            found.append(importlib.import_module(f"tests.bench.cases.{name}").run(quick=arguments.quick))
        except Exception:  # noqa: BLE001 - one that breaks must not take the others' figures with it
            says.print_exception()
            broken = True
        says.print(f"[dim]{name}: {time.monotonic() - begun_s:.0f} s")
    report = _report(found, quick=arguments.quick)
    path = _write(report)
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        out = Console()
        wide = out if out.is_terminal else Console(width=150)
        wide.print(_table([figure for findings in found for figure in findings.figures]))
    says.print(f"[dim]{path}")
    missed = any(figure.met is False for findings in found for figure in findings.figures)
    return 2 if broken else int(missed)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=(*ALL, *LONG), metavar="NAME", help=f"one of {', '.join((*ALL, *LONG))}"
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller samples, for a look within minutes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return parser.parse_args()


def _report(found: list[Findings], *, quick: bool) -> dict[str, Any]:
    return {
        "machine": machine(),
        "quick": quick,
        "figures": [figure.as_json() for findings in found for figure in findings.figures],
        "samples": {findings.benchmark: findings.samples for findings in found},
    }


def _write(report: dict[str, Any]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def _table(figures: list[Figure]) -> Table:
    table = Table(title="Headway benchmarks")
    for heading, justify in (("benchmark", "left"), ("figure", "left"), ("value", "right"), ("target", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column("", justify="center")
    table.add_column("detail", style="dim")
    last = ""
    for figure in figures:
        verdict = {None: "", True: "[green]met", False: "[red]missed"}[figure.met]
        target = "" if figure.at_most is None else f"≤ {figure.at_most:g} {figure.unit}"
        name = figure.benchmark if figure.benchmark != last else ""
        table.add_row(name, figure.name, f"{figure.value:.3g} {figure.unit}", target, verdict, figure.note)
        last = figure.benchmark
    return table


if __name__ == "__main__":
    sys.exit(main())
