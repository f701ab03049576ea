"""job_submit.lua inside a real slurmctld: what happens to a job at its submission."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm.minicluster.cluster import MiniCluster
from tests.cluster.plugin.lua_jobs import completes, sbatch, scontrol
from tests.cluster.stand_in import StandIn

Boot = Callable[..., MiniCluster]


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
    assert len(job.birthmark) == 8
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


def test_sbatch_prints_a_message_about_a_misspelt_option(cluster: MiniCluster, stand_in: StandIn) -> None:
    done = cluster.run("sbatch", "--gpus=1", "--comment=headway=preemptable", "--wrap=true", user="daemon")

    assert "Submitted batch job" in done.stdout
    assert "unknown options in the comment have no effect: preemptable. Headway knows off, preemptible" in done.stderr
    assert stand_in.lines() == ["submit"]


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


def test_a_full_wake_pipe_blocks_no_submission(cluster: MiniCluster, stand_in: StandIn) -> None:
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
