"""`python -m tests.parity`: play the cases on Slurm alone and under Headway (as root), and print where they differ."""

from __future__ import annotations

import argparse
import json
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

from rich.console import Console

from slurm.experiments.machine import machine
from slurm.prerequisites import missing
from slurm.signals import end_on_signals
from tests.parity.case import Case
from tests.parity.cases import SUBJECTS
from tests.parity.judge.verdict import Verdict
from tests.parity.many import play_all
from tests.parity.report.page import page
from tests.parity.report.record import Origin, OtherOriginError, commit_here, read, write
from tests.parity.report.result import Run
from tests.parity.report.table import summary, table

DEFAULT_POLICY = "backfill:order=slurm"
"""The default of installations."""


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns 1 where Headway is worse and the documents do not say so, 2 if nothing could be played."""
    options = _parser().parse_args(arguments)
    cases = chosen(options.only)
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    release = str(machine()["slurm"]).removeprefix("slurm-wlm ").removeprefix("slurm ") if not missing() else ""
    if problem := "; ".join(missing()) or _wrong_release(options.release, release) or ("" if cases else "no such case"):
        print(problem, file=sys.stderr)
        return 2
    origin = Origin(commit_here(), release, options.policy)
    try:
        kept = read(options.record, origin) if options.record is not None else {}
    except OtherOriginError as error:
        print(error, file=sys.stderr)
        return 2
    end_on_signals()  # the clusters go with the command
    begun_s = time.monotonic()

    def says(text: str) -> None:
        print(f"{time.monotonic() - begun_s:5.0f} s  {text}", file=sys.stderr, flush=True)

    run = Run(release, options.policy, play_all(cases, options.policy, says, options.lots, kept, release=release))
    if options.record is not None:
        write(options.record, run.results, origin)
    says(summary(run))
    _print(run, as_json=options.json, everything=options.all)
    if options.docs is not None:
        options.docs.write_text(page(run))
    return 1 if run.is_worse else 0


def chosen(patterns: list[str] | None) -> list[Case]:
    """Return the cases whose names, or the names of whose subjects, match one of the patterns; all without patterns."""
    return [
        case
        for subject, cases in SUBJECTS.items()
        for case in cases
        if not patterns or any(fnmatch(case.name, pattern) or fnmatch(subject, pattern) for pattern in patterns)
    ]


def _wrong_release(wanted: str | None, installed: str) -> str:
    if wanted is None or installed.startswith(wanted):
        return ""
    return (
        f"--release {wanted}: the Slurm that is installed here is {installed}. "
        f"`python -m tests.releases --release {wanted} --only parity` plays the cases in a root with Slurm {wanted}."
    )


def _print(run: Run, *, as_json: bool, everything: bool) -> None:
    if as_json:
        record = {"release": run.release, "policy": run.policy, "cases": [result.as_json() for result in run.results]}
        print(json.dumps(record, indent=1))
        return
    console = Console()
    wide = console if console.is_terminal else Console(width=180)
    kept = [result for result in run.results if everything or result.judgement.verdict is not Verdict.EQUAL]
    wide.print(table(Run(run.release, run.policy, kept)))
    wide.print(summary(run))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("--release", metavar="R", help="refuse to run on another release of Slurm than this (22.05)")
    parser.add_argument("--only", action="append", metavar="GLOB", help="play only cases or subjects of such names")
    parser.add_argument("--policy", default=DEFAULT_POLICY, help="policy of Headway (default: %(default)s)")
    parser.add_argument(
        "--lots", type=int, metavar="N", help="cases at a time (default and most: as many as the cluster has lots)"
    )
    parser.add_argument("--all", action="store_true", help="print the cases that are equal, too")
    parser.add_argument("--json", action="store_true", help="print both outcomes of every case as JSON")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the page docs/parity.md")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="keep the outcomes there, with those of before; these must be of the same commit, release and policy",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cases, and play none")
    return parser


if __name__ == "__main__":
    sys.exit(main())
