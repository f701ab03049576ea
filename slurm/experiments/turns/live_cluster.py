"""A mini-cluster with Headway and an agent on every node, on which policies take turns."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm.demo.run import jobpython
from slurm.demo.run.real import USER
from slurm.experiments.errors import ExperimentError
from slurm.minicluster.cluster import MiniCluster
from slurm.testbed.installation import Installation
from slurm.testbed.leftovers import remove_leftovers
from slurm.testbed.programs import program

_PROGRAM = Path(__file__).with_name("job.py")
_POLICY_S = 300.0
"""Longest time for a policy server to listen: a learned policy imports torch, which takes minutes on a very busy machine."""
_numbers = itertools.count(1)

_SCRIPT = """#!/bin/bash
#SBATCH --partition=dl --requeue --open-mode=append --output={name}.log
{options}
trap '' USR1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) GLOO_SOCKET_IFNAME=eth0
srun {tasks} python job.py {name} {arguments}
"""


@dataclass
class LiveCluster:
    """One cluster. Invariant: no two jobs have the same name of their files."""

    headway: Installation
    cluster: MiniCluster
    folder: Path
    _ids: dict[str, str] = field(default_factory=dict)
    """Name of the job's files → its id in Slurm."""
    _deciding: str = "policy"
    """The process of the policy server that decides."""

    @property
    def deciding(self) -> str:
        """Name of the process of the policy server that decides."""
        return self._deciding

    def submit(
        self,
        name: str,
        options: Sequence[str],
        arguments: str,
        tasks: str = "--ntasks=$SLURM_NNODES --ntasks-per-node=1",
    ) -> None:
        """Run sbatch as an ordinary user, with these options and arguments of the training program.

        `tasks` are options of srun; by default there is one task for each node. Raises ExperimentError for a name that has
        been used.
        """
        lines = "\n".join(f"#SBATCH {option}" for option in options)
        script = _SCRIPT.format(name=name, options=lines, arguments=arguments, tasks=tasks)
        values = {**jobpython.user_environment(), **self.cluster.env}
        argv = ("env", "-i", *(f"{key}={value}" for key, value in values.items()), "sbatch", "--parsable")
        self._run_sbatch(name, *argv, stdin=script)

    def _run_sbatch(self, name: str, *argv: str, stdin: str) -> None:
        if name in self._ids:
            raise ExperimentError(
                f"{name}: a job of this name has run; its files would be taken for those of the new one"
            )
        self._ids[name] = self.cluster.run(*argv, stdin=stdin, user=USER, cwd=self.folder).stdout.strip()

    def id_of(self, name: str) -> str:
        """Return the id of a job that was submitted."""
        return self._ids[name]

    def runs_of(self, name: str) -> list[list[str]]:
        """Return first step, GPUs and time for each run of a job so far."""
        return [line.split() for line in self._lines(name) if line != "done"]

    def wait(self, names: Sequence[str], timeout_s: float) -> None:
        """Wait until these jobs have trained to their ends. Raises ExperimentError if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while late := [name for name in names if not self.has_ended(name)]:
            if time.monotonic() > deadline:
                raise ExperimentError(f"not done after {timeout_s:g} s: {', '.join(late)}; {self._end_of_log(late[0])}")
            time.sleep(0.5)

    def has_ended(self, name: str) -> bool:
        """Return whether a job has trained to its end."""
        return self._lines(name)[-1:] == ["done"]

    def _lines(self, name: str) -> list[str]:
        path = self.folder / f"{name}.runs"
        return path.read_text().splitlines() if path.exists() else []

    def _end_of_log(self, name: str) -> str:
        log = self.folder / f"{name}.log"
        said = log.read_text(errors="replace")[-1500:] if log.exists() else "nothing"
        return f"its output: {said}\n{self.headway.log('controller')[-1500:]}"

    @contextmanager
    def decided_by(self, policy: str) -> Iterator[str]:
        """Let this policy decide in the block, and give the address of its server.

        Raises ExperimentError if the controller refuses it, and at the end of the block if the fallback decided instead.
        """
        begun_s = time.time()
        address = self.headway.runtime_dir / f"policy-{next(_numbers)}.sock"
        argv = [*program("headway-policy"), "serve", "--policy", policy, "--listen", f"unix://{address}"]
        process = f"policy {address.stem}"
        self.headway.start(process, argv)
        self.headway.wait(address.exists, process, _POLICY_S)
        done = self.headway.headway("policy", "use", f"unix://{address}", check=False)
        if done.returncode != 0:
            raise ExperimentError(f"{policy} cannot decide: {done.stderr.strip() or done.stdout.strip()}")
        self.headway.stop(self._deciding)
        self._deciding = process
        yield f"unix://{address}"
        query = "SELECT problem FROM decision WHERE time_s >= ? AND problem != '' ORDER BY time_s"
        if problems := self.journal(query, begun_s):
            raise ExperimentError(f"{policy} did not decide {len(problems)} times; the first reason: {problems[0][0]}")

    def journal(self, query: str, since_s: float) -> list[tuple[Any, ...]]:
        """Return the rows of a query of the controller's journal whose one parameter is a time."""
        path = f"file:{self.headway.folder}/state/journal.sqlite?mode=ro"
        with closing(sqlite3.connect(path, uri=True)) as journal:
            return list(journal.execute(query, (since_s,)))


@contextmanager
def booted(
    experiment: str,
    report: Callable[[str], None],
    settings: Mapping[str, Any],
    sysctls: Sequence[str] = (),
    *,
    agents: bool = True,
    **spec: Any,
) -> Iterator[tuple[Installation, MiniCluster, Path]]:
    """Boot a cluster with agents and a controller with these settings, and give a folder of the user that submits.

    `spec` are fields of the mini-cluster's `ClusterSpec`; `sysctls` are set on every node. Without `agents` there is no training
    program in the folder either. Everything is removed at the end; what a run left that was killed, before the boot.
    """
    remove_leftovers(experiment)
    name = f"{experiment}-{os.getpid()}-{next(_numbers)}"
    with (
        Installation.prepare(name, with_agents=agents) as headway,
        MiniCluster(headway.cluster_spec(name=name, **spec)) as cluster,
    ):
        if agents:
            jobpython.open_to_users(cluster)
        for node in cluster.node_names if sysctls else ():
            cluster.run_on(node, "sysctl", "-qw", *sysctls)
        folder = cluster.files.work / experiment
        folder.mkdir(mode=0o755)
        if agents:
            shutil.copy(_PROGRAM, folder)
        account = pwd.getpwnam(USER)
        shutil.chown(folder, account.pw_uid, account.pw_gid)
        usual: dict[str, Any] = {
            "policy_deadline_s": 10.0,
            # A later policy must not know more about the durations of jobs than an earlier one.
            "history_min_runs": 1000,
        }
        usual |= {"agents_report_interval_s": 1.0} if agents else {}
        headway.configure(cluster, **usual | dict(settings))
        headway.start_policy("fifo-skip")
        headway.start_controller()
        if agents:
            headway.agents.start_all(cluster)
        report(f"{len(cluster.node_names)} nodes{', an agent on each' if agents else ''}: {spec}")
        try:
            yield headway, cluster, folder
        finally:  # before the cluster is removed: a Slurm command without a slurm.conf tries again for a minute
            for process in reversed(list(headway.processes)):
                headway.stop(process)
