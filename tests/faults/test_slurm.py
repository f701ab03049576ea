"""On a real Slurm: slurmctld killed, slurmd killed, nodes drained and down. Every job runs once, wherever the break was."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.cluster.live import USER, Live, live


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    with live(spec={"extra_conf": ("SlurmdTimeout=5",)}) as world:
        yield world


@pytest.fixture(autouse=True)
def idle(world: Live) -> Iterator[None]:
    yield
    world.clear()


def begin(world: Live, *options: str, seconds: float) -> str:
    """Submit a job that sleeps; its id, once its script runs: Slurm says RUNNING before its node has heard of it."""
    script = f"touch begun.$SLURM_JOB_ID; sleep {seconds}"
    argv = ("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}")
    job = world.cluster.run(*argv, user=USER).stdout.strip()
    world.until((world.cluster.layout.work / f"begun.{job}").exists, f"{job} begins")
    return job


def test_slurmctld_killed_and_restarted(world: Live) -> None:
    blocker = world.sbatch("-N4", "--gres=gpu:8", seconds=30)  # until slurmctld is back
    world.until_state(blocker, "RUNNING")
    waiting = [world.sbatch("--gres=gpu:8", seconds=1) for _ in range(4)]
    time.sleep(7.0)  # what is younger than this slurmctld itself may not have saved yet
    world.cluster.kill_slurmctld()
    time.sleep(2.0)
    world.cluster.start_slurmctld()
    later = world.sbatch("--gres=gpu:1", seconds=1)
    for job in [blocker, *waiting, later]:
        world.until_state(job, "COMPLETED", timeout_s=60)
        assert world.show(job)["Restarts"] == "0"


def test_slurmd_killed_and_restarted(world: Live) -> None:
    job = begin(world, "-w", "n2", "--gres=gpu:2", seconds=6)
    world.cluster.kill_slurmd("n2")
    time.sleep(1.0)
    world.cluster.start_slurmd("n2")
    world.until_state(job, "COMPLETED", timeout_s=60)
    assert world.show(job)["Restarts"] == "0"


def test_a_drained_node_gets_nothing_until_it_is_back(world: Live) -> None:
    world.cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    try:
        first = [world.sbatch("--gres=gpu:8", seconds=3) for _ in range(3)]
        pinned = world.sbatch("-w", "n1", "--gres=gpu:1", seconds=1)
        for job in first:
            world.until_state(job, "RUNNING", "COMPLETED")
            assert world.show(job)["NodeList"] != "n1"
        assert world.state(pinned) == "PENDING"
    finally:
        world.cluster.run("scontrol", "update", "nodename=n1", "state=resume")
    world.until_state(pinned, "RUNNING", "COMPLETED")


def test_jobs_of_a_dead_node_are_placed_anew(world: Live) -> None:
    job = begin(world, "--gres=gpu:4", seconds=8)
    (lost,) = world.nodes(job)
    try:
        world.cluster.crash_node(lost)
        world.until(lambda: int(world.show(job).get("Restarts", 0)) == 1, "Slurm requeues it", 60)
        world.until_state(job, "RUNNING")
        (found,) = world.nodes(job)
        assert found != lost
        assert len(world.headway.ask("why", job)["decisions"]) >= 1
    finally:
        world.cluster.boot_node(lost)
        world.cluster.run("scontrol", "update", f"nodename={lost}", "state=resume", check=False)
    world.until_state(job, "COMPLETED", timeout_s=60)
