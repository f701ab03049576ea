"""A controller whose journal is lost: no job stays held, and none keeps the nodes that Headway chose for it for ever."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from controller.slurm.client import Pin
from controller.slurm.embedded import Submission, sbatch_request
from controller.slurm.model.job import JobKey, Phase
from controller.slurm.model.marks import PIN_MARK
from controller.state.preemption import RelocationConstraint
from tests.birthmarks import without_birthmark
from tests.unit.controller.worlds.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def lose(world: World) -> None:
    """The file is rubbish, and the controller starts anew."""
    world.journal.close()
    (world.folder / "journal.sqlite").write_bytes(b"rubbish!" * 4096)
    world.restart()


async def pinned(world: World, node: str) -> JobKey:
    """A job of which the controller died between pin and release."""
    await world.turn()
    key = world.sbatch(gpus_per_node=2)
    request = (await world.slurm.client.read([key]))[key].request
    assert await world.slurm.client.pin([Pin(key, (node,), 2, request)]) == {}
    return key


async def placed(world: World) -> JobKey:
    """A job that was placed and released, and that Slurm does not start."""
    key = world.sbatch(1000.0, gpus_per_node=8, never_starts=True)
    await world.turn()
    await world.clock.advance(1)
    job = world.slurm.job(key.job_id)
    assert (without_birthmark(job.admin_comment), job.held) == (PIN_MARK, False)
    return key


async def require_another_node(world: World, key: JobKey) -> None:
    """When its node cannot take the job, and the controller starts anew, it runs on another."""
    job = world.slurm.job(key.job_id)
    (node,) = job.request.required_nodes
    world.slurm.node_drain(node)
    job.submission = replace(job.submission, never_starts=False)
    world.restart()
    await world.go_on(200, 5.0)
    assert world.phase(key) is Phase.RUNNING
    assert node not in world.nodes(key)


async def test_a_job_that_was_about_to_start_starts_where_it_was_pinned(world: World) -> None:
    key = await pinned(world, "n2")
    lose(world)
    await world.go_on(5)

    assert world.phase(key) is Phase.RUNNING
    assert world.nodes(key) == {"n2": 2}


async def test_it_does_not_wait_for_nodes_that_cannot_take_it(world: World) -> None:
    key = await pinned(world, "n2")
    world.slurm.node_drain("n2")
    lose(world)
    await world.go_on(5)

    assert world.phase(key) is Phase.RUNNING
    assert "n2" not in world.nodes(key)
    assert any("lost with the journal" in event.text for event in world.events.recent(key.job_id))


async def test_a_job_that_ran_when_the_journal_was_lost_may_continue_anywhere(world: World) -> None:
    # given a job that Headway has placed
    key = world.sbatch(duration_s=1000, gpus_per_node=8)
    await world.go_on(5)
    (node,) = world.nodes(key)
    # when the journal is lost, and then the node
    lose(world)
    await world.go_on(3)
    world.slurm.node_drain(node)
    await world.slurm.client.requeue_hold([key])
    await world.go_on(20)
    # then it runs on another
    again = world.slurm.job(key.job_id)
    assert again.phase is Phase.RUNNING
    assert node not in world.nodes(key)


async def test_users_own_nodes_count_for_a_job_that_has_not_run(world: World) -> None:
    first = world.sbatch(duration_s=50, request=sbatch_request(gpus_per_node=8, nodelist=("n3",)))
    await world.go_on(3)
    second = world.sbatch(request=sbatch_request(gpus_per_node=8, nodelist=("n3",)))
    lose(world)
    await world.go_on(10)
    assert (world.nodes(first), world.phase(second)) == ({"n3": 8}, Phase.PENDING)
    await world.go_on(60)
    assert world.nodes(second) == {"n3": 8}


async def test_without_a_loss_nothing_is_put_together(world: World) -> None:
    await world.turn()
    key = world.sbatch(request=sbatch_request(gpus_per_node=8, nodelist=("n3",)))
    world.journal.close()
    world.restart()
    await world.turn()

    assert world.ledger.relocations == {}
    assert not world.journal.may_lack(key, seen_here=True)


async def test_a_new_installation_takes_nothing_for_its_own(world: World) -> None:
    """Users' own lists of nodes on the first day of Headway: no job carries our mark yet."""
    world.alive = False
    world.slurm.submit(Submission(request=sbatch_request(gpus_per_node=8, nodelist=("n3",)), duration_s=1000))
    await world.clock.advance(5)
    await world.turn()

    assert (world.ledger.originals, world.ledger.relocations) == ({}, {})


async def test_a_job_that_was_placed_shows_that_headway_ran_here(world: World) -> None:
    key = await placed(world)
    world.journal.close()
    (world.folder / "journal.sqlite").unlink()
    await require_another_node(world, key)


async def test_a_placed_job_keeps_our_nodes_for_no_longer_although_its_damaged_row_looks_sound(world: World) -> None:
    key = await placed(world)
    world.journal.close()
    with closing(sqlite3.connect(world.folder / "journal.sqlite")) as db, db:
        assert db.execute("UPDATE job SET original = NULL WHERE job_id = ?", (key.job_id,)).rowcount == 1
    await require_another_node(world, key)


async def test_a_journal_that_an_operator_moved_away_counts_as_lost(world: World) -> None:
    key = await pinned(world, "n2")
    world.journal.close()
    (world.folder / "journal.sqlite").unlink()
    world.restart()
    await world.cycle.run(await world.slurm.client.snapshot())

    assert world.ledger.originals[key].required_nodes == ()
    assert world.ledger.relocations.get(key, RelocationConstraint()).only <= {"n2"}
    assert not world.journal.may_lack(key, seen_here=True), "that is settled now"


