"""On a real Slurm: slurmctld killed, slurmd killed, nodes drained and down. Every job runs once, wherever the break was."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.cluster.live import Live, live


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    with live() as world:
        yield world


@pytest.fixture
def soon_missed(world: Live) -> Iterator[None]:
    """Slurm marks a silent node down soon; only for tests in which no slurmd is to be back before that."""
    conf = world.cluster.slurm_conf
    before = conf.read_text()
    assert "SlurmdTimeout=30" in before
    conf.write_text(before.replace("SlurmdTimeout=30", "SlurmdTimeout=12"))
    world.cluster.run("scontrol", "reconfigure")
    yield
    conf.write_text(before)
    world.cluster.run("scontrol", "reconfigure")


@pytest.fixture(autouse=True)
def idle(world: Live) -> Iterator[None]:
    yield
    world.clear()


def saved_jobs(world: Live) -> str:
    """Return the jobs that slurmctld has saved so far."""
    with contextlib.suppress(FileNotFoundError):  # it is just being replaced
        return (world.cluster.files.state / "job_state").read_text(errors="replace")
    return ""


def test_slurmctld_killed_and_restarted(world: Live) -> None:
    blocker = world.open_job("-N4", "--gres=gpu:8")
    world.until_state(blocker, "RUNNING")
    waiting = [world.sbatch("--gres=gpu:8", f"--job-name=waiting-{number}", seconds=1) for number in range(4)]
    world.until(lambda: "waiting-3" in saved_jobs(world), "slurmctld has saved the jobs")
    world.cluster.kill_slurmctld()
    time.sleep(2.0)
    world.cluster.start_slurmctld()
    later = world.sbatch("--gres=gpu:1", seconds=1)
    world.end(blocker)
    for job in [blocker, *waiting, later]:
        world.until_state(job, "COMPLETED", timeout_s=60)
        assert world.show(job)["Restarts"] == "0"


def test_slurmd_killed_and_restarted(world: Live) -> None:
    job = world.open_job("-w", "n2", "--gres=gpu:2")
    world.until_begun(job)
    world.cluster.kill_slurmd("n2")
    time.sleep(1.0)
    world.cluster.start_slurmd("n2")
    assert world.state(job) == "RUNNING"
    world.end(job)
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


@pytest.mark.usefixtures("soon_missed")
def test_jobs_of_a_dead_node_are_placed_again(world: Live) -> None:
    job = world.open_job("--gres=gpu:4")
    world.until_begun(job)
    (lost,) = world.nodes(job)
    try:
        world.cluster.crash_node(lost)
        world.until(lambda: int(world.show(job).get("Restarts", 0)) == 1, "Slurm requeues it", 120)
        world.until_state(job, "RUNNING")
        (found,) = world.nodes(job)
        assert found != lost
        assert len(world.headway.ask("why", job)["decisions"]) >= 1
        world.end(job)
    finally:
        world.cluster.boot_node(lost)
        world.cluster.run("scontrol", "update", f"nodename={lost}", "state=resume", check=False)
    world.until_state(job, "COMPLETED", timeout_s=60)
