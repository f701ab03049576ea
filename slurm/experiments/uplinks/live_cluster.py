"""The cluster of racks with agents, the profiles of its models, and the times of its emulated jobs."""

from __future__ import annotations

import json
import pwd
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm.demo.run import jobpython
from slurm.demo.run.real import USER
from slurm.experiments.errors import ExperimentError
from slurm.experiments.slurm_log import Times, times_of
from slurm.experiments.turns.live_cluster import LiveCluster, booted
from slurm.experiments.uplinks import job as program
from slurm.experiments.uplinks import mix
from slurm.experiments.uplinks.mix import Job

_SCRIPT = """#!/bin/bash
#SBATCH --partition=dl --output={name}.log --job-name={model} {options}
{prefix}python job.py {name} {model} {compute} {bytes} {gpus} {alone}{more}
"""
_READ_S = 0.5
_MEASURE_S = 50.0
_WINDOW_S = 6.0


@dataclass(frozen=True, slots=True)
class Ended:
    """One job that has ended. Times are in seconds since the Unix epoch."""

    name: str
    gpus: int
    submit_s: float
    start_s: float
    end_s: float
    nodes: int
    racks: int

    @property
    def jct_s(self) -> float:
        """From submission to end."""
        return self.end_s - self.submit_s


class UplinkCluster(LiveCluster):
    """A cluster whose jobs emulate training, and slow each other down."""

    def measure(self) -> None:
        """Let each model train alone on two nodes while agents listen, and wait until the controller knows its profile.

        Raises ExperimentError if it does not.
        """
        with self.decided_by("fifo"):
            for model in mix.MODELS:
                words = f"--nodes=2 --ntasks-per-node=1 --gpus-per-node={mix.GPUS} --time=5"
                job = Job(f"measure-{model}", model, 2 * mix.GPUS, _MEASURE_S, 0.0)
                self._begin(job, job.name, words, "srun --ntasks=2 --ntasks-per-node=1 ", " measured")
            self._wait_ended([f"measure-{model}" for model in mix.MODELS], 300.0)
        found = self.headway.headway("profile", "list", "--json", check=False).stdout
        if (known := len(json.loads(found or "{}").get("kinds", ()))) < len(mix.MODELS):
            said = (self.folder / f"measure-{mix.MODELS[0]}.log").read_text(errors="replace")[-500:]
            raise ExperimentError(f"only {known} of {len(mix.MODELS)} models were measured: {found[-1000:]} {said}")

    def begin(self, job: Job, name: str) -> None:
        """Submit a job that leaves the nodes to the policy."""
        self._begin(job, name, f"--gpus={job.gpus} --time={job.limit_min}")

    def _begin(self, job: Job, name: str, options: str, prefix: str = "", more: str = "") -> None:
        step = mix.steps()[job.model]
        script = _SCRIPT.format(
            name=name, model=job.model, options=options, prefix=prefix, compute=step.compute_s, bytes=step.bytes,
            gpus=job.gpus, alone=job.alone_s, more=more,
        )  # fmt: skip
        values = {**jobpython.user_environment(), **self.cluster.env}
        assigned = [f"{key}={value}" for key, value in values.items()]
        self._run_sbatch(name, "env", "-i", *assigned, "sbatch", "--parsable", stdin=script)

    def wait_ended(self, names: Sequence[str], timeout_s: float) -> None:
        """Wait until these jobs have ended. Raises ExperimentError if that takes too long, or one has failed."""
        self._wait_ended(names, timeout_s)
        if failed := [name for name in names if not (self.folder / f"{name}.where").exists()]:
            raise ExperimentError(f"{failed[0]} has not trained to its end; {self._end_of_log(failed[0])}")

    def _wait_ended(self, names: Sequence[str], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while late := [name for name in names if self.id_of(name) not in self._times().ended]:
            if time.monotonic() > deadline:
                raise ExperimentError(f"not done after {timeout_s:g} s: {', '.join(late)}; {self._end_of_log(late[0])}")
            time.sleep(_READ_S)

    def ended(self, jobs: Mapping[str, Job]) -> list[Ended]:
        """Return the facts about jobs that have ended, by the names of their files."""
        times = self._times()
        return [self._ended(job, name, times) for name, job in jobs.items()]

    def _ended(self, job: Job, name: str, times: Times) -> Ended:
        job_id = self.id_of(name)
        nodes, racks = (self.folder / f"{name}.where").read_text().split()
        moments = times.submitted[job_id], times.started[job_id], times.ended[job_id]
        return Ended(name, job.gpus, *moments, int(nodes), int(racks))

    def _times(self) -> Times:
        return times_of((self.cluster.files.log / "slurmctld.log").read_text(errors="replace"))

    def decided_without_profile(self, since_s: float) -> int:
        """Return how many decisions since then say that a model was not measured."""
        query = (
            "SELECT COUNT(*) FROM placed JOIN decision ON placed.decision = decision.id "
            "WHERE decision.time_s >= ? AND placed.reason LIKE '%not measured%'"
        )
        return int(self.journal(query, since_s)[0][0])


@contextmanager
def uplink_cluster(report: Callable[[str], None]) -> Iterator[UplinkCluster]:
    """Boot the cluster, and measure the models. Remove everything at the end. Raises ExperimentError without racks."""
    spec: dict[str, Any] = {
        "nodes": mix.RACKS * mix.NODES_OF_RACK,
        "gpus": mix.GPUS,
        "indexed_gpu_types": False,
        "added_files": {"etc/topology.conf": mix.topology_conf()},
        "extra_conf": ("TopologyPlugin=topology/tree",),
    }
    settings = {"policy_deadline_s": 30.0, "preemption": "off", "agents_window_s": _WINDOW_S}
    with booted("uplinks", report, settings, **spec) as parts:
        cluster = UplinkCluster(*parts)
        if "racks_known" not in cluster.headway.log("controller"):
            raise ExperimentError(f"the controller knows no racks: {cluster.headway.log('controller')[-1500:]}")
        _prepare(cluster.folder)
        cluster.measure()
        yield cluster


def _prepare(folder: Path) -> None:
    """Put the program and the links of its world into the user's folder."""
    account = pwd.getpwnam(USER)
    shutil.copy(Path(program.__file__), folder)
    links = {
        "nic": mix.NIC_GBYTE_S, "uplink": mix.UPLINK_GBYTE_S, "nodes_of_rack": mix.NODES_OF_RACK, "gpus": mix.GPUS,
    }  # fmt: skip
    (folder / program.LINKS).write_text(json.dumps(links))
    (folder / program.WORLD).mkdir()
    shutil.chown(folder / program.WORLD, account.pw_uid, account.pw_gid)
