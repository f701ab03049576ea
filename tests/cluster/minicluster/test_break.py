"""The mini-cluster: its daemons and nodes are killed, paused and booted again."""

from __future__ import annotations

import pytest

from slurm.minicluster.cluster import MiniClusterError
from tests.cluster.minicluster.commands import (
    Boot,
    node_state,
    output_of,
    saved_jobs,
    state_of,
    submit,
    wait_for,
)


def test_slurmctld_killed_and_started_again_keeps_its_jobs(boot_minicluster: Boot) -> None:
    cluster = boot_minicluster(nodes=1, gpus=1)
    job = submit(cluster, "--hold", "--job-name=kept", script="true")
    wait_for(lambda: "kept" in saved_jobs(cluster), "slurmctld writes it down, which may take it six seconds")
    first = cluster.slurmctld_pid

    cluster.kill_slurmctld()
    with pytest.raises(MiniClusterError, match="does not run"):
        _ = cluster.slurmctld_pid
    cluster.start_slurmctld()

    assert cluster.slurmctld_pid != first
    assert state_of(cluster, job) == "PENDING"


def test_slurmctld_that_is_stopped_forgets_nothing(boot_minicluster: Boot) -> None:
    cluster = boot_minicluster(nodes=1, gpus=1)
    job = submit(cluster, "--hold", script="true")
    cluster.stop_slurmctld()
    cluster.start_slurmctld()
    assert state_of(cluster, job) == "PENDING"


def test_a_job_outlives_its_slurmd(boot_minicluster: Boot) -> None:
    cluster = boot_minicluster(nodes=1, gpus=1)
    job = submit(cluster, script="echo begun; sleep 3; echo done")
    output = cluster.directory / "work" / f"job-{job}.out"
    wait_for(
        lambda: output.exists() and output.read_text() == "begun\n", "the script runs"
    )  # RUNNING comes before that
    cluster.kill_slurmd("n1")
    cluster.start_slurmd("n1")
    assert output_of(cluster, job) == "begun\ndone\n"


def test_a_crashed_node_is_seen_down_and_comes_back_with_a_boot(boot_minicluster: Boot) -> None:
    cluster = boot_minicluster(nodes=2, gpus=1, extra_conf=("SlurmdTimeout=2",))
    cluster.crash_node("n2")
    with pytest.raises(MiniClusterError, match="is down"):
        cluster.run_on("n2", "true")
    wait_for(lambda: node_state(cluster, "n2").startswith("down"), "slurmctld notices", timeout_s=60)
    cluster.boot_node("n2")
    cluster.wait_idle(60)
    job = submit(cluster, "--nodelist=n2", script="hostname")
    assert output_of(cluster, job) == "n2\n"


def test_a_paused_slurmctld_gives_no_answer_until_it_is_resumed(boot_minicluster: Boot) -> None:
    cluster = boot_minicluster(nodes=1, gpus=1)
    cluster.pause("slurmctld")
    with pytest.raises(MiniClusterError, match=r"no answer in 1 s"):
        cluster.run("squeue", timeout=1)
    cluster.resume("slurmctld")
    assert "JOBID" in cluster.run("squeue").stdout
