"""Steps of a job over all its runs, as agents report them, and the progress that policies see."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from controller.state.preemption import Cause, Stage
from protos.headway.v1 import admin_pb2 as pb
from tests.unit.controller.admin.test_service import asking
from tests.unit.controller.worlds.preempted import Preempted, preempted_world


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because of the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


@pytest.fixture
async def cluster(folder: Path) -> AsyncIterator[Preempted]:
    async with preempted_world(folder) as made:
        yield made


async def progress(cluster: Preempted) -> float:
    state = (await cluster.world.turn()).observation.state
    assert state.jobs.progress is not None
    return float(state.jobs.progress[0])


async def test_progress_counts_the_steps_before_a_checkpoint(cluster: Preempted) -> None:
    # given a job of 100 steps, whose ranks have made 5 steps since they began at step 20
    job = await cluster.running(comment="headway=steps:100+epochs:4", duration_s=1e6)
    await cluster.train(job.key, restored_step=20)
    assert await progress(cluster) == 0.25
    # when it is stopped after step 41
    cluster.world.preemptions.begin(cluster.slurm_job(job.key.job_id), Cause.OPERATOR, "by hand")
    await cluster.heard("n1", "n2")
    await cluster.comes_to(Stage.SAVED)
    await cluster.world.go_on(2)
    # then it has done those of the checkpoint, also when it runs again and has made no step yet
    again = await cluster.runs_again(job.key.job_id)
    assert await progress(cluster) == 0.41
    await cluster.train(again.key, restored_step=41)
    assert await progress(cluster) == 0.46


async def test_users_see_the_steps_while_the_job_runs(cluster: Preempted, folder: Path) -> None:
    # given a job of 100 steps, whose ranks have made 5 steps since they began at step 20, and one that reports none
    job = await cluster.running(comment="headway=steps:100", duration_s=1e6)
    other = cluster.world.sbatch(1e6, gpus_per_node=1)
    await cluster.train(job.key, restored_step=20)
    await cluster.world.go_on(3)
    async with asking(folder / "admin.sock") as admin:
        # then `headway why` and the queue say it
        why = await admin.Why(pb.WhyRequest(job_id=job.key.job_id))
        queue = {entry.job_id: entry for entry in (await admin.GetQueue(pb.GetQueueRequest())).entries}
    assert "It has made 25 of its 100 steps (25%)." in why.sentence
    assert (why.facts["steps"], why.facts["steps_in_all"]) == ("25", "100")
    entry = queue[job.key.job_id]
    assert (entry.steps, entry.steps_in_all) == (25, 100)
    assert not queue[other.job_id].HasField("steps")
    assert not queue[other.job_id].HasField("steps_in_all")
