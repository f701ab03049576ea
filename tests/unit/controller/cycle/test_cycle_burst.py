"""More jobs than slurmctld can change within one call's time limit: all of them run in the end; what worked is not undone."""

from __future__ import annotations

import pytest

from controller.base.errors import SlurmUnavailableError
from controller.slurm.embedded import ClusterDescription, NodeDescription
from controller.slurm.model.job import Phase
from tests.birthmarks import without_birthmark
from tests.unit.controller.worlds.world import World

VERBS = ("pin", "unpin", "release", "hold", "unmark", "mark")


def limit(world, most, verbs=VERBS):
    """From now on a call of one of these verbs does it for so many jobs; then the caller's time is over."""
    client = world.slurm.client

    def slowed(real):
        async def verb(items, *more, **options):
            if len(items) <= most:
                return await real(items, *more, **options)
            part = dict(list(items.items())[:most]) if isinstance(items, dict) else list(items)[:most]
            await real(part, *more, **options)
            raise SlurmUnavailableError("scontrol: no answer within 10 s")

        return verb

    for name in verbs:
        setattr(client, name, slowed(getattr(client, name)))


def running(world, keys):
    return sum(world.phase(key) is Phase.RUNNING for key in keys)


@pytest.mark.parametrize("most", [1, 3, 10])
async def test_a_burst_larger_than_a_call_allows_runs_in_the_end(tmp_path, most):
    world = World(tmp_path, policy="fifo-skip")
    limit(world, most)
    keys = [world.sbatch(1000.0, gpus_per_node=1) for _ in range(25)]
    await world.go_on(60)
    assert running(world, keys) == 25
    assert world.ledger.refusals == {}
    assert {without_birthmark(world.slurm.job(key.job_id).admin_comment) for key in keys} == {""}


async def test_a_burst_that_was_not_held_is_adopted_in_the_end(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    world.alive = False
    blocker = world.sbatch(60.0, gpus_per_node=8, nodes=4)
    keys = [world.sbatch(1000.0, gpus_per_node=1) for _ in range(25)]
    await world.clock.advance(2.0)
    world.alive = True
    limit(world, 10)
    await world.go_on(20)
    assert all(world.slurm.job(key.job_id).held for key in keys)
    await world.go_on(90)
    assert world.slurm.job(blocker.job_id).state == "COMPLETED"
    assert running(world, keys) == 25


async def test_a_pin_that_worked_is_not_taken_back_because_another_piece_was_not_answered(tmp_path):
    # given pieces of four, and a slurmctld that dies after the second
    world = World(tmp_path, policy="fifo-skip")
    world.cycle.verbs.starts.size = 4
    keys = [world.sbatch(1000.0, gpus_per_node=1) for _ in range(16)]
    calls = []
    real = world.slurm.client.pin

    async def pin(pins):
        calls.append(len(pins))
        if sum(calls) > 4:
            raise SlurmUnavailableError("scontrol: no answer within 10 s")
        return await real(pins)

    world.slurm.client.pin = pin
    await world.turn()
    await world.clock.advance(1.0)
    # then the first four run, no other job was undone or placed, and the pieces are smaller
    assert running(world, keys) == 4
    assert len(calls) == 2
    assert "unpin" not in {call.verb for call in world.slurm.faults.calls}
    assert world.cycle.verbs.starts.size < calls[1]
    world.slurm.client.pin = real
    await world.go_on(5)
    assert running(world, keys) == 16


async def test_a_release_without_an_answer_is_not_taken_back(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=1)
    world.slurm.faults.lose_reply("release")
    await world.turn()
    await world.clock.advance(1.0)
    await world.turn()
    assert world.phase(key) is Phase.RUNNING
    assert world.ledger.pins[key].policy.endswith("fifo-skip")


async def test_a_cycle_places_a_bounded_number_of_jobs_and_the_next_one_the_rest(tmp_path):
    world = World(tmp_path, ClusterDescription(nodes=(NodeDescription(names="n[1-100]"),)), policy="fifo-skip")
    keys = [world.sbatch(1000.0, gpus_per_node=1) for _ in range(700)]
    first = await world.turn()
    starts = len(first.decided.plan.starts)
    assert 0 < starts <= 500
    assert len(first.decided.plan.queue) == 700 - starts
    assert first.in_transit
    assert sum(bool(world.journal.decisions_of(key)) for key in keys) == starts
    await world.go_on(4)
    assert running(world, keys) == 700


async def test_every_piece_that_slurm_carries_out_is_progress(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    world.cycle.verbs.starts.size = 2
    progress = []
    world.on_progress = lambda: progress.append(world.clock.now())
    for _ in range(6):
        world.sbatch(1000.0, gpus_per_node=1)
    await world.turn()
    assert len(progress) >= 6
    progress.clear()
    world.sbatch(1000.0, gpus_per_node=1)
    world.slurm.faults.lose_reply("pin")
    await world.turn()
    assert progress == []
