"""Jobs on a cluster with job_submit.lua, as scontrol shows and changes them."""

from __future__ import annotations

import re
import time

from controller.slurm.birthmark import birthmark_of
from slurm.minicluster.cluster import MiniCluster
from tests.birthmarks import without_birthmark
from tests.cluster.minicluster.commands import wait_for


class Job:
    """One job as scontrol shows it."""

    def __init__(self, cluster: MiniCluster, job_id: str) -> None:
        self.id = job_id
        text = cluster.run("scontrol", "-o", "show", "job", job_id).stdout.splitlines()[0]
        self._fields = dict(re.findall(r"(\w+)=(\S*)", text))
        comment = re.search(r"AdminComment=(.*?)\s+(?:\w+=|$)", text)
        self.admin_comment = without_birthmark(comment[1]) if comment else ""
        self.birthmark = birthmark_of(comment[1]) if comment else ""

    @property
    def held(self) -> bool:
        return self._fields["Priority"] == "0"

    @property
    def state(self) -> str:
        return self._fields["JobState"]

    @property
    def begin_s(self) -> float:
        return self._seconds("StartTime")

    @property
    def identity(self) -> tuple[int, int, int, str]:
        """Return what tells the job from another one with its id: submit time, restarts, user id and birthmark."""
        user = self._fields["UserId"].rstrip(")").partition("(")[2]
        return int(self._seconds("SubmitTime")), int(self._fields["Restarts"]), int(user), self.birthmark

    def _seconds(self, name: str) -> float:
        return time.mktime(time.strptime(self._fields[name], "%Y-%m-%dT%H:%M:%S"))


def sbatch(cluster: MiniCluster, *options: str, user: str = "daemon") -> Job:
    done = cluster.run("sbatch", "--parsable", "--output=/dev/null", *options, stdin="#!/bin/sh\ntrue\n", user=user)
    return Job(cluster, done.stdout.strip())


def scontrol(cluster: MiniCluster, *words: str, user: str = "daemon") -> str:
    """Run scontrol as a user. Return its error output; empty when it succeeded."""
    done = cluster.run("scontrol", *words, user=user, check=False)
    return "" if done.returncode == 0 else done.stderr


def completes(cluster: MiniCluster, job: Job) -> None:
    wait_for(lambda: Job(cluster, job.id).state == "COMPLETED", f"job {job.id} completes")
