"""A mini-cluster with Headway and an agent on every node, on which policies that resize take turns."""

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
from slurm.errors import MiniClusterError
from slurm.experiments.elastic.mix import WIDTH, ElasticJob
from slurm.minicluster.cluster import MiniCluster
from slurm.testbed.installation import Installation
from slurm.testbed.programs import program

_PROGRAM = Path(__file__).with_name("job.py")
_numbers = itertools.count(1)

_SCRIPT = """#!/bin/bash
#SBATCH --job-name={kind} --partition=dl --requeue --open-mode=append --output={name}.log
#SBATCH --gpus={gpus} --ntasks=1 --time=60
#SBATCH --comment=headway=min-gpus:1+max-gpus:{most_gpus}+steps:{steps}+epochs:{epochs}
trap '' USR1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) GLOO_SOCKET_IFNAME=eth0
srun --ntasks=$SLURM_NNODES --ntasks-per-node=1 python job.py {name} {steps} {layers} {width} {compute_s}
"""


class ElasticError(MiniClusterError):
    """A job took too long, or the fallback decided; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One job that has ended. Times are in seconds since the Unix epoch."""

    name: str
    submit_s: float
    begin_s: float
    """First step of its first run."""
    end_s: float
    gpus: tuple[int, ...]
    """GPUs of each run."""

    @property
    def jct_s(self) -> float:
        """From submission to end."""
        return self.end_s - self.submit_s


@dataclass(frozen=True, slots=True)
class Stops:
    """Preemptions in a time span."""

    count: int
    resumed: int
    """Those after which the job trained again."""
    called_off: int
    adjusting_s: float
    """Time from the save of all ranks to the first step of the next run, added up over jobs, waiting included."""
    restarting_s: float
    """The part of it from the start of the next run."""


@dataclass
class LiveCluster:
    """One cluster. Invariant: no two jobs have the same `name`."""

    headway: Installation
    cluster: MiniCluster
    folder: Path
    _submitted: dict[str, float] = field(default_factory=dict)
    _deciding: str = "policy"
    """The process of the policy server that decides."""

    def submit(self, job: ElasticJob, name: str) -> None:
        """Run sbatch as an ordinary user."""
        script = _SCRIPT.format(
            kind=job.kind, name=name, gpus=job.gpus, most_gpus=job.most_gpus, steps=job.steps, epochs=job.epochs,
            layers=job.layers, width=WIDTH, compute_s=job.compute_s,
        )  # fmt: skip
        values = {**jobpython.user_environment(), **self.cluster.env}
        argv = ("env", "-i", *(f"{key}={value}" for key, value in values.items()), "sbatch", "--parsable")
        self._submitted[name] = time.time()
        self.cluster.run(*argv, stdin=script, user=USER, cwd=self.folder)

    def wait(self, names: Sequence[str], timeout_s: float) -> None:
        """Wait until these jobs have trained to their ends. Raises ElasticError if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while late := [name for name in names if self._lines(name)[-1:] != ["done"]]:
            if time.monotonic() > deadline:
                log = self.folder / f"{late[0]}.log"
                said = log.read_text(errors="replace")[-1500:] if log.exists() else "nothing"
                raise ElasticError(f"not done after {timeout_s:g} s: {', '.join(late)}; the first said: {said}")
            time.sleep(0.5)

    def _lines(self, name: str) -> list[str]:
        path = self.folder / f"{name}.runs"
        return path.read_text().splitlines() if path.exists() else []

    def ended(self, name: str) -> Ended:
        """Return the facts about a job that has trained to its end."""
        *runs, _ = self._lines(name)
        end_s = (self.folder / f"{name}.runs").stat().st_mtime
        begin_s = float(runs[0].split()[2])
        return Ended(name, self._submitted[name], begin_s, end_s, tuple(int(run.split()[1]) for run in runs))

    def stops(self, since_s: float) -> Stops:
        """Return the preemptions since then."""
        rows = self._journal("SELECT stage, saved_s, started_s, resumed_s FROM preemption WHERE asked_s >= ?", since_s)
        whole = [(saved, started, resumed) for _, saved, started, resumed in rows if saved and started and resumed]
        return Stops(
            count=len(rows),
            resumed=len(whole),
            called_off=sum(stage == "called off" for stage, *_ in rows),
            adjusting_s=sum(resumed - saved for saved, _, resumed in whole),
            restarting_s=sum(resumed - started for _, started, resumed in whole),
        )

    @contextmanager
    def decided_by(self, policy: str) -> Iterator[None]:
        """Let this policy decide in the block. Raises ElasticError at its end if the fallback decided instead."""
        begun_s = time.time()
        address = self.headway.runtime_dir / f"policy-{next(_numbers)}.sock"
        process = f"policy {address.stem}"
        argv = [*program("headway-policy"), "serve", "--policy", policy, "--listen", f"unix://{address}"]
        self.headway.start(process, argv)
        self.headway.wait(address.exists, process)
        self.headway.headway("policy", "use", f"unix://{address}")
        self.headway.stop(self._deciding)
        self._deciding = process
        yield
        asked = "SELECT problem FROM decision WHERE time_s >= ? AND problem != '' ORDER BY time_s"
        if problems := self._journal(asked, begun_s):
            raise ElasticError(f"{policy} did not decide {len(problems)} times; the first reason: {problems[0][0]}")

    def _journal(self, query: str, since_s: float) -> list[tuple[Any, ...]]:
        path = f"file:{self.headway.folder}/state/journal.sqlite?mode=ro"
        with closing(sqlite3.connect(path, uri=True)) as journal:
            return list(journal.execute(query, (since_s,)))


@contextmanager
def live_cluster(nodes: int, gpus: int, says: Callable[[str], None]) -> Iterator[LiveCluster]:
    """Boot a cluster with agents, and a controller that lets policies stop and resize jobs. Remove everything at the end."""
    name = f"elastic-{os.getpid()}-{next(_numbers)}"
    with (
        Installation.prepare(name, with_agents=True) as headway,
        MiniCluster(headway.cluster_spec(name=name, nodes=nodes, gpus=gpus)) as cluster,
    ):
        jobpython.open_to_users(cluster)
        folder = cluster.files.work / "elastic"
        folder.mkdir(mode=0o755)
        shutil.copy(_PROGRAM, folder)
        account = pwd.getpwnam(USER)
        shutil.chown(folder, account.pw_uid, account.pw_gid)
        headway.configure(
            cluster,
            policy_deadline_s=10.0,
            agents_report_interval_s=1.0,
            preemption="automatic",
            preemption_min_run_s=5.0,
            preemption_cooldown_s=0.0,
            preemption_budget_per_hour=10_000,
            # A later policy must not know more about the durations of jobs than an earlier one.
            history_min_runs=1000,
        )
        headway.start_policy("fifo-skip")
        headway.start_controller()
        headway.agents.start_all(cluster)
        says(f"{nodes} nodes of {gpus} GPUs, an agent on each")
        try:
            yield LiveCluster(headway, cluster, folder)
        finally:  # before the cluster is removed: a Slurm command without a slurm.conf tries again for a minute
            for process in reversed(list(headway.processes)):
                headway.stop(process)
