"""A cycle may take longer than the lease lasts: it stays good while Slurm carries out what it is asked, and only then."""

from __future__ import annotations

from contextlib import closing

import pytest

from controller.base.errors import HeadwayError
from controller.daemon.daemon import Controller
from controller.daemon.pacing.wake_pipe import WakePipe
from tests.unit.controller.worlds.world import World

PIECE_S = 12.0
"""Time that slurmctld takes for one piece of a burst, in seconds."""


def refused(_address):
    raise AssertionError("no policy is swapped here")


@pytest.fixture
def slow(tmp_path):
    """A controller that has had a good cycle, and a slurmctld that takes its time with a burst in pieces of two."""
    world = World(tmp_path, policy="fifo-skip")
    controller = Controller(world.settings, world.slurm.client, world.decider, world.journal, world.clock, refused)
    controller.health.last_good_s = world.clock.now()
    controller.health.good_at_s = world.clock.monotonic()
    controller._cycle.verbs.starts.size = 2
    controller._cycle.verbs.starts._most = 2
    for _ in range(12):
        world.sbatch(1000.0, gpus_per_node=1)
    return world, controller


def ages_at_each_pin(world, controller, real):
    """Collects the age of the last good sign at each pin."""
    ages = []

    async def pin(pins):
        ages.append(world.clock.monotonic() - controller.health.good_at_s)
        await world.clock.advance(PIECE_S)
        return await real(pins)

    world.slurm.client.pin = pin
    return ages


async def test_the_lease_stays_good_through_a_cycle_longer_than_it_lasts(slow):
    world, controller = slow
    ages = ages_at_each_pin(world, controller, world.slurm.client.pin)
    begun_s = world.clock.now()
    await controller._cycle.run(await world.slurm.client.snapshot())
    assert world.clock.now() - begun_s > world.settings.stale_after_s
    assert len(ages) == 6
    assert max(ages) <= PIECE_S < controller._intervals.patience_s
    assert controller.health.last_cycle_s == controller.health.good_at_s


async def test_what_slurm_refuses_is_no_progress(slow):
    world, controller = slow
    before_s = controller.health.good_at_s
    for verb in ("pin", "unpin", "hold"):
        for _ in range(6):
            world.slurm.faults.refuse_next(verb, "Access/permission denied")
    ages_at_each_pin(world, controller, world.slurm.client.pin)
    await controller._cycle.run(await world.slurm.client.snapshot())
    assert controller.health.good_at_s == before_s


async def test_progress_before_the_first_good_cycle_is_none(slow):
    world, controller = slow
    controller.health.good_at_s = None
    await controller._cycle.run(await world.slurm.client.snapshot())
    assert controller.health.good_at_s is None


async def test_steps_in_cycles_that_all_break_off_do_not_renew_the_lease(tmp_path):
    # given a controller in which deciding is broken, and jobs that it takes into the queue now and then
    world = World(tmp_path, policy="fifo-skip")
    world.write_lease()
    controller = Controller(world.settings, world.slurm.client, world.decider, world.journal, world.clock, refused)
    decide = world.decider.decide

    async def broken(state):
        raise HeadwayError("a fault, in every cycle")

    with closing(WakePipe(world.settings.wake_path)) as wake:
        await controller._one_cycle(wake)
        world.decider.decide = broken
        oldest_s = 0.0
        for _ in range(10):
            key = world.sbatch(1000.0, gpus_per_node=1, hold=True)
            world.slurm.user_release(key.job_id)
            await controller._one_cycle(wake)
            oldest_s = max(oldest_s, world.clock.monotonic() - controller.health.good_at_s)
            assert controller.health.last_cycle_s == world.clock.monotonic()
            await world.clock.advance(5.0)
        # then the lease runs out
        assert oldest_s > controller._intervals.patience_s
        # and is good again after the first good cycle, through long ones too
        world.decider.decide = decide
        await controller._one_cycle(wake)
        assert controller.health.good_at_s == world.clock.monotonic()
        await world.clock.advance(5.0)
        controller._note_progress()
        assert controller.health.good_at_s == world.clock.monotonic()
