"""job_submit.lua inside a real slurmctld: requests that no nodes can run are refused at their submission, in Slurm's own words."""

from __future__ import annotations

import time

import pytest

from slurm.minicluster.cluster import MiniCluster
from tests.birthmarks import without_birthmark
from tests.cluster.plugin.lua_jobs import completes, sbatch
from tests.cluster.stand_in import StandIn

NOT_AVAILABLE = "Batch job submission failed: Requested node configuration is not available"
MANAGED = ("dl", "lean", "small", "tiny")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-C fast&slow", NOT_AVAILABLE),
        ("-N2 -C slow", NOT_AVAILABLE),
        ("-N2 -C [fast*2&slow*1]", NOT_AVAILABLE),
        ("-x n1,n2", NOT_AVAILABLE),
        ("-x n1 -N2", NOT_AVAILABLE),
        ("--tmp=900T", "Temporary disk specification can not be satisfied"),
        ("--mem-per-cpu=100G -c4", NOT_AVAILABLE),
        ("--mem-per-gpu=256G", NOT_AVAILABLE),
        ("-p small -w n1", NOT_AVAILABLE),
        ("-p lean -c16", NOT_AVAILABLE),
        ("-p small,tiny -N2", NOT_AVAILABLE),
        ("--reservation=exam -N2", NOT_AVAILABLE),
    ],
)
def test_a_request_that_no_nodes_can_run_is_refused(
    cluster: MiniCluster, stand_in: StandIn, options: str, words: str
) -> None:
    stand_in.beat(partitions=MANAGED)
    cluster.run(
        "scontrol", "create", "reservation", "ReservationName=exam", "StartTime=now", "Duration=10", "Nodes=n1",
        "Users=daemon",
    )  # fmt: skip
    try:
        refused = cluster.run("sbatch", "--gres=gpu:1", *options.split(), "--wrap=true", user="daemon", check=False)
    finally:
        cluster.run("scontrol", "delete", "ReservationName=exam")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert words in refused.stderr


@pytest.mark.parametrize(
    "options",
    [
        "-C fast",
        "-N2 -C fast|slow",
        "-x n1",
        "-w n2",
        "--tmp=0 --mem-per-cpu=1G",
        "--mem-per-gpu=1G",
        "-p small,tiny",
    ],
)
def test_a_request_that_slurm_accepts_does_not_start_before_the_controller_can_hold_it(
    cluster: MiniCluster, stand_in: StandIn, options: str
) -> None:
    stand_in.beat(partitions=MANAGED)
    before = int(time.time())
    job = sbatch(cluster, "--gres=gpu:1", *options.split())

    assert (job.held, job.state) == (False, "PENDING")
    assert before + 30 <= job.begin_s <= time.time() + 30
    assert job.admin_comment == f"headway:check={job.begin_s:.0f}"
    assert stand_in.lines() == ["submit"]


def test_cpus_beside_those_of_the_tasks_are_left_to_slurm(cluster: MiniCluster, stand_in: StandIn) -> None:
    """22.05 accepts such a job, and 26.05 refuses it."""
    stand_in.beat(partitions=MANAGED)
    words = ("sbatch", "--parsable", "--output=/dev/null", "--gpus-per-task=1", "-n1", "--mincpus=9", "--wrap=true")

    done = cluster.run(*words, user="daemon", check=False)

    if done.returncode == 0:
        shown = cluster.run("scontrol", "-o", "show", "job", done.stdout.strip()).stdout
        assert "AdminComment=headway:check=" in without_birthmark(shown)
    else:
        assert NOT_AVAILABLE in done.stderr


def test_without_a_controller_such_a_job_starts_after_its_begin_time(cluster: MiniCluster, stand_in: StandIn) -> None:
    completes(cluster, sbatch(cluster, "--gres=gpu:1", "-C", "fast"))


def test_a_flood_of_such_jobs_is_held_and_not_checked(cluster: MiniCluster, stand_in: StandIn) -> None:
    jobs = [sbatch(cluster, "--gres=gpu:1", "-C", "fast") for _ in range(22)]

    assert [job.held for job in jobs] == [False] * 20 + [True] * 2


def test_a_job_with_a_deadline_is_accepted_as_by_slurm_alone(cluster: MiniCluster, stand_in: StandIn) -> None:
    # A minute from its begin time on ends after the deadline, and from now on, 20 seconds before it.
    job = sbatch(cluster, "--gres=gpu:1", "-C", "fast", "-t1", "--deadline=now+80seconds")

    assert job.state == "PENDING"
