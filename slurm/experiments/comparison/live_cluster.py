"""A mini-cluster with Headway and an agent on every node, on which policies take turns."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm.demo.run import jobpython
from slurm.demo.run.real import USER
from slurm.experiments.comparison.mix import GPUS, NODES, WIDTH, Job
from slurm.experiments.errors import ExperimentError
from slurm.experiments.slurm_log import Times, times_of
from slurm.minicluster.cluster import MiniCluster
from slurm.testbed.installation import Installation
from slurm.testbed.programs import program

_PROGRAM = Path(__file__).with_name("job.py")
_TCP = ("net.ipv4.tcp_congestion_control=reno", "net.ipv4.tcp_slow_start_after_idle=0")
_WINDOW_S = 6.0
_numbers = itertools.count(1)

_SCRIPT = """#!/bin/bash
#SBATCH --job-name={called} --partition=dl --requeue --open-mode=append
#SBATCH --nodes={nodes} --ntasks-per-node=1 --gpus-per-node={gpus} --time={limit} --output={name}.log
trap '' USR1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) GLOO_SOCKET_IFNAME=eth0
srun python job.py {name} {steps} {layers} {width} {compute_s}
"""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """The times of one job that has ended, in seconds since the Unix epoch."""

    name: str
    called: str
    submit_s: float
    end_s: float
    runs: int
    """Number of runs; 1 = it was never stopped."""

    @property
    def jct_s(self) -> float:
        """From submission to end."""
        return self.end_s - self.submit_s


@dataclass
class LiveCluster:
    """One cluster. Invariant: no two jobs have the same `name`; jobs of one kind and size have the same job name in Slurm."""

    headway: Installation
    cluster: MiniCluster
    folder: Path
    _ids: dict[str, str] = field(default_factory=dict)
    _deciding: str = "policy"
    """The process of the policy server that decides."""

    def submit(self, job: Job, name: str) -> None:
        """Run sbatch as an ordinary user."""
        script = _SCRIPT.format(
            called=job.called,
            name=name,
            nodes=job.nodes,
            gpus=job.gpus_per_node,
            limit=job.limit_min,
            steps=job.steps,
            layers=job.kind.layers,
            width=WIDTH,
            compute_s=job.kind.compute_s,
        )
        values = {**jobpython.user_environment(), **self.cluster.env}
        argv = ("env", "-i", *(f"{key}={value}" for key, value in values.items()), "sbatch", "--parsable")
        done = self.cluster.run(*argv, stdin=script, user=USER, cwd=self.folder)
        self._ids[name] = done.stdout.strip()

    def wait(self, names: Sequence[str], timeout_s: float) -> None:
        """Wait until these jobs have trained to their ends. Raises ExperimentError if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while late := [name for name in names if not self._is_done(name)]:
            if time.monotonic() > deadline:
                raise ExperimentError(f"not done after {timeout_s:g} s: {', '.join(late)}; {self._end_of_log(late[0])}")
            time.sleep(0.5)

    def _is_done(self, name: str) -> bool:
        return self._ids[name] in self._times().ended and "done" in self._words(name)

    def _times(self) -> Times:
        return times_of((self.cluster.files.log / "slurmctld.log").read_text(errors="replace"))

    def _words(self, name: str) -> list[str]:
        path = self.folder / f"{name}.runs"
        return path.read_text().split() if path.exists() else []

    def _end_of_log(self, name: str) -> str:
        log = self.folder / f"{name}.log"
        said = log.read_text(errors="replace")[-1500:] if log.exists() else "nothing"
        return f"its output: {said}\n{self.headway.log('controller')[-1500:]}"

    def ended(self, job: Job, name: str) -> EndedJob:
        """Return the times of a job that has ended."""
        times, job_id = self._times(), self._ids[name]
        runs = len(self._words(name)) - 1
        return EndedJob(name, job.called, times.submitted[job_id], times.ended[job_id], runs)

    @contextmanager
    def decided_by(self, policy: str) -> Iterator[None]:
        """Let this policy decide in the block. Raises ExperimentError at its end if the fallback decided instead."""
        begun_s = time.time()
        address = self.headway.runtime_dir / f"policy-{next(_numbers)}.sock"
        argv = [*program("headway-policy"), "serve", "--policy", policy, "--listen", f"unix://{address}"]
        process = f"policy {address.stem}"
        self.headway.start(process, argv)
        self.headway.wait(address.exists, process)
        self.headway.headway("policy", "use", f"unix://{address}")
        self.headway.stop(self._deciding)
        self._deciding = process
        yield
        with closing(sqlite3.connect(f"file:{self.headway.folder}/state/journal.sqlite?mode=ro", uri=True)) as journal:
            asked = "SELECT problem FROM decision WHERE time_s >= ? AND problem != '' ORDER BY time_s"
            problems = [problem for (problem,) in journal.execute(asked, (begun_s,))]
        if problems:
            raise ExperimentError(f"{policy} did not decide {len(problems)} times; the first reason: {problems[0]}")


@contextmanager
def live_cluster(rate: str, report: Callable[[str], None], **settings: Any) -> Iterator[LiveCluster]:
    """Boot a cluster with NICs of that rate, agents, and a controller with these settings. Remove everything at the end."""
    name = f"compare-{os.getpid()}-{next(_numbers)}"
    with (
        Installation.prepare(name, with_agents=True) as headway,
        MiniCluster(headway.cluster_spec(name=name, nodes=NODES, gpus=GPUS, rate=rate)) as cluster,
    ):
        jobpython.open_to_users(cluster)
        for node in cluster.node_names:
            cluster.run_on(node, "sysctl", "-qw", *_TCP)
        folder = cluster.files.work / "compare"
        folder.mkdir(mode=0o755)
        shutil.copy(_PROGRAM, folder)
        account = pwd.getpwnam(USER)
        shutil.chown(folder, account.pw_uid, account.pw_gid)
        usual = {
            "policy_deadline_s": 10.0,
            "agents_report_interval_s": 1.0,
            "agents_window_s": _WINDOW_S,
            # A later policy must not know more about the durations of jobs than an earlier one.
            "history_min_runs": 1000,
        }
        headway.configure(cluster, **usual | settings)
        headway.start_policy("fifo-skip")
        headway.start_controller()
        headway.agents.start_all(cluster)
        report(f"{NODES} nodes of {GPUS} GPUs, {rate}, an agent on each")
        try:
            yield LiveCluster(headway, cluster, folder)
        finally:  # before the cluster is removed: a Slurm command without a slurm.conf tries again for a minute
            for process in reversed(list(headway.processes)):
                headway.stop(process)
