"""On a real Slurm: what Headway does with a released job that Slurm refuses for a limit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm.minicluster.spec import ACCOUNT
from tests.cluster.live import USER, Live, live

OTHER = "bin"
"""A second plain user."""
NODES = 2
LONG_S = 600.0
"""Jobs of that length run until a test cancels them."""


@pytest.fixture(scope="module")
def limited() -> Iterator[Live]:
    """A cluster with accounting, where both users may submit, without limits at first."""
    with live(spec={"nodes": NODES, "accounting": True}) as world:
        world.cluster.sacctmgr("add", "user", f"{USER},{OTHER}", f"Account={ACCOUNT}")
        world.cluster.sacctmgr("add", "qos", "narrow,single")
        world.cluster.sacctmgr("modify", "qos", "narrow", "set", "MaxTRESPerUser=gres/gpu=8")
        world.cluster.sacctmgr("modify", "qos", "single", "set", "MaxJobsPerUser=1")
        world.cluster.sacctmgr("modify", "account", ACCOUNT, "set", "QOS+=narrow,single")
        yield world


@pytest.fixture
def idle(limited: Live) -> Iterator[Live]:
    """The same cluster, with an empty queue before and after the test."""
    yield limited
    clear(limited)


@pytest.fixture
def licensed() -> Iterator[Live]:
    """A cluster without accounting, which has one license."""
    with live(spec={"nodes": NODES, "extra_conf": ("Licenses=sim:1",)}) as world:
        yield world


def clear(world: Live) -> None:
    world.cluster.run("scancel", f"--user={OTHER}", check=False)
    world.clear()


def held_for(world: Live, job: str, reason: str) -> bool:
    """Return whether Headway holds the job again, with Slurm's reason in its explanation."""
    answer = world.headway.ask("why", job)
    return world.show(job)["Priority"] == "0" and reason in answer["sentence"] and answer["state"] == "ineligible"


def as_made(world: Live, job: str) -> bool:
    """Return whether the request is that of the user."""
    shown = world.show(job)
    return (shown["ReqNodeList"], shown["TresPerNode"]) == ("(null)", "gres:gpu:8")


def the_limit_is_waited_for(world: Live, *options: str, reason: str, freed_by: str = USER) -> None:
    """The story of each test: two jobs, of which the limit allows one, and a third to which it does not apply."""
    # Given two jobs, each of a node's size, of which only one is allowed, and room for both
    first = world.sbatch(*options, "--gres=gpu:8", seconds=LONG_S, user=freed_by)
    world.until_state(first, "RUNNING")
    second = world.sbatch(*options, "--gres=gpu:8", seconds=1)
    world.until_known(second)
    # Then Headway releases the second, Slurm refuses it, and it is held again; its user can read why
    world.until(lambda: held_for(world, second, reason), f"{second} is held for {reason}")
    assert world.state(second) == "PENDING"
    assert world.headway.ask("why", second)["decisions"], "it had been placed before"
    # And its request is as the user made it, whenever it is not just being tried again
    world.until(lambda: as_made(world, second) and world.show(second)["Priority"] == "0", f"{second} is as it was made")
    # And the room is not kept for it
    third = world.sbatch("--gres=gpu:8", seconds=LONG_S, user=OTHER)
    world.until_state(third, "RUNNING")
    assert world.state(second) == "PENDING"
    # When the first ends, then it runs
    world.cluster.run("scancel", first)
    world.until_state(second, "COMPLETED")
    assert world.show(second)["Restarts"] == "0"
    assert world.state(third) == "RUNNING"


def test_an_associations_limit_on_gpus(idle: Live) -> None:
    idle.cluster.sacctmgr("modify", "user", USER, "set", "GrpTRES=gres/gpu=8")
    try:
        the_limit_is_waited_for(idle, reason="AssocGrpGRES")
    finally:
        idle.cluster.sacctmgr("modify", "user", USER, "set", "GrpTRES=gres/gpu=-1")


@pytest.mark.parametrize(
    ("qos", "reason"), [("narrow", "QOSMaxGRESPerUser"), ("single", "QOSMaxJobsPerUserLimit")], ids=["GPUs", "jobs"]
)
def test_a_limit_of_the_quality_of_service(idle: Live, qos: str, reason: str) -> None:
    the_limit_is_waited_for(idle, f"--qos={qos}", reason=reason)


def test_a_license_that_another_user_has(licensed: Live) -> None:
    the_limit_is_waited_for(licensed, "--licenses=sim:1", reason="Licenses", freed_by=OTHER)
    clear(licensed)


def test_a_user_far_over_a_limit_delays_no_other_user(idle: Live) -> None:
    # Given a user who may run one job at a time, and has many
    many = [idle.sbatch("--qos=single", "--gres=gpu:8", seconds=LONG_S) for _ in range(12)]
    idle.until(lambda: "RUNNING" in {idle.state(job) for job in many}, "one of them runs")
    idle.until_known(many[-1])
    idle.until(
        lambda: held_for(idle, many[-1], "QOSMaxJobsPerUserLimit"), "the explanation of the last one gives the limit"
    )
    # When another user submits a job, then it runs
    other = idle.sbatch("--gres=gpu:8", seconds=LONG_S, user=OTHER)
    idle.until_state(other, "RUNNING")
    # And only few of the many were placed in vain
    tried = [job for job in many if idle.headway.ask("why", job)["decisions"]]
    assert 1 < len(tried) <= 2 + NODES


def test_an_array_keeps_no_gpus_for_tasks_beyond_its_throttle(idle: Live) -> None:
    # Given an array that may run one task at a time, with tasks for all GPUs
    array = idle.sbatch("--array=0-15%1", "--gres=gpu:1", seconds=LONG_S)
    idle.until_state(f"{array}_0", "RUNNING")
    # When another user submits a job for a whole node, then it runs at once
    other = idle.sbatch("--gres=gpu:8", seconds=LONG_S, user=OTHER)
    idle.until_state(other, "RUNNING")
    # And no other task has been placed in vain
    assert [task for task in range(16) if idle.headway.ask("why", f"{array}_{task}")["decisions"]] == [0]
    # When the first task ends, then the next one runs
    idle.cluster.run("scancel", f"{array}_0")
    idle.until_state(f"{array}_1", "RUNNING")
