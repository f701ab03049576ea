"""Compare policies that resize on the same real elastic DDP jobs. Run as root, on a machine with no other load."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from slurm.errors import MiniClusterError
from slurm.experiments.elastic.live_cluster import ElasticCluster, Ended, Stops, elastic_cluster
from slurm.experiments.elastic.mix import ElasticJob, arrivals
from slurm.experiments.policy_names import in_file_names, separated
from slurm.prerequisites import missing
from slurm.signals import end_on_signals
from slurm.testbed.programs import InstallationError

RESULTS, FILE = Path("bench-results"), "elastic.json"
_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy on one repeat's arrivals."""

    policy: str
    repeat: int
    jobs: Sequence[Ended]
    stops: Stops
    load_average: tuple[float, float, float]

    def row(self) -> dict[str, Any]:
        """Return the figures of the turn."""
        jct_s = [job.jct_s for job in self.jobs]
        lived_s = sum(job.end_s - job.begin_s for job in self.jobs)
        return {
            "policy": self.policy,
            "repeat": self.repeat,
            "jobs": len(jct_s),
            "avg_jct_s": float(np.mean(jct_s)),
            "p90_jct_s": float(np.quantile(jct_s, 0.9)),
            "runs": sum(len(job.gpus) for job in self.jobs),
            "resizes": sum(one != next_one for job in self.jobs for one, next_one in pairwise(job.gpus)),
            "same_size": sum(one == next_one for job in self.jobs for one, next_one in pairwise(job.gpus)),
            "stops": self.stops.count,
            "called_off": self.stops.called_off,
            "steps_lost": sum(map(self._steps_lost, self.jobs)),
            "not_saved": sum(max(0, len(job.gpus) - 1 - len(self._saved(job))) for job in self.jobs),
            "adjusting_share": self.stops.adjusting_s / lived_s,
            "restarting_share": self.stops.restarting_s / lived_s,
            "load_average": self.load_average[1],
        }

    def _saved(self, job: Ended) -> tuple[int, ...]:
        return self.stops.saved_steps.get(job.job_id, ())

    def _steps_lost(self, job: Ended) -> int:
        """Return the steps that the job made again after its stops: from where a run began to the save before it."""
        return sum(max(0, step - first) for step, first in zip(self._saved(job), job.first_steps[1:], strict=False))


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
        with elastic_cluster(
            options.nodes, options.gpus, options.stops, lambda text: says.print(f"[dim]{text}", highlight=False)
        ) as booted:
            for repeat in range(options.repeats):
                jobs = arrivals(
                    options.jobs, options.seed + repeat, (options.shortest, options.longest), options.gap,
                    options.nodes * options.gpus,
                )  # fmt: skip
                for place in range(len(policies)):
                    policy = policies[(place + repeat) % len(policies)]
                    turns.append(take_turn(booted, jobs, policy, repeat))
                    says.print(f"[dim]{turns[-1].row()}", highlight=False)
                    found = {"options": vars(options), "turns": [turn.row() for turn in turns]}
                    found["details"] = [asdict(turn) for turn in turns]
                    (RESULTS / FILE).write_text(json.dumps(found, indent=1) + "\n")
    except (MiniClusterError, InstallationError) as error:
        says.print(f"[red]{error}", highlight=False)
        return 1
    rows = [turn.row() for turn in turns]
    Console(width=120).print_json(json.dumps(rows)) if options.json else Console(width=120).print(_table(rows))
    return 0


def take_turn(booted: ElasticCluster, jobs: Sequence[ElasticJob], policy: str, repeat: int) -> Turn:
    """Let this policy decide about these jobs, from the first submission to the last end."""
    plain = in_file_names(policy)
    names = [f"{plain}-{repeat}-{job.name}" for job in jobs]
    with booted.decided_by(policy):
        began_s = time.time()
        for job, name in zip(jobs, names, strict=True):
            time.sleep(max(0.0, began_s + job.submit_s - time.time()))
            booted.start(job, name)
        booted.wait(names, _TIMEOUT_S)
        time.sleep(3.0)  # until the agents have reported the last steps
    return Turn(policy, repeat, [booted.ended(name) for name in names], booted.stops(began_s), os.getloadavg())


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    names = (
        "policy",
        "repeat",
        "jobs",
        "average JCT, s",
        "p90 JCT, s",
        "stops",
        "resizes",
        "steps lost",
        "adjusting",
        "load",
    )
    table = Table(*names, box=None)
    for row in rows:
        table.add_row(
            row["policy"], str(row["repeat"]), str(row["jobs"]), f"{row['avg_jct_s']:.1f}", f"{row['p90_jct_s']:.1f}",
            str(row["stops"]), str(row["resizes"]), str(row["steps_lost"]), f"{row['adjusting_share']:.1%}",
            f"{row['load_average']:.0f}",
        )  # fmt: skip
    return table


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slurm.experiments.elastic", description=__doc__)
    usual = "dl2:round_s=30;drf:elastic=true,round_s=30"
    parser.add_argument("--policies", default=usual, metavar="A;B;...", help=f"default {usual}")
    parser.add_argument("--jobs", type=int, default=20, help="number of jobs in a repeat")
    parser.add_argument("--repeats", type=int, default=1, help="number of repeats; each has other arrivals")
    parser.add_argument("--seed", type=int, default=1, help="seed of the arrivals in the first repeat")
    parser.add_argument("--nodes", type=int, default=2, help="number of nodes")
    parser.add_argument("--gpus", type=int, default=4, help="GPUs of each node")
    parser.add_argument(
        "--shortest", type=float, default=20.0, help="duration of the shortest job at its requested size, seconds"
    )
    parser.add_argument(
        "--longest", type=float, default=120.0, help="duration of the longest job at its requested size, seconds"
    )
    parser.add_argument("--gap", type=float, default=10.0, help="mean time between two submissions, seconds")
    parser.add_argument(
        "--stops",
        type=int,
        default=2,
        help="number of times an hour that policies may stop a job; then it keeps its size",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
