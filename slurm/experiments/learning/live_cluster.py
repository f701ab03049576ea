"""The cluster on which `dl2` learns, with an agent on every node."""

from __future__ import annotations

import pwd
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm.demo.run.real import USER
from slurm.experiments.learning.workload import REDUCE_S, STEP_S, LearningJob, Workload
from slurm.experiments.turns.live_cluster import LiveCluster, booted

_PROGRAM = Path(__file__).with_name("job.py")


class LearningCluster(LiveCluster):
    """A cluster for emulated jobs that can have several sizes."""

    def start(self, job: LearningJob) -> None:
        """Submit a job in the size that it asks for."""
        options = (
            f"--job-name=emulated --gpus={job.gpus} --ntasks=1 --time=60",
            f"--comment=headway=min-gpus:1+max-gpus:{job.most_gpus}+steps:{job.steps}+epochs:{job.epochs}",
        )
        self.submit(job.name, options, f"{job.steps} {STEP_S} {REDUCE_S}")


@contextmanager
def learning_cluster(workload: Workload, report: Callable[[str], None]) -> Iterator[LearningCluster]:
    """Boot the cluster. Running jobs are not stopped: they keep the size that they began with. Remove everything at the end."""
    settings = {"policy_deadline_s": 30.0, "preemption": "off"}
    with booted("learning", report, settings, nodes=workload.nodes, gpus=workload.gpus) as parts:
        cluster = LearningCluster(*parts)
        place = cluster.folder / "job.py"
        shutil.copy(_PROGRAM, place)
        account = pwd.getpwnam(USER)
        shutil.chown(place, account.pw_uid, account.pw_gid)
        yield cluster
