"""Compare policies on a cluster of three racks whose jobs sleep. Run as root, on a machine with no other load."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from policies.learned.evaluation.statistics import Mean, change, mean_as_json
from slurm.errors import MiniClusterError
from slurm.experiments.policy_names import in_file_names, separated
from slurm.experiments.racks.live_cluster import RackCluster, rack_cluster
from slurm.experiments.racks.mix import RackJob, arrivals
from slurm.experiments.turns.racks import Ended
from slurm.prerequisites import missing
from slurm.signals import end_on_signals
from slurm.testbed.programs import InstallationError

RESULTS, FILE = Path("bench-results"), "racks.json"
USUAL = "marl:schedulers=racks;contention-greedy"
_TIMEOUT_S = 1200.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy on one repeat's arrivals."""

    policy: str
    repeat: int
    jobs: Sequence[Ended]
    forwarded: int
    """Jobs that were placed by several schedulers."""
    load_average: float

    def row(self) -> dict[str, Any]:
        """Return the figures of the turn; times are seconds."""
        jct_s = [job.jct_s for job in self.jobs]
        return {
            "policy": self.policy,
            "repeat": self.repeat,
            "jobs": len(jct_s),
            "avg_jct_s": float(np.mean(jct_s)),
            "p90_jct_s": float(np.quantile(jct_s, 0.9)),
            "avg_wait_s": float(np.mean([job.start_s - job.submit_s for job in self.jobs])),
            "nodes": float(np.mean([job.nodes for job in self.jobs])),
            "across_racks": sum(job.racks > 1 for job in self.jobs),
            "forwarded": self.forwarded,
            "load_average": self.load_average,
        }


def main() -> int:
    """The command line."""
    options = _parse()
    end_on_signals()  # the cluster goes with the command
    says = Console(stderr=True)
    if reasons := missing():
        says.print(f"[red]{'; '.join(reasons)}")
        return 2
    turns: list[Turn] = []
    RESULTS.mkdir(exist_ok=True)
    try:
        policies = separated(options.policies)
        with rack_cluster(lambda text: says.print(f"[dim]{text}", highlight=False)) as cluster:
            for repeat in range(options.repeats):
                jobs = arrivals(options.jobs, options.seed + repeat, (options.shortest, options.longest), options.load)
                for place in range(len(policies)):
                    turns.append(take_turn(cluster, jobs, policies[(place + repeat) % len(policies)], repeat))
                    says.print(f"[dim]{turns[-1].row()}", highlight=False)
                    found = {"options": vars(options), "turns": [asdict(turn) | turn.row() for turn in turns]}
                    (RESULTS / FILE).write_text(json.dumps(found, indent=1) + "\n")
    except (MiniClusterError, InstallationError) as error:
        says.print(f"[red]{error}", highlight=False)
        return 1
    rows = summary([turn.row() for turn in turns], policies)
    Console(width=140).print_json(json.dumps(rows)) if options.json else Console(width=140).print(_table(rows))
    return 0


def take_turn(cluster: RackCluster, jobs: Sequence[RackJob], policy: str, repeat: int) -> Turn:
    """Let this policy decide about these jobs, from the first submission to the last end."""
    plain = in_file_names(policy)
    named = {f"{plain}-{repeat}-{job.name}": job for job in jobs}
    began_s = time.time()
    with cluster.decided_by(policy):
        first_s = time.time()
        for name, job in named.items():
            time.sleep(max(0.0, first_s + job.submit_s - time.time()))
            cluster.start(job, name)
        cluster.wait(list(named), _TIMEOUT_S)
    return Turn(
        policy,
        repeat,
        cluster.ended({name: job.gpus for name, job in named.items()}),
        cluster.forwarded(began_s),
        os.getloadavg()[1],
    )


def summary(rows: Sequence[dict[str, Any]], policies: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each policy: means over repeats with half of their 95 % intervals, and the change of its average JCT
    against the last policy, repeat by repeat."""
    of = {policy: sorted((row for row in rows if row["policy"] == policy), key=_repeat) for policy in policies}
    last = [row["avg_jct_s"] for row in of[policies[-1]]]
    figures = ("avg_jct_s", "p90_jct_s", "avg_wait_s", "nodes")
    return [
        {
            "policy": policy,
            **{key: mean_as_json(Mean.of([row[key] for row in its])) for key in figures},
            "across_racks": sum(row["across_racks"] for row in its),
            "forwarded": sum(row["forwarded"] for row in its),
            "jobs": sum(row["jobs"] for row in its),
            "against_last": mean_as_json(change([row["avg_jct_s"] for row in its], last)),
            "load_average": max(row["load_average"] for row in its),
        }
        for policy, its in of.items()
    ]


def _repeat(row: dict[str, Any]) -> int:
    return int(row["repeat"])


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    columns = (
        "policy",
        "average JCT, s",
        "p90, s",
        "wait, s",
        "nodes a job",
        "across racks",
        "forwarded",
        "against the last",
    )
    table = Table(*columns, box=None)
    for row in rows:
        means = [f"{row[key]['mean']:.2f}" for key in ("avg_jct_s", "p90_jct_s", "avg_wait_s", "nodes")]
        counts = [f"{row[key]} of {row['jobs']}" for key in ("across_racks", "forwarded")]
        against, ci95 = row["against_last"]["mean"], row["against_last"]["ci95"]
        table.add_row(row["policy"], *means, *counts, f"{against:+.1%}" + ("" if ci95 is None else f" ± {ci95:.1%}"))
    return table


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slurm.experiments.racks", description=__doc__)
    parser.add_argument("--policies", default=USUAL, metavar="A;B;...", help=f"default {USUAL}")
    parser.add_argument("--jobs", type=int, default=40, help="number of jobs in a repeat")
    parser.add_argument("--repeats", type=int, default=3, help="number of repeats; each has other arrivals")
    parser.add_argument("--seed", type=int, default=1, help="seed of the arrivals in the first repeat")
    parser.add_argument("--load", type=float, default=1.0, help="GPUs that the jobs ask for, relative to the cluster's")
    parser.add_argument("--shortest", type=float, default=6.0, help="duration of the shortest job on one node, seconds")
    parser.add_argument("--longest", type=float, default=40.0, help="duration of the longest job on one node, seconds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
