"""The demonstration on a real Slurm: the jobs of a user on a mini-cluster, with and without Headway."""

from __future__ import annotations

import asyncio
import json
import pwd
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from controller.slurm.client import SlurmClient
from slurm.demo.display.reading import LinkMeter, view_of
from slurm.demo.display.view import ClusterView, JobView, Stage
from slurm.demo.errors import DemoError
from slurm.demo.run import jobpython
from slurm.demo.run.driver import World
from slurm.demo.run.services import Headway
from slurm.demo.workload import Training
from slurm.minicluster.cluster import RunningCluster
from slurm.minicluster.spec import parse_rate

USER = "nobody"
"""Ordinary user who submits the jobs; every machine has this user."""
_TRAIN = Path(__file__).parents[1] / "train.py"


def prepare_nodes(cluster: RunningCluster, preload: Path | None = None) -> Mapping[str, str]:
    """Let jobs use this Python and its torch, which also fills the disk cache. Return the environment of the user who submits them.

    `preload`: a Python file that every Python of the jobs imports first, as its `sitecustomize`. Raises DemoError when jobs cannot
    import torch.
    """
    jobpython.open_to_users(cluster)
    environment = {**jobpython.user_environment(), **cluster.env}
    if preload is not None:
        environment["PYTHONPATH"] = str(_preload_folder(preload, cluster.directory / "work" / "preload"))
    try:
        pwd.getpwnam(USER)
    except KeyError:
        raise DemoError(
            f"user {USER}: no such user on this machine, but the jobs are submitted as {USER}; create this user"
        ) from None
    first = cluster.node_names[0]
    code = "import torch, torch._dynamo, torch.distributed"
    argv = ("env", "-i", *_assigned(environment), sys.executable, "-c", code)
    found = cluster.run_on(first, *argv, user=USER, timeout=120.0, check=False)
    if found.returncode != 0:
        raise DemoError(f"jobs cannot import torch: {found.stderr.strip()[-500:]}; run `make setup`")
    return environment


def _preload_folder(preload: Path, folder: Path) -> Path:
    """Return a folder that every user can read, with the file as the module that Python imports at its start."""
    folder.mkdir()
    module = folder / "sitecustomize.py"
    shutil.copyfile(preload, module)
    folder.chmod(0o755)  # whatever the umask is
    module.chmod(0o644)
    return folder


def _assigned(environment: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in environment.items()]


class SlurmWorld(World):
    """Jobs on the mini-cluster, scheduled by Headway or, without it, by Slurm alone.

    Invariant: a view holds only jobs that were submitted through this object, so that a second run starts without jobs.
    """

    def __init__(
        self,
        cluster: RunningCluster,
        client: SlurmClient,
        folder: Path,
        mix: Sequence[Training],
        scheduler: str,
        rate: str,
        environment: Mapping[str, str],
        headway: Headway | None = None,
    ) -> None:
        """Write the scripts into `folder`, which then belongs to the user, whose environment comes from `prepare_nodes`."""
        self.scheduler = scheduler
        self.rate_mbps = parse_rate(rate) / 1e6
        self._cluster = cluster
        self._client = client
        self._folder = folder
        self._environment = environment
        self._headway = headway
        self._ours: dict[str, str] = {}
        self._meter = LinkMeter()
        self._loop = asyncio.Runner()
        _write_jobs(folder, mix)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.close()

    def submit(self, training: Training) -> None:
        """Submit by sbatch, as an ordinary user does."""
        sbatch = ("sbatch", "--parsable", f"{training.name}.sbatch")
        done = self._cluster.run("env", "-i", *_assigned(self._environment), *sbatch, user=USER, cwd=self._folder)
        self._ours[done.stdout.strip().partition(";")[0]] = training.name

    def look(self) -> ClusterView:
        """Return a view from Headway's Slurm client and the counters of the NICs."""
        if self._headway is not None:
            self._headway.require_alive()
        snapshot = self._loop.run(self._client.snapshot())
        links = self._meter.rates(self._cluster.links(), snapshot.time_s)
        view = view_of(snapshot, self._ours, links)
        return view if self._headway is None else _explained(view, self._headway.explanations())

    def reason(self, job: JobView) -> str:
        """Return the reason that the policy gave; "" without Headway."""
        return "" if self._headway is None else self._headway.reason(job.job_id)

    def end_of_log(self, label: str) -> str:
        """Return the end of a job's log on one line."""
        try:
            lines = (self._folder / f"{label}.log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "it has no log"
        return " | ".join(lines[-4:]) or "its log is empty"

    def step_ms(self) -> Mapping[str, float]:
        """Return mean step times from the logs of the jobs."""
        found = {}
        for log in self._folder.glob("*.log"):
            report = _report(log)
            if report is not None:
                found[log.stem] = report
        return found


def _write_jobs(folder: Path, mix: Sequence[Training]) -> None:
    """Write the folder of the user: the training script and the sbatch files."""
    folder.mkdir(mode=0o755)
    shutil.copyfile(_TRAIN, folder / _TRAIN.name)
    for training in mix:
        (folder / f"{training.name}.sbatch").write_text(training.script())
    account = pwd.getpwnam(USER)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755 if path is folder else 0o644)
        shutil.chown(path, account.pw_uid, account.pw_gid)


def _explained(view: ClusterView, explanations: Mapping[str, str]) -> ClusterView:
    """Replace Slurm's reason for a held job by the explanation of the controller."""
    jobs = {
        label: replace(job, why=explanations[job.job_id])
        if job.stage is Stage.WAITING and job.job_id in explanations
        else job
        for label, job in view.jobs.items()
    }
    return replace(view, jobs=jobs)


def _report(log: Path) -> float | None:
    """Return the step time in the last line of a job's log; None when there is none."""
    lines = log.read_text(errors="replace").splitlines()
    try:
        return float(json.loads(lines[-1])["step_ms"]) if lines else None
    except (ValueError, KeyError, TypeError):
        return None
