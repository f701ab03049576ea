"""A job that has run before starts at the begin time that its user has given it since, like a new job."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.slurm.model.job import JobKey, Phase
from tests.unit.controller.worlds.world import World

LATER_S = 3600.0


async def requeued(world: World) -> JobKey:
    """Return a job that was requeued from a drained node, and waits for the others."""
    key = world.sbatch(1000.0, gpus_per_node=8)
    await world.go_on(5)
    for _ in range(4):
        world.sbatch(300.0, gpus_per_node=8)
    await world.go_on(5)
    world.slurm.node_drain(next(iter(world.nodes(key))))
    world.slurm.requeue(key.job_id)
    await world.go_on(5)
    return key


async def starts_at(world: World, key: JobKey, time_s: float) -> None:
    """Check that the job does not start before this time, and starts then."""
    await world.go_on(time_s - world.clock.now() - 20.0, step_s=20.0)
    assert world.phase(key) is Phase.PENDING
    await world.go_on(60.0)
    assert world.phase(key) is Phase.RUNNING
    assert world.slurm.job(key.job_id).starts[-1][0] >= time_s


async def test_a_begin_time_after_a_users_hold_of_a_requeued_job(tmp_path: Path) -> None:
    world = World(tmp_path, policy="fifo-skip")
    key = await requeued(world)
    world.slurm.user_hold(key.job_id)
    await world.go_on(5)
    begin_s = world.clock.now() + LATER_S
    world.slurm.update(key.job_id, StartTime=str(begin_s))
    world.slurm.user_release(key.job_id)
    await starts_at(world, key, begin_s)


async def test_a_begin_time_of_a_requeued_job_while_the_controller_is_away(tmp_path: Path) -> None:
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8)
    await world.go_on(5)
    world.alive = False
    world.slurm.node_down(next(iter(world.nodes(key))))
    await world.clock.advance(5.0)
    begin_s = world.clock.now() + LATER_S
    world.slurm.update(key.job_id, StartTime=str(begin_s))
    world.alive = True
    world.restart()
    await starts_at(world, key, begin_s)


@pytest.mark.parametrize("wait_s", [2.0, 1000.0])
async def test_a_release_of_a_requeued_job_delays_it_by_seconds_only(tmp_path: Path, wait_s: float) -> None:
    world = World(tmp_path, policy="fifo-skip")
    key = await requeued(world)
    world.slurm.user_hold(key.job_id)
    await world.go_on(wait_s, step_s=2.0)
    for other in list(world.slurm._ctld.jobs.values()):
        if other.job_id != key.job_id and other.phase is not Phase.ENDED:
            world.slurm.cancel(other.job_id)
    world.slurm.user_release(key.job_id)
    await world.go_on(10)
    assert world.phase(key) is Phase.RUNNING
