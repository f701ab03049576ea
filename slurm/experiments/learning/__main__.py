"""Let `dl2` learn on a real Slurm until an attempt to make better weights has ended. Run as root.

The policy begins with its shipped weights and a history of jobs of the same mix. Emulated elastic jobs report steps to agents, and
the policy server makes its rewards of them. When enough jobs have ended, it compares the copy that has learned from them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from policies.api import LearningStatus
from policies.learned.dl2.learning.history import History, HistoryLimits
from policies.serving.client import PolicyClient
from slurm.errors import MiniClusterError
from slurm.experiments.errors import ExperimentError
from slurm.experiments.learning.live_cluster import LearningCluster, learning_cluster
from slurm.experiments.learning.workload import FILE, Workload, arrivals, history
from slurm.prerequisites import missing
from slurm.signals import end_on_signals
from slurm.testbed.programs import InstallationError

_JOBS_S = 3600.0
_ATTEMPT_S = 5400.0
_READ_S = 5.0
_EVENTS = ("attempt_begins", "attempt_ended", "feedback")


@dataclass(frozen=True, slots=True)
class Found:
    """Result of the experiment: the state of the learning before and after the attempt."""

    workload: Workload
    first_weights: str
    """Digest of the weights that it began with."""
    before_attempt: LearningStatus
    """The last state before an attempt began."""
    at_end: LearningStatus
    avg_jct_s: float
    load_average: tuple[float, float, float]
    log: tuple[str, ...]
    """Lines of the policy server's log about samples and attempts."""

    def row(self) -> dict[str, Any]:
        """Return the figures that the table shows."""
        end = self.at_end
        return {
            "samples": end.feedback_samples,
            "updates": end.feedback_updates,
            "decisions left out": end.feedback_left_out,
            "samples before the attempt": self.before_attempt.feedback_samples,
            "updates before the attempt": self.before_attempt.feedback_updates,
            "jobs of the history": end.history_jobs,
            "attempts": end.attempts,
            "promotions": end.promotions,
            "last result": end.last_result,
            "reason": end.last_reason,
            "change": end.change,
            "ci95": end.ci95,
            "weights changed": end.weights_sha256 != self.first_weights,
            "average JCT, s": self.avg_jct_s,
            "load average": self.load_average[1],
        }


def learn(cluster: LearningCluster, workload: Workload) -> Found:
    """Run the workload's jobs, and wait for an attempt. Raises ExperimentError if something takes too long."""
    folder = cluster.headway.folder / "learned"
    past = History(folder / "history.log", HistoryLimits(5000, 1e9))
    past.open(time.time())
    past.append(history(workload, time.time()))
    policy = f"dl2:learn={folder},learn_every_s=0,learn_rounds={workload.learn_rounds},round_s={workload.slot_s}"
    jobs = arrivals(workload.jobs, workload.seed, workload)
    with cluster.decided_by(policy) as address:
        first = before = status_of(address)
        began_s, waiting = time.time(), list(jobs)
        ends_s: dict[str, float] = {}
        while len(ends_s) < len(jobs):
            while waiting and time.time() - began_s >= waiting[0].submit_s:
                cluster.start(waiting.pop(0))
            begun = jobs[: len(jobs) - len(waiting)]
            ends_s |= {job.name: time.time() for job in begun if job.name not in ends_s and cluster.has_ended(job.name)}
            now = status_of(address)
            before = before if now.training or now.attempts else now
            if time.time() - began_s > _JOBS_S:
                raise ExperimentError(f"{len(jobs) - len(ends_s)} jobs have not ended after {_JOBS_S:g} s")
            time.sleep(1.0)
        deadline = time.monotonic() + _ATTEMPT_S
        while not (now := status_of(address)).attempts:
            if time.monotonic() > deadline:
                raise ExperimentError(f"no attempt has ended after {_ATTEMPT_S:g} s: {now}")
            before = before if now.training else now
            time.sleep(_READ_S)
        log = cluster.headway.log(cluster.deciding).splitlines()
    jct_s = [ends_s[job.name] - began_s - job.submit_s for job in jobs]
    lines = tuple(line for line in log if any(event in line for event in _EVENTS))
    return Found(workload, first.weights_sha256, before, now, sum(jct_s) / len(jct_s), os.getloadavg(), lines)


def status_of(address: str) -> LearningStatus:
    """Return the state of the learning, as the policy server describes it. Raises ExperimentError if it does not learn."""

    async def ask() -> LearningStatus | None:
        async with PolicyClient(address) as client:
            return (await client.describe(30.0)).learning

    status = asyncio.run(ask())
    if status is None:
        raise ExperimentError(f"the policy at {address} does not learn")
    return status


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m slurm.experiments.learning", description=__doc__)
    parser.add_argument(
        "--workload", type=Path, default=FILE, help="file like slurm/experiments/learning/workload.toml"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    end_on_signals()  # the cluster goes with the command
    says = Console(stderr=True)
    if reasons := missing():
        says.print(f"[red]{'; '.join(reasons)}")
        return 2
    try:
        workload = Workload.read(options.workload)
        with learning_cluster(workload, lambda text: says.print(f"[dim]{text}", highlight=False)) as cluster:
            found = learn(cluster, workload)
    except (ExperimentError, MiniClusterError, InstallationError) as error:
        says.print(f"[red]{error}", highlight=False)
        return 1
    out = Console(width=120)
    if options.json:
        out.print_json(json.dumps(found.row() | {"details": asdict(found)}))
        return 0
    table = Table("figure", "value", box=None)
    for name, value in found.row().items():
        table.add_row(name, f"{value:.3g}" if isinstance(value, float) else str(value))
    out.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
