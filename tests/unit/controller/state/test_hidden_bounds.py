"""A job that has run gets no more nodes than its user allowed, although Slurm no longer shows the maximum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controller.slurm.embedded import sbatch_request
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.hidden_bounds import is_complete, is_outdated, remember_after_run, remember_before_run
from controller.state.ledger import Ledger, Served
from tests.unit.controller.examples.build import job, node, request, running
from tests.unit.controller.worlds.world import World

UP_TO_TWO = request(gpus_per_job=4, min_nodes=1, max_nodes=2)
HIDDEN = request(gpus_per_job=4, min_nodes=1, max_nodes=0)
NODES = (node("n1", gpus=4), node("n2", gpus=2))


async def given_to_slurm(world: World) -> JobKey:
    """Return a job for at most two nodes that Slurm refused where Headway had placed it, and that Slurm places."""
    shape = sbatch_request(gpus=4, nodes=(1, 2))
    key = world.sbatch(1000.0, request=shape, free_choice_only=True)
    while key not in world.ledger.yielded:
        await world.go_on(1)
    return key


@pytest.mark.parametrize("seen_running", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
async def test_a_job_that_slurm_placed_keeps_its_maximum(tmp_path: Path, seen_running: bool, restarted: bool) -> None:
    world = World(tmp_path, policy="fifo-skip")
    key = await given_to_slurm(world)
    await world.go_on(3) if seen_running else await world.clock.advance(1)
    assert world.phase(key) is Phase.RUNNING
    if restarted:
        world.restart()
        await world.turn()
    world.slurm.requeue(key.job_id)
    await world.go_on(5)
    (again,) = world.ledger.served
    assert world.ledger.originals[again].max_nodes == 2
    # and when it is placed anew, refused and given to Slurm once more, Slurm has the maximum
    await world.go_on(200)
    assert world.slurm.job(key.job_id).request.max_nodes == 2


async def test_a_job_that_is_impossible_after_it_was_given_to_slurm_is_left_to_its_user(tmp_path: Path) -> None:
    world = World(tmp_path, policy="fifo-skip")
    key = await given_to_slurm(world)
    world.slurm.cancel(key.job_id)
    await world.go_on(3)
    shape = sbatch_request(gpus=4, nodes=(1, 2))
    other = world.sbatch(1000.0, request=shape, free_choice_only=True, features="absent")
    await world.go_on(60)
    calls = [call.verb for call in world.slurm.faults.calls]
    await world.go_on(60)
    more = [call.verb for call in world.slurm.faults.calls][len(calls) :]
    assert world.phase(other) is Phase.PENDING
    assert not {"hold", "release", "unpin"} & set(more)


def test_only_a_waiting_job_that_has_not_run_and_is_not_pinned_shows_all_of_its_request() -> None:
    waiting = job(request=UP_TO_TWO)
    assert is_complete(waiting)
    assert not is_complete(replace(waiting, restarts=1))
    assert not is_complete(replace(waiting, request=replace(UP_TO_TWO, required_nodes=("n1",))))
    assert not is_complete(running(on={"n1": 4}, request=UP_TO_TWO))


def test_the_request_of_a_job_that_starts_without_headway_is_kept() -> None:
    ledger, waiting = Ledger(), job(request=UP_TO_TWO)
    assert not remember_before_run(waiting, None, ledger)
    assert remember_before_run(waiting, waiting, ledger)
    assert not remember_before_run(waiting, waiting, ledger)
    assert ledger.originals == {waiting.key: UP_TO_TWO}
    simple = job("2", request=request(gpus_per_node=1, min_nodes=1, max_nodes=0))
    assert not remember_before_run(simple, simple, ledger)


@pytest.mark.parametrize(
    ("last", "most"),
    [(job(request=UP_TO_TWO), 2), (running(on={"n1": 2, "n2": 1, "n3": 1}, request=HIDDEN), 3), (None, 1)],
)
def test_a_job_whose_maximum_is_not_known_gets_as_few_nodes_as_it_had_or_needs(
    last: SlurmJob | None, most: int
) -> None:
    ledger, again = Ledger(), job(request=HIDDEN, restarts=1)
    assert remember_after_run(again, last, ledger, NODES)
    assert ledger.originals[again.key].max_nodes == most
    # and what is known is kept
    assert not remember_after_run(again, None, ledger, NODES)
    assert ledger.originals[again.key].max_nodes == most


def test_the_request_of_a_lost_job_is_not_that_of_the_job_that_has_its_id_now() -> None:
    other = request(gpus_per_job=6, min_nodes=2, max_nodes=3)
    started, again = running(on={"n1": 4}, request=HIDDEN), job(request=HIDDEN, restarts=1)
    for lost in (job(request=other), running(on={"n1": 2, "n2": 2, "n3": 2}, request=replace(other, max_nodes=0))):
        ledger = Ledger()
        assert not remember_before_run(started, lost, ledger)
        assert remember_after_run(again, lost, ledger, NODES)
        assert ledger.originals[again.key] == replace(HIDDEN, max_nodes=1)


def test_a_job_that_has_not_run_needs_nothing_of_that() -> None:
    for shown in (
        job(request=HIDDEN),
        job(request=UP_TO_TWO, restarts=1),
        job(request=request(gpus_per_node=1), restarts=1),
    ):
        assert not remember_after_run(shown, None, Ledger(), NODES)


def test_a_request_that_its_user_has_changed_since_is_not_kept() -> None:
    given = job(request=UP_TO_TWO)
    ledger = Ledger(originals={given.key: UP_TO_TWO}, yielded={given.key: 0}, served={given.key: Served(0, 0, 0)})
    again = job(request=HIDDEN, restarts=1)
    assert not is_outdated(given, again, ledger)
    assert is_outdated(given, replace(again, request=replace(HIDDEN, gpus_per_job=2)), ledger)
    ledger.yielded.clear()
    assert not is_outdated(given, replace(again, request=replace(HIDDEN, gpus_per_job=2)), ledger)
