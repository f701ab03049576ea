"""job_submit.lua inside a real slurmctld: what users may change of a job, and holds of their own."""

from __future__ import annotations

import os
import shutil
import time

import pytest

from controller.slurm.user_holds import HoldFolder
from slurm.minicluster.cluster import MiniCluster
from tests.cluster.plugin.lua_jobs import Job, completes, sbatch, scontrol
from tests.cluster.stand_in import StandIn

# --- what users may change


@pytest.mark.parametrize(
    "words",
    [
        ("release", "{id}"),
        ("update", "jobid={id}", "priority=10"),
        ("update", "jobid={id}", "nice=50"),
    ],
)
def test_users_cannot_take_a_job_from_headway(cluster: MiniCluster, words: tuple[str, ...]) -> None:
    job = sbatch(cluster, "--gpus=1")

    refusal = scontrol(cluster, *(word.format(id=job.id) for word in words))

    assert "held state, pending scheduler release" in refusal
    assert Job(cluster, job.id).held


def test_users_cannot_release_one_task_of_an_array_either(cluster: MiniCluster) -> None:
    job = sbatch(cluster, "--array=1-3", "--gpus=1")

    assert "held state" in scontrol(cluster, "release", f"{job.id}_2")
    assert "held state" in scontrol(cluster, "release", job.id)


def test_users_change_everything_else(cluster: MiniCluster) -> None:
    job = sbatch(cluster, "--gpus=1")

    begins = ("starttime=now+1hour", "starttime=now")
    for change in (*begins, "comment=mine", "timelimit=10", "jobname=other", "partition=other", "numnodes=1"):
        assert scontrol(cluster, "update", f"jobid={job.id}", change) == ""
    assert Job(cluster, job.id).held


@pytest.mark.parametrize("user", ["daemon", "root"])
def test_changes_go_through_without_a_controller(cluster: MiniCluster, stand_in: StandIn, user: str) -> None:
    job = sbatch(cluster, "--gpus=1", "--begin=now+1hour")
    stand_in.lease.unlink()

    for change in ("partition=other", "timelimit=10", "partition=dl", "nice=7", "starttime=now+2hours"):
        assert scontrol(cluster, "update", f"jobid={job.id}", change, user=user) == ""


def test_root_releases_what_headway_holds(cluster: MiniCluster) -> None:
    job = sbatch(cluster, "--gpus=1")

    assert scontrol(cluster, "release", job.id, user="root") == ""
    completes(cluster, job)


@pytest.mark.parametrize("task", ["", "_2"])
def test_a_users_hold_is_recorded_and_reported_to_the_controller(
    cluster: MiniCluster, stand_in: StandIn, task: str
) -> None:
    job = sbatch(cluster, "--array=1-3", "--gpus=1") if task else sbatch(cluster, "--gpus=1")
    stand_in.lines()

    assert scontrol(cluster, "hold", job.id + task) == ""

    assert stand_in.lines() == [f"user-hold {job.id}{task}"]
    assert stand_in.written_holds() == {job.id + task}


@pytest.mark.parametrize("task", ["", "_2"])
def test_a_hold_says_which_job_it_is_for(cluster: MiniCluster, stand_in: StandIn, task: str) -> None:
    job = sbatch(cluster, "--array=1-3", "--gpus=1") if task else sbatch(cluster, "--gpus=1")

    assert scontrol(cluster, "hold", job.id + task) == ""

    [hold] = HoldFolder(stand_in.holds).read().values()
    assert hold[1:] == Job(cluster, job.id + task).identity
    assert hold.birthmark == job.birthmark != ""


@pytest.mark.parametrize("lease", ["stale", "missing"])
def test_a_users_hold_is_written_down_while_the_controller_is_away(
    cluster: MiniCluster, stand_in: StandIn, lease: str
) -> None:
    job = sbatch(cluster, "--gpus=1")
    stand_in.beat(age_s=1000)
    if lease == "missing":
        stand_in.lease.unlink()

    assert scontrol(cluster, "hold", job.id) == ""

    assert stand_in.written_holds() == {job.id}


def test_a_hold_that_cannot_be_written_down_is_refused(cluster: MiniCluster, stand_in: StandIn) -> None:
    job = sbatch(cluster, "--gpus=1")
    aside = stand_in.holds.rename(stand_in.runtime_dir / "aside")

    refusal = scontrol(cluster, "hold", job.id)
    aside.rename(stand_in.holds)

    assert "held state, pending scheduler release" in refusal
    assert scontrol(cluster, "hold", job.id) == ""


