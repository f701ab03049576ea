"""A controller that was stopped in a cycle while the watchdog changed jobs sends no further command, and reads Slurm again."""

from __future__ import annotations

from contextlib import closing

from controller.base.turn import watchdog_turn
from controller.daemon.daemon import Controller
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.slurm.model.job import Phase
from tests.unit.controller.worlds.world import World


def refused(_address):
    raise AssertionError("no policy is swapped here")


async def test_a_controller_that_continues_after_the_watchdog_reads_slurm_again(tmp_path):
    # given a controller that is stopped after it has pinned a job
    world = World(tmp_path, policy="fifo-skip")
    controller = Controller(world.settings, world.slurm.client, world.decider, world.journal, world.clock, refused)
    key = world.sbatch(1000.0, gpus_per_node=1)
    turn = watchdog_turn(world.settings.runtime_dir, world.settings.slurm_timeout_s, world.clock)
    real = world.slurm.client.pin
    pins = []

    async def pin(given):
        failures = await real(given)
        pins.append(given)
        if len(pins) == 1:  # and the watchdog releases the job
            await world.clock.advance(60.0)
            async with turn.taken():
                world.slurm.user_release(key.job_id)
        return failures

    world.slurm.client.pin = pin
    released = []
    release = world.slurm.client.release

    async def note_release(keys):
        released.append(list(keys))
        return await release(keys)

    world.slurm.client.release = note_release
    with closing(WakePipe(world.settings.wake_path)) as wake:
        pause_s = await controller._one_cycle(wake)
        # then it releases nothing, and its next cycle comes soon
        assert released == []
        assert pause_s <= 1.0
        assert controller.health.slurm_away == 0
        assert controller.last is None
        await world.clock.advance(5.0)
        await controller._one_cycle(wake)
        assert controller.last is not None
    await world.clock.advance(30.0)
    assert world.phase(key) is Phase.RUNNING


async def test_a_controller_takes_jobs_without_its_mark_into_the_queue_once_its_lease_is_fresh(tmp_path):
    # given a job that waits for Slurm, as one that the watchdog has released
    world = World(tmp_path, policy="fifo-skip")
    controller = Controller(world.settings, world.slurm.client, world.decider, world.journal, world.clock, refused)
    world.alive = False
    world.sbatch(1000.0, gpus_per_node=8, nodes=4)
    await world.clock.advance(3.0)
    key = world.sbatch(1000.0, gpus_per_node=1)
    with closing(WakePipe(world.settings.wake_path)) as wake:
        # when a controller's lease is stale, a hold of its user would not be recorded
        await controller._one_cycle(wake)
        assert not world.slurm.job(key.job_id).held
        world.write_lease()
        await controller._one_cycle(wake)
    # then it is held only with a fresh one
    assert world.slurm.job(key.job_id).held
