"""Compare policies on racks with narrow uplinks, predicted and on a real Slurm.

`predict` asks the simulator; `run` lets policies take turns on a mini-cluster with emulated jobs (as root), and adds each turn to
a file; `report` prints both from such files.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from slurm.errors import MiniClusterError
from slurm.experiments.errors import ExperimentError
from slurm.experiments.policy_names import in_file_names, separated
from slurm.experiments.uplinks import mix
from slurm.experiments.uplinks.live_cluster import UplinkCluster, uplink_cluster
from slurm.experiments.uplinks.mix import Job
from slurm.experiments.uplinks.predict import predicted
from slurm.experiments.uplinks.summary import CONTROLS, Turn, summary
from slurm.prerequisites import missing
from slurm.signals import end_on_signals
from slurm.testbed.programs import InstallationError

_TIMEOUT_S = 1500.0


def main() -> int:
    """The command line."""
    options = _parse()
    try:
        policies = separated(options.policies)
        if options.command == "run":
            return _run(options, policies)
        turns = _read(options.files) if options.files else []
        seeds = sorted({turn.seed for turn in turns}) or options.seeds
        jobs = _jobs_of(turns) if turns else options.jobs
        guesses = [predicted(mix.arrivals(seed, jobs), policy, seed) for seed in seeds for policy in policies]
        _print({"predicted": summary(guesses)} | ({"measured": summary(turns)} if turns else {}), as_json=options.json)
    except (MiniClusterError, InstallationError) as error:
        Console(stderr=True).print(f"[red]{error}", highlight=False)
        return 1
    return 0


def _run(options: argparse.Namespace, policies: Sequence[str]) -> int:
    """Let each policy take a turn for each seed; later seeds begin with another policy."""
    end_on_signals()  # the cluster goes with the command
    says = Console(stderr=True)
    if reasons := missing():
        says.print(f"[red]{'; '.join(reasons)}")
        return 2
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = _rows(options.out) if options.out.exists() else []
    with uplink_cluster(lambda text: says.print(f"[dim]{text}", highlight=False)) as cluster:
        for seed in options.seeds:
            jobs = mix.arrivals(seed, options.jobs)
            for place in range(len(policies)):
                turn, facts = take_turn(cluster, jobs, policies[(place + seed) % len(policies)], seed)
                found.append({**asdict(turn), **facts})
                options.out.write_text(json.dumps(found, indent=1) + "\n")
                says.print(f"[dim]{seed} {turn.policy}: average JCT {turn.avg_jct_s:.1f} s, p90 {turn.p90_jct_s:.1f} s")
    return 0


def take_turn(cluster: UplinkCluster, jobs: Sequence[Job], policy: str, seed: int) -> tuple[Turn, dict[str, Any]]:
    """Let this policy decide about these jobs, from the first submission to the last end; give also what else was seen.

    Raises ExperimentError if a decision was made without the profiles.
    """
    named = {f"{in_file_names(policy)}-{seed}-{job.name}": job for job in jobs}
    began_s = time.time()
    with cluster.decided_by(policy):
        first_s = time.time()
        for name, job in named.items():
            time.sleep(max(0.0, first_s + job.submit_s - time.time()))
            cluster.begin(job, name)
        cluster.wait_ended(list(named), _TIMEOUT_S)
    if blind := cluster.decided_without_profile(began_s):
        raise ExperimentError(f"{policy}: {blind} placements were decided without the profile of the model")
    ended = cluster.ended({name: job.gpus for name, job in named.items()})
    length_s = max(job.end_s for job in ended) - min(job.submit_s for job in ended)
    turn = Turn(policy, seed, tuple(job.jct_s for job in ended), length_s)
    return turn, {"jobs": [asdict(job) for job in ended], "load_average": os.getloadavg(), "began_s": began_s}


def _read(files: Iterable[Path]) -> list[Turn]:
    """Return the turns in files of `run`. Raises ExperimentError."""
    rows = [row for path in files for row in _rows(path)]
    return [Turn(row["policy"], row["seed"], tuple(row["jct_s"]), row["makespan_s"]) for row in rows]


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the turns of a file, as they are written. Raises ExperimentError for a file that is none of `run`."""
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text())
        for row in rows:
            if not (isinstance(row["policy"], str) and isinstance(row["seed"], int) and row["makespan_s"] >= 0):
                raise ValueError(row["policy"])
            tuple(map(float, row["jct_s"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExperimentError(f"{path}: has no turns ({error!r}); give files that `run --out` wrote") from error
    return rows


def _jobs_of(turns: Sequence[Turn]) -> int:
    """Return the number of jobs of these turns. Raises ExperimentError where they differ."""
    numbers = sorted({len(turn.jct_s) for turn in turns})
    if len(numbers) > 1:
        raise ExperimentError(
            f"the turns have {' or '.join(map(str, numbers))} jobs; report those of one number at a time"
        )
    return numbers[0]


def _print(tables: dict[str, list[dict[str, Any]]], *, as_json: bool) -> None:
    says = Console(width=160)
    if as_json:
        says.print_json(json.dumps(tables))
        return
    for title, rows in tables.items():
        figures = [(figure, control) for figure in ("avg_jct_s", "p90_jct_s") for control in CONTROLS]
        heads = [f"{'average' if figure[0] == 'a' else 'p90'} against {control}" for figure, control in figures]
        table = Table(
            "policy", "average JCT, s", "p90, s", "makespan, s", *heads, "average by seed", box=None, title=title
        )
        for row in rows:
            means = [f"{row[key]:.1f}" for key in ("avg_jct_s", "p90_jct_s", "makespan_s")]
            changes = [_text(row.get(f"{figure}_against_{control}")) for figure, control in figures]
            table.add_row(row["policy"], *means, *changes, ", ".join(f"{each:.1f}" for each in row["avg_by_seed"]))
        says.print(table)


def _text(change: dict[str, float | None] | None) -> str:
    if change is None or change["mean"] is None:
        return ""
    return f"{change['mean']:+.1%}" + ("" if change["ci95"] is None else f" ± {100 * change['ci95']:.1f}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m slurm.experiments.uplinks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("predict", "run", "report"))
    parser.add_argument("files", nargs="*", type=Path, help="for report: files of `run --out`")
    usual = ";".join(mix.POLICIES)
    parser.add_argument("--policies", default=usual, metavar="A;B;...", help=f"default {usual}")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(mix.SEEDS), help="seeds of the arrivals")
    parser.add_argument("--jobs", type=int, default=mix.JOBS, help="number of jobs for each seed")
    parser.add_argument("--out", type=Path, default=Path("bench-results/uplinks.json"), help="for run: its results")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
