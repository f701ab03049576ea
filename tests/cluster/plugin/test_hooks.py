"""The hooks inside a real Slurm, and `headway-setup slurm` on a real installation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from slurm.minicluster.cluster import ClusterSpec, MiniCluster
from slurm.setup.cli import app
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.minicluster.commands import wait_for
from tests.cluster.stand_in import StandIn

Boot = Callable[..., MiniCluster]


@pytest.fixture(scope="module")
def stand_in() -> Iterator[StandIn]:
    skip_unless_possible()
    with StandIn() as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def shared(stand_in: StandIn) -> Iterator[MiniCluster]:
    event = stand_in.script("hooks/slurmctld_event.sh")
    with MiniCluster(
        ClusterSpec(
            name=unique_name(),
            nodes=3,
            gpus=8,
            job_submit_lua=stand_in.script("job_submit.lua"),
            prolog_slurmctld=event,
            epilog_slurmctld=event,
            task_prolog=stand_in.script("hooks/task_prolog.sh"),
        )
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: MiniCluster, stand_in: StandIn) -> Iterator[MiniCluster]:
    stand_in.lines()
    stand_in.beat(partitions=("dl",))
    yield shared
    shared.run("scancel", "--user=daemon")
    shared.wait_idle()


def sbatch(cluster: MiniCluster, *options: str, script: str = "true") -> str:
    text = f"#!/bin/sh\n{script}\n"
    return cluster.run(
        "sbatch", "--parsable", "--output=job-%j.out", *options, stdin=text, user="daemon"
    ).stdout.strip()


def state(cluster: MiniCluster, job: str) -> str:
    return cluster.run("scontrol", "-o", "show", "job", job).stdout.split("JobState=")[1].split()[0]


def completes(cluster: MiniCluster, job: str) -> str:
    """Wait for it; what it wrote."""
    wait_for(lambda: state(cluster, job) in {"COMPLETED", "FAILED"}, f"job {job} ends")
    output = (cluster.directory / "work" / f"job-{job}.out").read_text()
    assert state(cluster, job) == "COMPLETED", output
    return output


def until_lines(stand_in: StandIn, wanted: set[str]) -> None:
    """Wait until all of these lines have arrived at the controller."""
    lines: set[str] = set()

    def all_of_it() -> bool:
        lines.update(stand_in.lines())
        return wanted <= lines

    wait_for(all_of_it, f"{wanted} through the wake pipe")


# --- start and end


def test_the_controller_is_woken_when_a_job_starts_and_ends(cluster: MiniCluster, stand_in: StandIn) -> None:
    job = sbatch(cluster)

    until_lines(stand_in, {f"start {job}", f"end {job}"})


def test_array_tasks_are_named_as_users_name_them(cluster: MiniCluster, stand_in: StandIn) -> None:
    job = sbatch(cluster, "--array=1-2")

    until_lines(stand_in, {f"start {job}_1", f"end {job}_1", f"start {job}_2", f"end {job}_2"})


@pytest.mark.parametrize("trouble", ["full pipe", "stale lease", "no lease", "nothing there at all"])
def test_jobs_run_whatever_is_wrong_with_the_controller(cluster: MiniCluster, stand_in: StandIn, trouble: str) -> None:
    match trouble:
        case "full pipe":
            stand_in.fill()
        case "stale lease":
            stand_in.beat(age_s=1000)
        case "no lease":
            stand_in.lease.unlink()
        case _:
            (stand_in.scripts / "slurmctld_event.sh").rename(stand_in.scripts / "hook-away")
    try:
        completes(cluster, sbatch(cluster, script="srun hostname"))
    finally:
        stand_in.lines()
        if (stand_in.scripts / "hook-away").exists():
            (stand_in.scripts / "hook-away").rename(stand_in.scripts / "slurmctld_event.sh")


# --- what a job sees on nodes that Headway chose

TASKS = "srun --label sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'"


def placed(cluster: MiniCluster, *options: str, pin: str, script: str = TASKS) -> list[tuple[str, int]]:
    """Submit, pin as the controller does, release: (node, GPUs) that each task of the script saw, by rank."""
    job = sbatch(cluster, *options, script=script)
    cluster.run("scontrol", "update", f"jobid={job}", *pin.split(), "StartTime=now")
    cluster.run("scontrol", "release", job)
    lines = sorted(completes(cluster, job).splitlines(), key=lambda line: int(line.split(":")[0]))
    return [(words[1], len(words[2].split(","))) for words in (line.split() for line in lines)]


SIX_AND_SIX = "TresPerJob= NumNodes=2-2 TresPerNode=gres:gpu:6 ReqNodeList=n2,n3"


@pytest.mark.parametrize(
    ("options", "tasks_per_node"),
    [
        (("--gpus=12",), 1),
        (("--gpus=12", "--ntasks-per-node=1"), 1),
        (("--gpus=12", "--ntasks=1"), 1),
        (("--gpus=12", "--nodes=2", "--ntasks-per-node=2"), 2),
        (("--gpus=12", "--nodes=1-3"), 1),
    ],
)
def test_srun_starts_the_right_tasks_with_the_right_gpus(
    cluster: MiniCluster, options: tuple[str, ...], tasks_per_node: int
) -> None:
    seen = placed(cluster, *options, pin=SIX_AND_SIX)

    assert seen == [("n2", 6)] * tasks_per_node + [("n3", 6)] * tasks_per_node


def test_jobs_with_gpus_per_node_run_where_they_are_put(cluster: MiniCluster) -> None:
    seen = placed(cluster, "--nodes=1-3", "--gpus-per-node=2", pin="NumNodes=3-3 ReqNodeList=n1,n2,n3")

    assert seen == [("n1", 2), ("n2", 2), ("n3", 2)]


# --- headway-setup on an installation that knows nothing of Headway


def test_setup_makes_a_running_slurm_ready(boot_minicluster: Boot, stand_in: StandIn) -> None:
    # Given a cluster with a submit plugin of its own
    cluster = boot_minicluster(
        nodes=1, gpus=2, extra_conf=("JobSubmitPlugins=defaults",), scheduler_parameters="bf_interval=5"
    )
    stand_in.beat()
    options = ["slurm", "--slurm-conf", str(cluster.slurm_conf), "--runtime-dir", str(stand_in.runtime_dir), "--json"]
    assert CliRunner().invoke(app, [*options, "--check"]).exit_code == 1

    # When the operator applies, and takes the steps that it names
    applied = CliRunner().invoke(app, [*options, "--apply"])
    assert applied.exit_code == 0, applied.output
    assert any("restart slurmctld" in step for step in json.loads(applied.output)["next_steps"])
    cluster.kill_slurmctld()
    cluster.start_slurmctld()
    cluster.wait_idle()

    # Then Slurm took every setting, and jobs are held and followed
    config = dict(re.findall(r"^(\w+)\s+= (.*)$", cluster.run("scontrol", "show", "config").stdout, re.MULTILINE))
    assert config["JobSubmitPlugins"] == "defaults,lua"
    assert "batch_sched_delay=0" in config["SchedulerParameters"]
    job = sbatch(cluster, "--gpus=1")
    until_lines(stand_in, {"submit"})
    cluster.run("scontrol", "release", job)
    until_lines(stand_in, {f"start {job}", f"end {job}"})
    assert CliRunner().invoke(app, [*options, "--check"]).exit_code == 0


def test_the_submit_plugin_alone_needs_no_restart(boot_minicluster: Boot, stand_in: StandIn) -> None:
    event = stand_in.script("hooks/slurmctld_event.sh")
    cluster = boot_minicluster(nodes=1, gpus=2, prolog_slurmctld=event, epilog_slurmctld=event)
    stand_in.beat()
    options = ["slurm", "--slurm-conf", str(cluster.slurm_conf), "--runtime-dir", str(stand_in.runtime_dir), "--json"]

    applied = CliRunner().invoke(app, [*options, "--apply"])
    assert json.loads(applied.output)["next_steps"][1:] == ["scontrol reconfigure"]
    cluster.run("scontrol", "reconfigure")

    def held() -> bool:
        job = sbatch(cluster, "--gpus=1")
        return "headway:hold" in cluster.run("scontrol", "-o", "show", "job", job).stdout

    wait_for(held, "job_submit.lua is loaded")


def test_an_undo_leaves_a_slurm_that_knows_nothing_of_headway(boot_minicluster: Boot, stand_in: StandIn) -> None:
    # Given a running Slurm on which everything was installed
    cluster = boot_minicluster(
        nodes=1, gpus=2, extra_conf=("JobSubmitPlugins=defaults",), scheduler_parameters="bf_interval=5"
    )
    stand_in.beat(age_s=1000)  # the controller was stopped, so no job is held
    folder, before = cluster.slurm_conf.parent, cluster.slurm_conf.read_bytes()
    options = ["slurm", "--slurm-conf", str(cluster.slurm_conf), "--runtime-dir", str(stand_in.runtime_dir), "--json"]
    assert CliRunner().invoke(app, [*options, "--apply"]).exit_code == 0
    cluster.kill_slurmctld()
    cluster.start_slurmctld()
    cluster.wait_idle()

    # When slurm.conf is undone, the scripts stay until slurmctld has been restarted
    undone = json.loads(CliRunner().invoke(app, [*options, "--undo", "--apply"]).output)
    assert cluster.slurm_conf.read_bytes() == before
    assert len(undone["waiting"]) == 2, undone
    completes(cluster, sbatch(cluster, "--gpus=1"))
    cluster.kill_slurmctld()
    cluster.start_slurmctld()
    cluster.wait_idle()

    # Then a second run removes them, and jobs run as before
    again = CliRunner().invoke(app, [*options, "--undo", "--apply"])
    assert (again.exit_code, json.loads(again.output)["waiting"]) == (0, []), again.output
    assert not (folder / "job_submit.lua").exists()
    assert not (folder / "headway").exists()
    completes(cluster, sbatch(cluster, "--gpus=1"))
