"""On a real Slurm: a policy chooses the sizes of elastic jobs, when they start and later, and their scripts find their tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.live import Live, live
from tests.cluster.preemption.test_resizing import submit

pytestmark = pytest.mark.timeout(600)

ELASTIC = "--comment=headway=preemptible+min-gpus:1+max-gpus:8+steps:100+epochs:4"


@pytest.fixture
def world() -> Iterator[Live]:
    spec = {"nodes": 2, "gpus": 4}
    policy = "drf:elastic=true,round_s=5"
    settings: Any = {"preemption": "automatic", "preemption_min_run_s": 0.0, "preemption_cooldown_s": 0.0}
    with live(policy=policy, spec=spec, **settings) as world:
        yield world


def test_a_job_starts_larger_than_it_asked_shrinks_for_another_and_grows_again(world: Live) -> None:
    # given an empty cluster of 8 GPUs, and a job that asks for 2 of them and takes up to 8
    first = submit(world, "--gpus=2", "-n2", ELASTIC)
    # then it starts with all of them, and its script finds a task for each
    assert sum(world.nodes(first.id).values()) == 8
    assert (first.tasks, first.size()["NTASKS"], first.size()["GPUS"]) == ([(4, 4)] * 2, 8, 8), first.said("tasks")
    # when another comes
    second = submit(world, "--gpus=2", "-n2", ELASTIC)
    # then each gets half
    first.run += 1
    first.until_ready()
    world.until(lambda: {sum(world.nodes(job.id).values()) for job in (first, second)} == {4}, "each has half")
    assert (first.tasks, first.size()["NTASKS"], first.size()["GPUS"]) == ([(4, 4)], 4, 4), first.said("tasks")
    # and when that has gone, the first grows again, although no job waits
    world.cluster.run("scancel", second.id)
    first.run += 1
    first.until_ready()
    assert sum(world.nodes(first.id).values()) == 8
