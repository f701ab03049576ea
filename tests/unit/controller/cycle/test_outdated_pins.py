"""A placed job whose user changes it so that it may not start on its nodes is placed again, by the policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.slurm.model.job import JobKey, Phase
from tests.unit.controller.worlds.world import World


async def placed(tmp_path: Path, **job: int) -> tuple[World, JobKey]:
    """Return a job that was bound to the first nodes, where Slurm does not start it, and that was released."""
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8, unfit_nodes=frozenset({"n1", "n2"}), **job)
    await world.go_on(3)
    assert world.slurm.job(key.job_id).request.required_nodes
    assert not world.slurm.job(key.job_id).held
    return world, key


def texts(world: World, key: JobKey) -> list[str]:
    return [event.text for event in world.events.recent(key.job_id)]


def was_given_to_slurm(world: World, key: JobKey) -> bool:
    return any("given to Slurm" in text for text in texts(world, key))


@pytest.mark.parametrize("is_impossible", [False, True])
async def test_a_job_whose_user_excludes_its_node_is_placed_on_another_one(tmp_path: Path, is_impossible: bool) -> None:
    # given a job on n1, which its user excludes then, before the controller or Slurm looks at it again
    world, key = await placed(tmp_path)
    world.slurm.update(key.job_id, ExcNodeList="n1,n2")
    if is_impossible:
        await world.clock.advance(1.0)
        assert world.slurm.job(key.job_id).reason == "BadConstraints"
    # when the controller looks
    await world.turn()
    # then it is bound to the next node at once, and Headway still places it
    assert world.slurm.job(key.job_id).request.required_nodes == ("n3",)
    assert "is placed again: its user excludes n1" in texts(world, key)
    await world.go_on(5)
    assert list(world.nodes(key)) == ["n3"]
    assert world.slurm.job(key.job_id).request.excluded_nodes == ("n1", "n2")
    assert not world.ledger.yielded
    assert not was_given_to_slurm(world, key)
    assert not world.ledger.refusals


async def test_a_controller_that_is_started_again_places_such_a_job(tmp_path: Path) -> None:
    world, key = await placed(tmp_path)
    world.slurm.update(key.job_id, ExcNodeList="n1,n2")
    await world.clock.advance(1.0)
    world.restart()
    await world.go_on(5)
    assert list(world.nodes(key)) == ["n3"]
    assert not was_given_to_slurm(world, key)


@pytest.mark.parametrize("verb", ["hold", "unpin", "pin"])
async def test_such_a_job_is_placed_again_although_slurm_does_not_answer_once(tmp_path: Path, verb: str) -> None:
    world, key = await placed(tmp_path)
    world.slurm.update(key.job_id, ExcNodeList="n1,n2")
    await world.clock.advance(1.0)
    world.slurm.faults.lose_reply(verb)
    await world.go_on(10)
    assert list(world.nodes(key)) == ["n3"]
    assert len(world.slurm.job(key.job_id).starts) == 1
    assert not was_given_to_slurm(world, key)


async def test_a_job_that_is_held_by_its_user_then_stays_on_hold(tmp_path: Path) -> None:
    world, key = await placed(tmp_path)
    world.slurm.update(key.job_id, ExcNodeList="n1,n2")
    world.slurm.user_hold(key.job_id)
    await world.go_on(30)
    assert world.slurm.job(key.job_id).held
    world.slurm.user_release(key.job_id)
    await world.go_on(30)
    assert list(world.nodes(key)) == ["n3"]


async def test_a_job_whose_user_excludes_every_node_is_left_to_slurm(tmp_path: Path) -> None:
    world, key = await placed(tmp_path)
    world.slurm.update(key.job_id, ExcNodeList="n1,n2,n3,n4")
    await world.go_on(60)
    job = world.slurm.job(key.job_id)
    assert (world.phase(key), job.reason) == (Phase.PENDING, "BadConstraints")
    assert job.request.required_nodes == ()
    assert sum("is placed again" in text for text in texts(world, key)) == 1
    # when its user allows some again
    world.slurm.update(key.job_id, ExcNodeList="n1,n2")
    await world.go_on(30)
    # then it runs
    assert list(world.nodes(key)) == ["n3"]


async def test_other_excluded_nodes_leave_a_job_where_it_was_placed(tmp_path: Path) -> None:
    world, key = await placed(tmp_path)
    world.slurm.update(key.job_id, ExcNodeList="n4")
    await world.turn()
    assert world.slurm.job(key.job_id).request.required_nodes == ("n1",)
    assert not any("is placed again" in text for text in texts(world, key))


# --- numbers of nodes


@pytest.mark.parametrize("is_impossible", [False, True])
@pytest.mark.parametrize(
    ("nodes", "change", "first", "then"), [(1, "2-2", ("n1",), ("n3", "n4")), (2, "1-1", ("n1", "n2"), ("n3",))]
)
async def test_a_placed_job_is_placed_again_on_as_many_nodes_as_its_user_wants(
    tmp_path: Path, nodes: int, change: str, first: tuple[str, ...], then: tuple[str, ...], is_impossible: bool
) -> None:
    # given a job that Slurm does not start on the nodes to which it is bound
    world, key = await placed(tmp_path, nodes=nodes)
    assert world.slurm.job(key.job_id).request.required_nodes == first
    # when its user changes the number of nodes
    world.slurm.update(key.job_id, NumNodes=change)
    if is_impossible:
        await world.clock.advance(1.0)
    await world.turn()
    # then Headway places it at once on that many
    assert "is placed again: its user has changed its number of nodes" in texts(world, key)
    assert len(world.slurm.job(key.job_id).request.required_nodes) == len(then)
    await world.go_on(60)
    assert tuple(world.nodes(key)) == then
    assert not was_given_to_slurm(world, key)


@pytest.mark.parametrize(("nodes", "change", "count"), [(1, "2-2", 2), (2, "1-1", 1)])
async def test_a_job_that_has_run_before_is_placed_on_as_many_nodes_as_its_user_wants(
    tmp_path: Path, nodes: int, change: str, count: int
) -> None:
    """Slurm no longer shows its maximum of nodes."""
    # given a job that was requeued, and that Slurm does not start where it was bound again
    world, key = await placed(tmp_path, nodes=nodes)
    await world.go_on(60)
    assert len(world.nodes(key)) == nodes
    world.slurm.node_down(next(iter(world.nodes(key))))
    for _ in range(300):
        await world.go_on(1)
        job = world.slurm.job(key.job_id)
        if job.phase is Phase.PENDING and not job.held and len(job.request.required_nodes) == nodes:
            break
    assert job.restarts == 1
    # when its user changes the number of nodes
    for name in ("n1", "n2", "n3", "n4"):
        world.slurm.node_resume(name)
    world.slurm.update(key.job_id, NumNodes=change)
    await world.go_on(300)
    # then it runs on that many
    assert len(world.nodes(key)) == count
    assert not was_given_to_slurm(world, key)


async def test_a_job_that_slurm_starts_on_more_nodes_first_keeps_their_number_after_a_requeue(tmp_path: Path) -> None:
    # given a job whose nodes Slurm finds before the controller looks
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8)
    await world.turn()
    assert not world.slurm.job(key.job_id).held
    world.slurm.update(key.job_id, NumNodes="2-2")
    await world.clock.advance(1.0)
    assert list(world.nodes(key)) == ["n1", "n2"]
    # when it is requeued
    await world.go_on(5)
    world.slurm.node_down("n1")
    await world.go_on(300)
    # then it runs on two nodes again
    assert world.phase(key) is Phase.RUNNING
    assert len(world.nodes(key)) == 2
    assert "n1" not in world.nodes(key)
    assert len(world.slurm.job(key.job_id).starts) == 2
