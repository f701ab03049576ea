"""A mini-cluster with Headway, on which the jobs of the mix can be submitted and observed."""

from __future__ import annotations

import itertools
import json
import os
import pwd
import re
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from slurm.demo.run import jobpython
from slurm.demo.run.real import USER
from slurm.experiments.errors import ExperimentError
from slurm.experiments.fidelity.mix import GPUS, NODES, WIDTH, TrainingJob
from slurm.experiments.fidelity.records import Run
from slurm.experiments.slurm_log import Times, times_of
from slurm.minicluster.cluster import MiniCluster
from slurm.minicluster.host.network import LinkBytes
from slurm.testbed.installation import Installation
from slurm.testbed.leftovers import remove_leftovers

TCP = ("net.ipv4.tcp_congestion_control=reno", "net.ipv4.tcp_slow_start_after_idle=0")
"""Settings of the nodes, as on clusters for training: a flow that pauses during computation resumes at its former rate."""
_JOB_FILES = Path(__file__).parents[1] / "jobs"
_WARM_S = 180.0
_NODE_LIST = re.compile(r" NodeList=(\S+)")
_numbers = itertools.count(1)

_SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes} --ntasks-per-node=1 --gpus-per-node={gpus}
#SBATCH --time={limit} --output={name}.log
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
srun python -S -E rank.py . {name}.json
"""


@dataclass
class LiveCluster:
    """One cluster. Invariant: job names are never used twice, so that Headway has no history of durations."""

    headway: Installation
    cluster: MiniCluster
    folder: Path
    """Folder of the jobs: scripts, plans, logs and reports."""
    _jobs: dict[str, str] = field(default_factory=dict)
    """Name of a job that was submitted → its id."""

    def submit(self, job: TrainingJob, name: str) -> None:
        """Run sbatch as an ordinary user. Raises ExperimentError for a name that has been used."""
        if name in self._jobs:
            raise ExperimentError(
                f"{name}: a job of this name has run; its report would be taken for that of the new one"
            )
        kind, report = job.kind, str(self.folder / f"{name}.report")
        plan: dict[str, str | float] = {
            "layers": kind.layers,
            "width": WIDTH,
            "forward_s": kind.forward_s,
            "backward_s": kind.backward_s,
        }
        plan |= {"steps": job.steps, "seed": job.seed, "report": report}
        self._write(f"{name}.json", json.dumps(plan))
        script = _SCRIPT.format(name=name, nodes=job.nodes, gpus=job.gpus_per_node, limit=job.limit_min)
        self._write(f"{name}.sbatch", script)
        words = [f"{key}={value}" for key, value in {**jobpython.user_environment(), **self.cluster.env}.items()]
        done = self.cluster.run(
            "env", "-i", *words, "sbatch", "--parsable", f"{name}.sbatch", user=USER, cwd=self.folder
        )
        self._jobs[name] = done.stdout.strip()

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def times(self) -> Times:
        """Return the times in slurmctld's log so far."""
        return times_of((self.cluster.files.log / "slurmctld.log").read_text(errors="replace"))

    def wait(self, names: Sequence[str], timeout_s: float) -> None:
        """Wait until these jobs have ended. Raises ExperimentError if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while late := [name for name in names if self._jobs[name] not in self.times().ended]:
            if time.monotonic() > deadline:
                raise ExperimentError(f"not done after {timeout_s:g} s: {', '.join(late)}; {self._last_words(late[0])}")
            time.sleep(0.5)

    def run_of(self, name: str) -> Run:
        """Return the run of a job that has ended. Raises ExperimentError if it has not trained to its end."""
        job_id, times = self._jobs[name], self.times()
        path = self.folder / f"{name}.report"
        if not path.exists():
            raise ExperimentError(f"{name}: it has ended without a report; {self._last_words(name)}")
        report = json.loads(path.read_text())
        return Run(
            name=name,
            submit_s=times.submitted[job_id],
            start_s=times.started[job_id],
            end_s=times.ended[job_id],
            nodes=self._nodes(job_id),
            begun_s=report["begun_s"],
            times_s=tuple(round(each, 4) for each in report["times_s"]),
            forward_s=fmean(report["forward_s"]),
        )

    def _nodes(self, job_id: str) -> tuple[str, ...]:
        shown = self.cluster.run("scontrol", "-o", "show", "job", job_id).stdout
        names = _NODE_LIST.search(shown)
        assert names is not None, shown
        return tuple(self.cluster.run("scontrol", "show", "hostnames", names[1]).stdout.split())

    def _last_words(self, name: str) -> str:
        log = self.folder / f"{name}.log"
        return f"its output: {log.read_text(errors='replace')[-1500:]}" if log.exists() else "it has no log"

    def links(self) -> dict[str, LinkBytes]:
        """Return the bytes over every NIC so far."""
        return self.cluster.links()

    @contextmanager
    def scheduled_by(self, policy: str) -> Iterator[None]:
        """Let Headway decide by this policy in the block. Raises ExperimentError at its end if the fallback decided instead."""
        begun_s = time.time()
        self.headway.start_policy(policy)
        try:
            self.headway.start_controller()
            yield
        finally:
            for name in reversed(list(self.headway.processes)):
                self.headway.stop(name)
        if problems := self._passed_over(begun_s):
            raise ExperimentError(f"{policy} was passed over {len(problems)} times, first because {problems[0]}")

    def _passed_over(self, since_s: float) -> list[str]:
        """Return the reasons for which the fallback decided, one for each decision."""
        with closing(sqlite3.connect(f"file:{self.headway.folder}/state/journal.sqlite?mode=ro", uri=True)) as journal:
            asked = "SELECT problem FROM decision WHERE time_s >= ? AND problem != '' ORDER BY time_s"
            return [problem for (problem,) in journal.execute(asked, (since_s,))]


@contextmanager
def live_cluster(rate: str) -> Iterator[LiveCluster]:
    """Boot a cluster with NICs of that rate and torch loaded on every node. Remove everything at the end.

    Before the boot, remove what a run left that was killed.
    """
    remove_leftovers("fidelity")
    name = f"fidelity-{os.getpid()}-{next(_numbers)}"
    with (
        Installation.prepare(name) as headway,
        MiniCluster(headway.cluster_spec(name=name, nodes=NODES, gpus=GPUS, rate=rate)) as cluster,
    ):
        # On a busy machine a policy needs time: no fallback may decide instead.
        headway.configure(cluster, policy_deadline_s=10.0)
        made = LiveCluster(headway, cluster, _folder(cluster))
        _warm(made)
        yield made


def _folder(cluster: MiniCluster) -> Path:
    """Create the folder of the jobs' user."""
    folder = cluster.files.work / "fidelity"
    folder.mkdir(mode=0o755)
    for source in _JOB_FILES.glob("*.py"):
        shutil.copyfile(source, folder / source.name)
    account = pwd.getpwnam(USER)
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, account.pw_uid, account.pw_gid)
    return folder


def _warm(made: LiveCluster) -> None:
    """Load torch on every node."""
    jobpython.open_to_users(made.cluster)

    def load(node: str) -> None:
        made.cluster.run_on(node, "sysctl", "-qw", *TCP)
        argv: tuple[Any, ...] = (sys.executable, str(made.folder / "warm.py"), str(made.folder / f"{node}.sock"))
        made.cluster.run_on(node, *argv, user=USER, timeout=_WARM_S)

    with ThreadPoolExecutor() as pool:
        list(pool.map(load, made.cluster.node_names))
