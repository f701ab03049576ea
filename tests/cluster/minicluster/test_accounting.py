"""The mini-cluster's accounting: slurmdbd and its database come, go, and leave nothing behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm.minicluster.cluster import ClusterSpec, MiniCluster
from slurm.minicluster.spec import ACCOUNT, STATE_ROOT
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.minicluster.commands import CLI, traces, wait_for

USER = "daemon"


@pytest.fixture
def name() -> Iterator[str]:
    skip_unless_possible(accounting=True)
    name = unique_name()
    yield name
    if traces(name):
        subprocess.run([*CLI, "down", "--name", name], check=False)


def submit(cluster: MiniCluster, *, user: str | None = None) -> subprocess.CompletedProcess[str]:
    return cluster.run("sbatch", "--parsable", "--output=/dev/null", "--wrap=true", user=user, check=False)


def test_users_need_an_association_and_jobs_are_recorded(name: str) -> None:
    with MiniCluster(ClusterSpec(name=name, nodes=1, gpus=2, accounting=True)) as cluster:
        # Given a user without an association
        assert "Invalid account" in submit(cluster, user=USER).stderr
        # When there is an association
        cluster.sacctmgr("add", "user", USER, f"Account={ACCOUNT}")
        # Then jobs run, and outlive slurmctld's memory in sacct
        job = submit(cluster, user=USER).stdout.strip()

        def recorded() -> bool:
            return "COMPLETED" in cluster.run("sacct", "-n", "-X", "-j", job, "-o", "state").stdout

        wait_for(recorded, "the job is in the database")
        # And only Slurm's user has access to the database: other users cannot even reach the socket
        refused = cluster.run("ls", str(cluster.files.database), user=USER, check=False)
        assert "Permission denied" in refused.stderr
    assert traces(name) == []


def test_clusters_that_boot_at_the_same_time_share_no_temporary_tables(name: str) -> None:
    """The database names them by its process number, which counts from 1 on every host, and all hosts share /tmp."""
    with MiniCluster(ClusterSpec(name=name, nodes=1, gpus=0, accounting=True)) as cluster:
        server = cluster.program_on("ctl", "mariadbd")
        assert server is not None
        opened = [str(link.readlink()) for link in Path(f"/proc/{server.pid}/fd").iterdir()]
        assert any(path.startswith(str(cluster.files.database)) for path in opened)
        assert [path for path in opened if path.startswith("/tmp/")] == []


def test_jobs_run_while_slurmdbd_is_away(name: str) -> None:
    with MiniCluster(ClusterSpec(name=name, nodes=1, gpus=2, accounting=True)) as cluster:
        cluster.kill_slurmdbd()
        job = submit(cluster).stdout.strip()

        def done() -> bool:
            return "JobState=COMPLETED" in cluster.run("scontrol", "show", "job", job).stdout

        wait_for(done, "the job has run")
        cluster.start_slurmdbd()
        cluster.sacctmgr("add", "user", USER, f"Account={ACCOUNT}")
    assert traces(name) == []


STAGES: dict[str, Callable[[Path], bool]] = {
    "tables being made": lambda home: (home / "database" / "ibdata1").exists(),
    "database up": lambda home: (home / "database" / "socket").exists(),
    "slurmdbd started": lambda home: (home / "log" / "slurmdbd.log").exists(),
    "slurmctld started": lambda home: (home / "log" / "slurmctld.log").exists(),
}


@pytest.mark.parametrize("stage", STAGES)
def test_after_a_kill_in_the_middle_of_a_boot_down_leaves_nothing(name: str, stage: str) -> None:
    argv = [*CLI, "up", "--name", name, "--nodes", "1", "--accounting"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as boot:
        wait_for(lambda: STAGES[stage](STATE_ROOT / name), stage, timeout_s=120, interval_s=0.001, most_s=0.001)
        boot.kill()
    down = subprocess.run([*CLI, "down", "--name", name, "--json"], capture_output=True, check=True)
    assert json.loads(down.stdout)["down"]
    assert traces(name) == []
