"""Compare the JCT of learned policies and heuristics on the same real DDP jobs. Run as root, on a machine with no other load."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from slurm.prerequisites import missing
from tests.bench.measuring.figures import machine
from tests.contest.contest import Plan, Turn, hold, summary
from tests.contest.ground import ContestError

RESULTS, FILE = Path("bench-results"), "contest.json"
POLICIES = "headway-rl,rl-hybrid,srtf,las"


def main() -> int:
    """The command line."""
    options = _parse()
    says = Console(stderr=True)
    if reasons := missing():
        says.print(f"[red]{'; '.join(reasons)}")
        return 2
    plan = Plan(
        policies=tuple(options.policies.split(",")),
        jobs=options.jobs,
        repeats=options.repeats,
        rate=options.rate,
        seed=options.seed,
        load=options.load,
        length_s=(options.shortest, options.longest),
        preemption=options.preemption,
    )
    RESULTS.mkdir(exist_ok=True)
    try:
        turns = hold(plan, lambda text: says.print(f"[dim]{text}", highlight=False), lambda found: _keep(plan, found))
    except ContestError as error:
        says.print(f"[red]{error}", highlight=False)
        return 1
    rows = summary(turns, plan.policies)
    if options.json:
        print((RESULTS / FILE).read_text())
    else:
        Console(width=120).print(_table(rows))
    return 0


def _keep(plan: Plan, turns: Sequence[Turn]) -> None:
    rows = summary(turns, plan.policies)
    found = {"plan": asdict(plan), "machine": machine(), "summary": rows, "turns": [asdict(turn) for turn in turns]}
    (RESULTS / FILE).write_text(json.dumps(found, indent=1) + "\n")


def _table(rows: list) -> Table:  # type: ignore[type-arg]
    others = [row["policy"] for row in rows]
    table = Table(
        "policy", "average JCT, s", "p90 JCT, s", "stops", *(f"against {other}" for other in others), box=None
    )
    for row in rows:
        against = [_share(row["against"][other]) if other in row["against"] else "" for other in others]
        table.add_row(
            row["policy"], _seconds(row["avg_jct_s"]), _seconds(row["p90_jct_s"]), str(row["stops"]), *against
        )
    return table


def _seconds(pair: dict[str, float | None]) -> str:
    return f"{pair['mean']:.1f}" + (f" ± {pair['ci95']:.1f}" if pair["ci95"] is not None else "")


def _share(pair: dict[str, float | None]) -> str:
    return f"{100 * (pair['mean'] or 0):+.1f} %" + (f" ± {100 * pair['ci95']:.1f}" if pair["ci95"] is not None else "")


def _parse() -> argparse.Namespace:
    usual = Plan(policies=())
    parser = argparse.ArgumentParser(prog="python -m tests.contest", description=__doc__)
    parser.add_argument("--policies", default=POLICIES, metavar="A,B,...", help=f"default {POLICIES}")
    parser.add_argument("--jobs", type=int, default=usual.jobs, help="number of jobs in a repeat")
    parser.add_argument("--repeats", type=int, default=usual.repeats, help="number of repeats; each has other arrivals")
    parser.add_argument("--rate", default=usual.rate, help="rate of each NIC")
    parser.add_argument("--seed", type=int, default=usual.seed, help="seed of the arrivals in the first repeat")
    parser.add_argument("--load", type=float, default=usual.load, help="requested GPU time over available GPU time")
    parser.add_argument(
        "--shortest",
        type=float,
        default=usual.length_s[0],
        help="duration of the shortest job when it runs alone, seconds",
    )
    parser.add_argument(
        "--longest",
        type=float,
        default=usual.length_s[1],
        help="duration of the longest job when it runs alone, seconds",
    )
    parser.add_argument(
        "--preemption", default=usual.preemption, choices=("off", "automatic"), help="whether policies may stop jobs"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