async def test_users_own_nodes_are_theirs_after_a_file_was_replaced_under_a_controller(world: World) -> None:
    # given a journal that was moved away, a job that names its node long after that, and a restart
    await world.turn()
    (world.folder / "journal.sqlite").unlink()
    world.journal.require_well()
    request = sbatch_request(gpus_per_node=8, nodelist=("n1",))
    first = world.sbatch(100_000.0, request=request)
    await world.go_on(5)
    second = world.sbatch(request=request)
    await world.go_on(5)
    world.restart()
    await world.turn()
    assert world.ledger.relocations == {}
    # when that node cannot take it
    world.slurm.node_drain("n1")
    world.slurm.cancel(first.job_id)
    await world.go_on(20)
    # then it waits
    assert world.phase(second) is Phase.PENDING


async def worked_elsewhere(world: World, duration_s: float, **request: object) -> JobKey:
    """A job that the controller of another machine has placed, while the one of this machine stood by."""
    await world.go_on(5)  # the controller of this machine has worked before
    world.restart("other.sqlite")
    await world.go_on(5)
    key = world.sbatch(duration_s, request=sbatch_request(gpus_per_node=8, **request))  # type: ignore[arg-type]
    await world.go_on(5)
    assert world.phase(key) is Phase.RUNNING
    return key


async def test_a_job_of_another_controller_leaves_its_dead_node_after_a_takeover(world: World) -> None:
    key = await worked_elsewhere(world, 1000.0)
    (node,) = world.nodes(key)
    # when the other machine is lost, and later the job's node
    world.restart(before_reading=lambda journal: journal.distrust(even_if_new=True))
    await world.go_on(5)
    assert not world.journal.may_lack(key, seen_here=True), "that is settled now"
    world.slurm.node_down(node)
    await world.go_on(600, 5.0)
    # then Slurm has requeued it with the pin of the other controller, and it runs on another node
    assert world.phase(key) is Phase.RUNNING
    assert node not in world.nodes(key)


async def test_what_a_takeover_has_settled_is_settled_after_a_restart_too(world: World) -> None:
    key = await worked_elsewhere(world, 1000.0)
    world.restart(before_reading=lambda journal: journal.distrust(even_if_new=False))
    await world.turn()
    world.restart()
    await world.turn()

    assert world.ledger.originals[key].required_nodes == ()


async def test_a_restart_between_the_takeover_and_the_first_cycle_loses_nothing(world: World) -> None:
    """The file is as before; the lease that is missing or stale makes the next start distrust it too."""
    key = await worked_elsewhere(world, 1000.0)
    for _ in range(2):
        world.restart(before_reading=lambda journal: journal.distrust(even_if_new=False))
    await world.turn()

    assert world.ledger.originals[key].required_nodes == ()


async def test_users_own_nodes_count_until_the_job_has_run_after_a_takeover(world: World) -> None:
    first = await worked_elsewhere(world, 50.0, nodelist=("n3",))
    second = world.sbatch(request=sbatch_request(gpus_per_node=8, nodelist=("n3",)))
    world.restart(before_reading=lambda journal: journal.distrust(even_if_new=True))
    await world.go_on(10)
    assert (world.nodes(first), world.phase(second)) == ({"n3": 8}, Phase.PENDING)
    await world.go_on(60)
    assert world.nodes(second) == {"n3": 8}


@pytest.mark.parametrize("even_if_new", [True, False])
async def test_a_new_journal_counts_as_old_only_after_another_controller_was_seen(
    world: World, even_if_new: bool
) -> None:
    """Where none was seen, it may be the first day of Headway, and users' own lists of nodes are theirs."""
    world.alive = False
    world.slurm.submit(Submission(request=sbatch_request(gpus_per_node=8, nodelist=("n3",)), duration_s=1000))
    await world.clock.advance(5)
    world.restart(before_reading=lambda journal: journal.distrust(even_if_new=even_if_new))
    await world.turn()

    assert bool(world.ledger.originals) is even_if_new


async def test_a_restored_journal_that_is_marked_as_the_manual_says_counts_as_lost(world: World) -> None:
    # given a copy from before the job was placed
    await world.go_on(5)
    with closing(sqlite3.connect(world.folder / "journal.sqlite")) as db:
        db.execute("VACUUM INTO ?", (str(world.folder / "copy.sqlite"),))
    key = world.sbatch(1000.0, gpus_per_node=8)
    await world.go_on(5)
    world.journal.close()
    # when it is restored with the manual's statement
    manual = (Path(__file__).parents[4] / "docs" / "operations.md").read_text(encoding="utf-8")
    (statement,) = re.findall(r'"(INSERT OR REPLACE INTO note [^"]*)"', manual)
    with closing(sqlite3.connect(world.folder / "copy.sqlite")) as db, db:
        db.execute(statement)
    (world.folder / "copy.sqlite").rename(world.folder / "journal.sqlite")
    world.restart()
    await world.turn()

    assert world.ledger.originals[key].required_nodes == ()


async def test_a_job_that_its_user_made_smaller_than_its_nodes_can_run(world: World) -> None:
    """Headway had chosen two nodes for its eleven GPUs, and its own number of nodes is lost."""
    key = world.sbatch(1000.0, request=sbatch_request(gpus=11, nodes=(1, 4)))
    await world.go_on(5)
    assert len(world.nodes(key)) == 2
    await world.slurm.client.requeue_hold([key])
    await world.clock.advance(60)
    world.slurm.update(key.job_id, TresPerJob="gres:gpu:1")
    lose(world)

    await world.go_on(20)

    assert sum(world.nodes(key).values()) == 1
