"""Steps of a job over all its runs, as agents report them, and the progress that policies see."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.state.preemption import Cause, Stage
from tests.unit.controller.worlds.preempted import Preempted, preempted_world


@pytest.fixture
async def cluster() -> AsyncIterator[Preempted]:
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        async with preempted_world(Path(path)) as made:
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
