"""On a real Slurm: nodes that power saving has off boot for Headway's jobs, and such that do not boot are avoided."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from tests.cluster.live import Live, live

RESUME_TIMEOUT_S = 45
"""Longer than the boot of a node here takes, also on a busy machine."""
POWER = (
    "SuspendProgram=/bin/true",  # the tests crash and boot the nodes themselves
    "ResumeProgram=/bin/true",
    "SuspendTime=100000",
    "SuspendTimeout=1",
    f"ResumeTimeout={RESUME_TIMEOUT_S}",
    "SuspendRate=0",
    "ResumeRate=0",
    "ReturnToService=2",
)


@pytest.fixture
def world() -> Iterator[Live]:
    with live(start_grace_s=2.0, spec={"nodes": 3, "extra_conf": POWER}) as world:
        yield world


def node_state(world: Live, node: str) -> set[str]:
    words = world.cluster.run("scontrol", "-o", "show", "node", node).stdout.split()
    return set(next(word.removeprefix("State=") for word in words if word.startswith("State=")).split("+"))


def power_down(world: Live, nodes: Sequence[str]) -> None:
    """Power these nodes down, as slurmctld does with idle ones, and wait until it calls them off."""
    world.cluster.run("scontrol", "update", f"nodename={','.join(nodes)}", "state=power_down_force")
    world.until(
        lambda: not any("POWER_DOWN" in node_state(world, node) for node in nodes), "they are being powered down"
    )
    for node in nodes:
        world.cluster.crash_node(node)
    world.until(lambda: all("POWERED_DOWN" in node_state(world, node) for node in nodes), "they are off")


def node_of(world: Live, job: str) -> str:
    (node,) = world.nodes(job)
    return node


def test_a_job_boots_a_node_when_all_are_off(world: Live) -> None:
    power_down(world, ("n1", "n2", "n3"))
    job = world.open_job("--gres=gpu:8")
    world.until_state(job, "CONFIGURING")
    node = node_of(world, job)
    # It is started neither anew nor elsewhere, however long the boot takes.
    sentence = world.until(
        lambda: said if "boots" in (said := world.headway.ask("why", job)["sentence"]) else "", "why knows of the boot"
    )
    assert f"Slurm boots (power saving) {node}:8 for it" in sentence
    begun_s = time.monotonic()
    world.until(lambda: time.monotonic() > begun_s + 6, "three times the start grace has passed")
    assert world.state(job) == "CONFIGURING"
    world.cluster.boot_node(node)
    world.until_begun(job)
    assert (node_of(world, job), world.nodes(job), world.show(job)["Restarts"]) == (node, {node: 8}, "0")
    world.end(job)


@pytest.mark.slow
def test_a_node_that_does_not_boot_is_avoided(world: Live) -> None:
    power_down(world, ("n1", "n2"))
    busy = world.open_job("--gres=gpu:8")
    world.until_begun(busy)
    assert node_of(world, busy) == "n3", "the node that is awake comes first"
    job = world.open_job("--gres=gpu:8")
    world.until_state(job, "CONFIGURING")
    bad = node_of(world, job)
    world.until(lambda: "DOWN" in node_state(world, bad), "its boot has failed", RESUME_TIMEOUT_S + 60)
    # A site's tool makes it available at once; Slurm would boot it again for the next job.
    world.cluster.run("scontrol", "update", f"nodename={bad}", "state=resume")
    world.until(lambda: {"IDLE", "POWERED_DOWN"} <= node_state(world, bad), "it is offered again")
    other = world.until(
        lambda: next((node for node in world.nodes(job) if node != bad), ""), "it is placed on the other node"
    )
    world.cluster.boot_node(other)
    world.until_begun(job)
    assert node_of(world, job) == other
    world.end(job)
    world.end(busy)
