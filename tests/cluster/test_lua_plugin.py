"""job_submit.lua inside a real slurmctld."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm.minicluster.cluster import ClusterSpec, MiniCluster, PartitionSpec
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.stand_in import StandIn

Boot = Callable[..., MiniCluster]
PARTITIONS = (PartitionSpec("dl"), PartitionSpec("other"))


@pytest.fixture(scope="module")
def stand_in() -> Iterator[StandIn]:
    skip_unless_possible()
    with StandIn() as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def shared(stand_in: StandIn) -> Iterator[MiniCluster]:
    lua = stand_in.script("job_submit.lua")
    with MiniCluster(
        ClusterSpec(name=unique_name(), nodes=2, gpus=8, job_submit_lua=lua, partitions=PARTITIONS)
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: MiniCluster, stand_in: StandIn) -> Iterator[MiniCluster]:
    """The cluster with a controller that is there; every test leaves it empty."""
    stand_in.lines()
    stand_in.written_holds()
    stand_in.beat()
    yield shared
    shared.run("scancel", "--user=daemon")
    shared.run("scancel", "--user=root")
    shared.wait_idle()


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
    """What scontrol said; empty when it did as told."""
    done = cluster.run("scontrol", *words, user=user, check=False)
    return "" if done.returncode == 0 else done.stderr


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in {timeout_s} s"
        time.sleep(0.05)


def completes(cluster: MiniCluster, job: Job) -> None:
    wait_for(lambda: Job(cluster, job.id).state == "COMPLETED", f"job {job.id} completes")


# --- submission


@pytest.mark.parametrize(
    "options",
    [
        ("--gres=gpu:2",),
        ("--gpus=12",),
        ("--gpus-per-node=2", "--nodes=2"),
        ("--gpus-per-task=1", "--ntasks=2"),
        ("--gpus-per-socket=2", "--sockets-per-node=1"),
        ("--gpus=g1:1", "--partition=dl"),
        ("--array=0-9%3", "--gpus=1"),
        ("--exclusive", "--gres=gpu:8"),
    ],
)
def test_a_batch_job_with_gpus_is_held_for_headway(
    cluster: MiniCluster, stand_in: StandIn, options: tuple[str, ...]
) -> None:
    job = sbatch(cluster, *options)

    assert (job.held, job.admin_comment) == (True, "headway:hold")
    assert stand_in.lines() == ["submit"]


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--gres=gpu:0",),
        ("--gpus=1", "--partition=other"),
        ("--gpus=1", "--partition=dl,other"),
        ("--gpus=1", ":", "--gpus=1"),
    ],
)
def test_other_jobs_run_as_if_headway_did_not_exist(
    cluster: MiniCluster, stand_in: StandIn, options: tuple[str, ...]
) -> None:
    job = sbatch(cluster, *options)

    assert (job.held, job.admin_comment) == (False, "")
    completes(cluster, job)
    assert stand_in.lines() == []


@pytest.mark.parametrize("program", [("srun",), ("salloc",), ("salloc", "srun")])
def test_srun_and_salloc_pass_through(cluster: MiniCluster, program: tuple[str, ...]) -> None:
    first, *then = program

    assert cluster.run(first, "--gpus=1", *then, "hostname", user="daemon").stdout.strip()


@pytest.mark.parametrize("lease", ["stale", "missing", "broken", "from the future"])
def test_without_a_fresh_lease_nothing_is_held(cluster: MiniCluster, stand_in: StandIn, lease: str) -> None:
    match lease:
        case "stale":
            stand_in.beat(age_s=1000)
        case "from the future":
            stand_in.beat(age_s=-900)  # far enough: the clock goes on while sbatch starts
        case "missing":
            stand_in.lease.unlink()
        case _:
            stand_in.lease.write_bytes(b"\x00time=\nnonsense")

    job = sbatch(cluster, "--gpus=1")

    assert (job.held, job.admin_comment) == (False, "")
    completes(cluster, job)
    assert stand_in.lines() == []


def test_jobs_held_before_can_be_released_by_their_users_once_the_lease_is_stale(
    cluster: MiniCluster, stand_in: StandIn
) -> None:
    job = sbatch(cluster, "--gpus=1")
    stand_in.beat(age_s=1000)

    assert scontrol(cluster, "release", job.id) == ""
    completes(cluster, job)


# --- a controller that hangs


def test_a_wake_pipe_filled_to_the_brim_blocks_nobody(cluster: MiniCluster, stand_in: StandIn) -> None:
    # Given a controller that beats but reads nothing, and a pipe that holds not one byte more
    stand_in.fill()
    stand_in.beat()

    # When a job is submitted, then slurmctld answers as ever
    job = sbatch(cluster, "--gpus=1")
    assert job.held
    assert cluster.run("scontrol", "ping").returncode == 0
    stand_in.lines()


def test_slurmctld_keeps_count_of_what_it_wrote_between_two_beats(cluster: MiniCluster, stand_in: StandIn) -> None:
    stand_in.beat(wake_room_bytes=60)

    jobs = [sbatch(cluster, "--gpus=1") for _ in range(5)]

    assert all(job.held for job in jobs)
    assert stand_in.lines() == ["submit"] * 2  # 2 x 7 bytes of 60 / 4


# --- what users may change


@pytest.mark.parametrize(
    "words",
    [
        ("release", "{id}"),
        ("update", "jobid={id}", "starttime=now+1hour"),
        ("update", "jobid={id}", "starttime=now"),
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

    for change in ("comment=mine", "timelimit=10", "jobname=other", "partition=other", "numnodes=1"):
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
def test_a_users_hold_is_written_down_and_told_to_the_controller(
    cluster: MiniCluster, stand_in: StandIn, task: str
) -> None:
    job = sbatch(cluster, "--array=1-3", "--gpus=1") if task else sbatch(cluster, "--gpus=1")
    stand_in.lines()

    assert scontrol(cluster, "hold", job.id + task) == ""

    assert stand_in.lines() == [f"user-hold {job.id}{task}"]
    assert stand_in.written_holds() == {job.id + task}


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


def test_a_pipe_in_the_leases_place_holds_nobody_up(cluster: MiniCluster, stand_in: StandIn) -> None:
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

    # Then the controller is told, and the job waits a little for it, but not for ever
    released = Job(cluster, job.id)
    assert stand_in.lines() == [f"user-release {job.id}"]
    assert (released.held, released.state) == (False, "PENDING")
    assert before + 4 <= released.begin_s <= time.time() + 6
    completes(cluster, job)


def test_a_begin_time_that_the_user_wished_for_stays(cluster: MiniCluster) -> None:
    job = sbatch(cluster, "--hold", "--begin=now+1hour", "--gpus=1")

    scontrol(cluster, "release", job.id)

    assert Job(cluster, job.id).begin_s > time.time() + 3000


# --- beside others


def test_a_sites_own_script_runs_first_and_its_admin_comment_stays(boot_minicluster: Boot, tmp_path: Path) -> None:
    with StandIn() as stand_in:
        # Given a site that keeps notes in the admin comment and loads our script at its script's end
        site = tmp_path / "job_submit.lua"
        site.write_text(
            "function slurm_job_submit(job, parts, uid)\n"
            "  if job.name == 'bad' then slurm.log_user('not here') return slurm.ERROR end\n"
            "  job.admin_comment = 'ticket=42 cost:7'\n"
            "  return slurm.SUCCESS\n"
            "end\n"
            "function slurm_job_modify(job, record, parts, uid) return slurm.SUCCESS end\n"
            f'dofile("{stand_in.script("job_submit.lua")}")\n'
        )
        cluster = boot_minicluster(nodes=1, gpus=2, job_submit_lua=site)
        stand_in.beat()

        # Then both have their say
        job = sbatch(cluster, "--gpus=1")
        assert (job.held, job.admin_comment) == (True, "ticket=42 cost:7 headway:hold")
        refused = cluster.run("sbatch", "--job-name=bad", "--gpus=1", "--wrap=true", check=False)
        assert (refused.returncode, "not here" in refused.stderr) == (1, True)
        assert "held state" in scontrol(cluster, "release", job.id)


def test_sbatch_takes_no_longer_with_the_plugin(cluster: MiniCluster, stand_in: StandIn) -> None:
    def took_s() -> float:
        begin = time.perf_counter()
        cluster.run("sbatch", "--parsable", "--hold", "--output=/dev/null", "--gpus=1", "--wrap=true")
        return time.perf_counter() - begin

    # By turns, and the quickest of each: what else the machine does comes and goes, what the plugin takes is in every call
    with_lease_s, without_s = [], []
    for _ in range(15):
        stand_in.beat()
        with_lease_s.append(took_s())
        stand_in.lease.unlink()
        without_s.append(took_s())

    assert min(with_lease_s) - min(without_s) < 0.05
