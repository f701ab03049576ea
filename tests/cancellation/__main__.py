"""`python -m tests.cancellation`: cut every await of the scripted runs, and say what was broken."""

from __future__ import annotations

import argparse
import os
import sys

from tests.cancellation.many import RUNS, Tally, cut_all, jobs_of
from tests.cancellation.points import Cut

_ALL = 10**9


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns 1 when something was broken."""
    options = _parser().parse_args(arguments)
    jobs = jobs_of(options.run or RUNS, options.most, [Cut[name] for name in options.cut or Cut.__members__])
    print(f"{len(jobs)} runs", flush=True)
    tally = cut_all(jobs, options.processes, note=_progress)
    _print(tally)
    return 1 if tally.violations else 0


def _progress(done: int, found: list[str]) -> None:
    for text in found:
        print(f"  {text}", flush=True)
    if done % 50 == 0:
        print(f"{done} runs", flush=True)


def _print(tally: Tally) -> None:
    for name, number in tally.cut.items():
        print(f"{name}: {number} awaits were cut; the program ended and was restarted after {tally.ended[name]}")
    print(f"{len(tally.missed)} awaits did not come again; {len(tally.violations)} violations")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cancellation", description=__doc__)
    parser.add_argument("--run", action="append", choices=sorted(RUNS), help="only this run (may be repeated)")
    parser.add_argument("--cut", action="append", choices=sorted(Cut.__members__), help="only this kind of cut")
    parser.add_argument(
        "--most", type=int, default=_ALL, metavar="N", help="of each place in the code, the first N awaits"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="runs at a time")
    return parser


if __name__ == "__main__":
    sys.exit(main())
