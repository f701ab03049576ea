"""Nodes that Slurm's power saving has off are used: the first job there boots them."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from controller.admin.explain.cycle_view import CycleView
from controller.admin.explain.explain import explain
from controller.admin.messages import cluster
from controller.cycle.changes import SHORT_RUN_S
from controller.slurm.embedded import ClusterDescription
from controller.slurm.embedded.ctld.slurmctld import RESUME_TIMEOUT_S
from controller.slurm.embedded.description import NodeDescription
from controller.slurm.model.job import JobKey, Phase
from tests.unit.controller.worlds.world import World

BOOT_S = 400.0
NODES = ("n1", "n2", "n3", "n4")


def asleep(folder: Path, **boot_s: float) -> World:
    """Return a world whose nodes sleep, each with the time that its boot takes."""
    world = World(folder, policy="fifo-skip")
    for name, time_s in boot_s.items():
        world.slurm.node_sleep(name, time_s)
    return world


def places(world: World, key: JobKey) -> list[list[str]]:
    """Return the nodes of each start of a job."""
    return [[share.node for share in shares] for _, shares in world.slurm.job(key.job_id).starts]


async def power_down_failed(world: World) -> None:
    """Set nodes that have not booted to power down, as sites' tools do at once; the next job there boots them again."""
    for node in (await world.slurm.client.snapshot()).nodes:
        if node.state == "DOWN+POWERED_DOWN":
            world.slurm.node_resume(node.name)


async def why(world: World, key: JobKey) -> str:
    result = await world.turn()
    found = explain(CycleView(result, world.ledger, ["dl"]), key.job_id, world.clock.now())
    assert found is not None
    return found.sentence


async def test_a_job_boots_sleeping_nodes_and_nothing_counts_as_late_meanwhile(tmp_path: Path) -> None:
    # given a cluster that sleeps
    world = asleep(tmp_path, **dict.fromkeys(NODES, BOOT_S))
    # when a job comes
    key = world.sbatch(1000.0, gpus_per_node=8, nodes=2)
    await world.go_on(3)
    # then it gets two of the nodes at once, and waits for their boot, however long that takes
    assert [node.state for node in (await world.slurm.client.snapshot()).nodes] == [
        *["ALLOCATED+NOT_RESPONDING+POWERING_UP"] * 2, *["IDLE+POWERED_DOWN"] * 2,
    ]  # fmt: skip
    assert "Slurm boots (power saving) n1:8,n2:8 for it" in await why(world, key)
    await world.go_on(BOOT_S - 20, step_s=5)
    assert world.phase(key) is Phase.CONFIGURING
    assert not world.ledger.refusals
    # and then it runs, once
    await world.go_on(40)
    assert world.phase(key) is Phase.RUNNING
    assert places(world, key) == [["n1", "n2"]]


async def test_jobs_share_a_node_that_boots(tmp_path: Path) -> None:
    world = asleep(tmp_path, **dict.fromkeys(NODES, BOOT_S))
    keys = [world.sbatch(1000.0, gpus_per_node=2)]
    await world.go_on(60)
    keys.append(world.sbatch(1000.0, gpus_per_node=2))
    await world.go_on(BOOT_S, step_s=5)
    assert [world.phase(key) for key in keys] == [Phase.RUNNING] * 2
    assert [list(world.nodes(key)) for key in keys] == [["n1"], ["n1"]]


@pytest.mark.parametrize("policy", ["fifo-skip", "las"])
async def test_nodes_that_are_awake_come_first_and_users_read_slurms_order(tmp_path: Path, policy: str) -> None:
    world = World(tmp_path, policy=policy)
    for name in ("n1", "n2"):
        world.slurm.node_sleep(name, BOOT_S)
    keys = [world.sbatch(1000.0, gpus_per_node=8) for _ in range(3)]
    await world.go_on(5)
    assert [list(world.nodes(key)) for key in keys] == [["n3"], ["n4"], ["n1"]]
    view = CycleView(await world.turn(), world.ledger, ["dl"])
    shown = cluster(view, lambda _: "").nodes
    assert [(row.name, row.gpus_used, row.available) for row in shown] == [
        ("n1", 8, True), ("n2", 0, True), ("n3", 8, True), ("n4", 8, True),
    ]  # fmt: skip


async def test_nodes_that_do_not_boot_are_avoided_although_they_are_offered_again_at_once(tmp_path: Path) -> None:
    # given two nodes that never register, and an operator that powers them down after each failure
    world = asleep(tmp_path, n1=math.inf, n2=math.inf, n3=BOOT_S, n4=BOOT_S)
    key = world.sbatch(1000.0, gpus_per_node=8)
    for _ in range(round(1.5 * RESUME_TIMEOUT_S / 5)):
        await world.go_on(5, step_s=5)
        await power_down_failed(world)
    assert [refusal.reason for refusal in world.ledger.refusals.values()] == ["n1 did not boot for it"]
    world.restart()
    for _ in range(round((0.5 * RESUME_TIMEOUT_S + BOOT_S + 60) / 5)):
        await world.go_on(5, step_s=5)
        await power_down_failed(world)
    # then each of them is tried once, and a restart of the controller in between forgets none
    assert places(world, key) == [["n1"], ["n2"], ["n3"]]
    assert world.phase(key) is Phase.RUNNING
    # and waiting for boots was no service
    (served,) = world.ledger.served.values()
    assert (served.service_s, served.gpu_s, served.short_runs) == (0.0, 0.0, 2)


async def test_the_only_node_is_tried_more_and_more_seldom_when_it_does_not_boot(tmp_path: Path) -> None:
    world = World(tmp_path, ClusterDescription(nodes=(NodeDescription(names="n1"),)), policy="fifo-skip")
    world.slurm.node_sleep("n1", math.inf)
    key = world.sbatch(1000.0, gpus_per_node=8)
    for _ in range(round(8 * RESUME_TIMEOUT_S / 5)):
        await world.go_on(5, step_s=5)
        await power_down_failed(world)
    began = [start_s for start_s, _ in world.slurm.job(key.job_id).starts]
    pauses = [after - before - RESUME_TIMEOUT_S for before, after in pairwise(began)]
    assert len(pauses) >= 5
    assert pauses[-1] > pauses[1] + SHORT_RUN_S


async def test_a_job_that_was_requeued_for_another_reason_may_boot_its_node_again(tmp_path: Path) -> None:
    world = asleep(tmp_path, **dict.fromkeys(NODES, BOOT_S))
    key = world.sbatch(1000.0, gpus_per_node=8)
    await world.go_on(30)
    world.slurm.requeue(key.job_id)
    await world.go_on(30)
    assert places(world, key) == [["n1"], ["n1"]]
    assert not world.ledger.refusals
