"""The cluster of racks with agents, the profiles of its models, and the times of its emulated jobs."""

from __future__ import annotations

import json
import pwd
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm.demo.run import jobpython
from slurm.demo.run.real import USER
from slurm.experiments.errors import ExperimentError
from slurm.experiments.turns.live_cluster import booted
from slurm.experiments.turns.racks import RackedCluster, in_racks
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


class UplinkCluster(RackedCluster):
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
            self.wait([f"measure-{model}" for model in mix.MODELS], 300.0)
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
        self.wait(names, timeout_s)
        if failed := [name for name in names if not (self.folder / f"{name}.where").exists()]:
            raise ExperimentError(f"{failed[0]} has not trained to its end; {self._end_of_log(failed[0])}")

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
        "gpus": mix.GPUS,
        "indexed_gpu_types": False,
        **in_racks(mix.RACKS, mix.NODES_OF_RACK, mix.UPLINK_GBYTE_S),
    }
    settings = {"policy_deadline_s": 30.0, "preemption": "off", "agents_window_s": _WINDOW_S}
    with booted("uplinks", report, settings, **spec) as parts:
        cluster = UplinkCluster(*parts)
        cluster.require_racks()
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
