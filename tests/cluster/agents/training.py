"""A real Slurm with Headway and its agents, jobs that train on it, and the steps that jobs and agents report."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from controller.profiles.store import ProfileStore
from controller.profiles.tables import SAMPLES, sample
from controller.profiles.windows import Sample, Throughput
from slurm.demo.run import jobpython
from slurm.minicluster.cluster import MiniCluster
from slurm.testbed.installation import Installation
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.live import ANSWERS_S, NO_ESTIMATES, USER, Live
from tests.returning.job import EAGER_TORCH

WINDOW_S = 6.0
"""Window of throughputs: about 16 steps of a job alone."""
PAUSED = 3.0
"""Least ratio between the longest and the median step of a job that was stopped for a while."""
_LOG_END = 4000
"""Characters of a job's log in a report: enough for the stacks of a job that hangs."""
_PROGRAMS = (Path(__file__).with_name("ddp_job.py"), EAGER_TORCH)

SCRIPT = """#!/bin/bash
#SBATCH --ntasks-per-node=1 --gpus-per-node=1 --time=60 --output={name}.log
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) GLOO_SOCKET_IFNAME=eth0
{before}
srun {how} python ddp_job.py {name} {megabytes} {pause_s}
"""


class Training(Live):
    """Jobs by name. The reports of agents are read from a copy of the controller's store."""

    def train(
        self, name: str, nodes: str, *, megabytes: int, pause_s: float = 0.0, before: str = "", how: str = ""
    ) -> int:
        """Submit a job from an activated environment with torch. Return its id."""
        script = SCRIPT.format(name=name, megabytes=megabytes, pause_s=pause_s, before=before, how=how)
        where = ("--nodes", str(len(self.expand(nodes))), "--nodelist", nodes)
        return int(self.submit(script, *where))

    def submit(self, script: str, *options: str, **environment: str) -> str:
        """Run sbatch with the script on its standard input, in the environment of an ordinary user. Return the id of the job."""
        values = {**jobpython.user_environment(), **self.cluster.env, **environment}
        words = [f"{key}={value}" for key, value in values.items()]
        argv = ("env", "-i", *words, "sbatch", "--parsable", *options)
        return self.cluster.run(*argv, stdin=script, user=USER).stdout.strip()

    def said(self, file: str) -> str:
        """Return the text of a file that a job has written; empty when there is none."""
        path = self.cluster.files.work / file
        return path.read_text(errors="replace") if path.exists() else ""

    def ended_s(self, name: str, rank: int = 0) -> list[float]:
        """Return the end of each step of a job on one rank, from its own file."""
        text = self.said(f"{name}.steps.{rank}" if rank else f"{name}.steps")
        return [float(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def steps_by(self, name: str, time_s: float) -> int:
        """Return the number of steps that had ended at that time."""
        return bisect_right(self.ended_s(name), time_s)

    def was_paused(self, name: str, window: Throughput) -> bool:
        """Return whether a step in this window took much longer than the others: the machine had stopped the job."""
        ended_s = [at for at in self.ended_s(name) if window.start_s <= at < window.start_s + WINDOW_S]
        steps_s = [after - before for before, after in pairwise(ended_s)]
        return max(steps_s) > PAUSED * median(steps_s)

    def own_steps_per_s(self, name: str, window: Throughput) -> float:
        """Return the pace of a job with one rank on each node, by its own account, over the very steps that its agents saw.

        So a pause of the machine counts on both sides, also where it lies at an end of the window.
        """
        samples = [s for s in self.samples(window.run.job_id, window.start_s) if s.time_s < window.start_s + WINDOW_S]
        paces = []
        for rank, node in enumerate(window.nodes):
            steps = [s.steps for s in samples if s.node == node and s.steps and step_ended_s(s) >= window.start_s]
            first, last, ended_s = steps[0], steps[-1], self.ended_s(name, rank)
            paces.append((last - first) / (ended_s[last - 1] - ended_s[first - 1]))
        return min(paces)

    @contextmanager
    def store(self) -> Iterator[ProfileStore]:
        """Open a copy of the store as it is now."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "profiles.sqlite"
            kept = f"file:{self.headway.folder}/state/profiles.sqlite?mode=ro"
            with closing(sqlite3.connect(kept, uri=True)) as source, closing(sqlite3.connect(path)) as copy:
                source.backup(copy)
            with closing(ProfileStore(path)) as store:
                yield store

    def windows(self, job_id: int, since_s: float = 0.0) -> list[Throughput]:
        """Return the throughputs of a job in windows that began after that time."""
        with self.store() as store:
            return [item for item in store.throughputs(since_s) if item.run.job_id == job_id]

    def samples(self, job_id: int, since_s: float = 0.0) -> list[Sample]:
        """Return the reports of nodes about a job since that time, the oldest first."""
        kept = f"file:{self.headway.folder}/state/profiles.sqlite?mode=ro"
        with closing(sqlite3.connect(kept, uri=True)) as store:
            rows = store.execute(f"{SAMPLES} WHERE job_id = ? AND time_s >= ? ORDER BY time_s", (job_id, since_s))
            return [sample(row) for row in rows]

    def lost_reports(self) -> dict[str, int]:
        """Return the number of lost reports by node, over all runs of its agent."""
        kept = f"file:{self.headway.folder}/state/profiles.sqlite?mode=ro"
        with closing(sqlite3.connect(kept, uri=True)) as store:
            return dict(store.execute("SELECT node, sum(lost) FROM receipt GROUP BY node"))

    def everything(self) -> str:
        """Return queue and logs for the report of a failed test."""
        logs = [path.read_text(errors="replace")[-_LOG_END:] for path in self.cluster.files.work.glob("*.log")]
        agents = [f"{node}: {self.headway.agents.log(node)[-1500:]}" for node in self.cluster.node_names]
        return "\n".join((super().everything(), *logs, *agents))


def step_ended_s(sample: Sample) -> float:
    """Return when the last step of a sample ended, on the controller's clock."""
    assert sample.last_step_ns is not None, "it has made a step"
    return sample.time_s - (sample.monotonic_ns - sample.last_step_ns) / 1e9


@contextmanager
def training(rate: str, **settings: Any) -> Iterator[Training]:
    """Boot four nodes with an agent each, on which every user may run this Python. `settings` are those of the controller."""
    skip_unless_possible()
    name = unique_name()
    with (
        Installation.prepare(name, with_agents=True) as headway,
        MiniCluster(headway.cluster_spec(name=name, gpus=4, rate=rate)) as cluster,
    ):
        jobpython.open_to_users(cluster)
        for path in _PROGRAMS:
            shutil.copy(path, cluster.files.work)
        headway.configure(
            cluster,
            policy_deadline_s=ANSWERS_S,
            **{"agents_report_interval_s": 1.0, "agents_window_s": WINDOW_S} | NO_ESTIMATES | settings,
        )
        headway.start_policy("fifo-skip")
        headway.start_controller()
        headway.agents.start_all(cluster)
        try:
            yield Training(cluster, headway)
        finally:  # before the cluster goes: a Slurm command without a slurm.conf tries again for a minute
            for process in reversed(list(headway.processes)):
                headway.stop(process)
