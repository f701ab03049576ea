"""On a real Slurm: hundreds of jobs at once, in pieces; nothing that worked is undone, and the lease lasts."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster.live import Live, live

JOBS = 200


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    with live(spec={"nodes": 2, "gpus": 64, "cpus": 1024}) as world:
        yield world


@pytest.mark.slow
def test_hundreds_of_jobs_that_become_free_at_once_are_placed_in_pieces(world: Live) -> None:
    # given a queue behind a job that holds every GPU
    blocker = world.sbatch("-N2", "--gres=gpu:64", seconds=300)
    world.until_state(blocker, "RUNNING")
    array = world.sbatch(f"--array=1-{JOBS}", "--gres=gpu:1", seconds=0)
    world.until_known(array)
    # when there is room
    world.cluster.run("scancel", blocker)
    world.until(lambda: ended(world, array) == JOBS, "every task has run", timeout_s=120)
    # then every piece was of a bounded size, none was taken back, and Slurm refused nothing
    happened = json.dumps(world.headway.ask("status"))
    assert "refused the last" not in happened
    log = world.headway.log("controller")
    assert "slurm_refused" not in log
    assert "cycle_failed" not in log


def ended(world: Live, array: str) -> int:
    shown = world.cluster.run("scontrol", "-o", "show", "job", array).stdout
    return shown.count("JobState=COMPLETED")
