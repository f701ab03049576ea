"""Jobs on a cluster with job_submit.lua, as scontrol shows and changes them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from slurm.minicluster.cluster import MiniCluster


class Job:
    """One job as scontrol shows it."""

    def __init__(self, cluster: MiniCluster, job_id: str) -> None:
        self.id = job_id
        text = cluster.run("scontrol", "-o", "show", "job", job_id).stdout.splitlines()[0]
        self._fields = dict(re.findall(r"(\w+)=(\S*)", text))
        comment = re.search(r"AdminComment=(.*?)\s+(?:\w+=|$)", text)
        self.admin_comment = comment[1] if comment else ""

    @property
    def held(self) -> bool:
        return self._fields["Priority"] == "0"

    @property
    def state(self) -> str:
        return self._fields["JobState"]

    @property
    def begin_s(self) -> float:
        return time.mktime(time.strptime(self._fields["StartTime"], "%Y-%m-%dT%H:%M:%S"))


def sbatch(cluster: MiniCluster, *options: str, user: str = "daemon") -> Job:
    done = cluster.run("sbatch", "--parsable", "--output=/dev/null", *options, stdin="#!/bin/sh\ntrue\n", user=user)
    return Job(cluster, done.stdout.strip())


def scontrol(cluster: MiniCluster, *words: str, user: str = "daemon") -> str:
    """Run scontrol as a user. Return its error output; empty when it succeeded."""
    done = cluster.run("scontrol", *words, user=user, check=False)
    return "" if done.returncode == 0 else done.stderr


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in {timeout_s} s"
        time.sleep(0.05)


def completes(cluster: MiniCluster, job: Job) -> None:
    wait_for(lambda: Job(cluster, job.id).state == "COMPLETED", f"job {job.id} completes")