def test_a_hold_that_is_taken_back_leaves_the_job_to_headway(cluster: MiniCluster, stand_in: StandIn) -> None:
    job = sbatch(cluster, "--gpus=1")
    assert scontrol(cluster, "hold", job.id) == ""

    assert scontrol(cluster, "release", job.id) == ""

    assert (Job(cluster, job.id).held, stand_in.written_holds()) == (True, set())
    assert "held state" in scontrol(cluster, "release", job.id)


def test_a_hold_by_root_is_recorded_and_its_release_takes_it_back(cluster: MiniCluster, stand_in: StandIn) -> None:
    job = sbatch(cluster, "--gpus=1")
    stand_in.lines()

    assert scontrol(cluster, "hold", job.id, user="root") == ""
    assert (stand_in.lines(), [path.name for path in stand_in.holds.iterdir()]) == ([f"user-hold {job.id}"], [job.id])
    assert scontrol(cluster, "release", job.id, user="root") == ""
    assert (stand_in.lines(), stand_in.written_holds()) == ([f"user-release {job.id}"], set())
    assert Job(cluster, job.id).held, "it waits for its nodes as before"


@pytest.mark.parametrize("verb", ["hold", "release"])
def test_what_another_user_asks_for_is_refused_and_leaves_no_trace(
    cluster: MiniCluster, stand_in: StandIn, verb: str
) -> None:
    job, held = sbatch(cluster, "--gpus=1"), sbatch(cluster, "--gpus=1")
    assert scontrol(cluster, "hold", held.id) == ""
    stand_in.lines()

    for other in (job, held):
        assert "Invalid user id" in scontrol(cluster, verb, other.id, user="bin")

    assert (stand_in.lines(), stand_in.written_holds()) == ([], {held.id})


def test_a_hold_of_a_job_that_waits_for_slurm_is_written_down_where_headway_may_take_it_over(
    cluster: MiniCluster, stand_in: StandIn
) -> None:
    stand_in.lease.unlink()
    jobs = [sbatch(cluster, "--begin=now+1hour", *options) for options in (("--gpus=1",), (), ("--gpus=1", "-pother"))]
    stand_in.beat()

    for job in jobs:
        assert scontrol(cluster, "hold", job.id) == ""
        assert Job(cluster, job.id).held

    assert stand_in.written_holds() == {jobs[0].id}


def test_a_pipe_in_the_leases_place_delays_no_submission(cluster: MiniCluster, stand_in: StandIn) -> None:
    stand_in.lease.unlink()
    os.mkfifo(stand_in.lease)
    shutil.chown(stand_in.lease, "slurm", "slurm")
    try:
        job = sbatch(cluster, "--gpus=1")
        assert (job.held, job.admin_comment) == (False, "")
        assert cluster.run("scontrol", "ping").returncode == 0
    finally:
        stand_in.lease.unlink()


# --- the user's own hold


def test_the_users_own_hold_is_theirs_to_take_off_and_headway_gets_time_to_place_the_job(
    cluster: MiniCluster, stand_in: StandIn
) -> None:
    # Given a job submitted with -H
    job = sbatch(cluster, "--hold", "--gpus=1")
    assert (job.held, job.admin_comment) == (True, "headway:user-hold")
    assert stand_in.lines() == []

    # When its user releases it
    before = time.time()
    assert scontrol(cluster, "release", job.id) == ""

    # Then the controller is informed, and the job waits for it, but only for some seconds
    released = Job(cluster, job.id)
    assert stand_in.lines() == [f"user-release {job.id}"]
    assert not released.held
    # whose begin time becomes its start: it may run by now, on a busy machine
    assert released.state in {"PENDING", "RUNNING", "COMPLETED"}
    assert before + 4 <= released.begin_s
    if released.state == "PENDING":
        assert released.begin_s <= time.time() + 6
    completes(cluster, job)


def test_a_begin_time_that_the_user_wished_for_stays(cluster: MiniCluster) -> None:
    job = sbatch(cluster, "--hold", "--begin=now+1hour", "--gpus=1")

    scontrol(cluster, "release", job.id)

    assert Job(cluster, job.id).begin_s > time.time() + 3000
