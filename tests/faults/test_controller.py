"""On a real Slurm: the controller killed, hung and restarted. sbatch works, jobs run, nothing is held for ever."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from controller.base.lease import is_stale, read_lease
from tests.cluster.live import Live, live

STALE_AFTER_S = 5.0


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    with live() as world:
        world.headway.start_watchdog(every_s=1.0)
        yield world


@pytest.fixture(autouse=True)
def whole(world: Live) -> Iterator[None]:
    yield
    if "controller" in world.headway.processes:
        world.headway.stop("controller")
    world.clear()
    world.headway.start_controller()


def becomes_stale(world: Live) -> bool:
    """Return whether the lease of a controller that is away is stale for every reader: Lua and sh count whole seconds.

    It lasts for long while the controller lives: jobs submitted to one that is late are held all the same. It is shortened at every
    look, as a controller may have been about to write another one when it was stopped.
    """
    world.shorten_lease(STALE_AFTER_S)
    return is_stale(read_lease(world.headway.runtime_dir / "lease"), time.time() - 1.5)


def fill(world: Live, seconds: float = 4.0) -> str:
    """Occupy every GPU."""
    job = world.sbatch("-N4", "--gres=gpu:8", seconds=seconds)
    world.until_state(job, "RUNNING")
    return job


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_without_a_controller_slurm_continues_alone(world: Live, how: signal.Signals) -> None:
    # given jobs that wait for Headway
    blocker = fill(world, seconds=300)
    held = [world.sbatch("--gres=gpu:1", seconds=1) for _ in range(3)]
    assert all(world.show(job)["Priority"] == "0" for job in held)
    # when the controller is killed or hangs
    world.headway.send("controller", how)
    world.cluster.run("scancel", blocker)  # there is room
    # then, once the lease is stale, new jobs run under plain Slurm
    world.until(lambda: becomes_stale(world), "the lease is stale")
    new = world.sbatch("--gres=gpu:1", seconds=1)
    assert "headway" not in world.show(new).get("AdminComment", "")
    world.until_state(new, "RUNNING", "COMPLETED")
    # and the watchdog frees those that were held
    for job in held:
        world.until_state(job, "RUNNING", "COMPLETED")


def test_a_restart_loses_nothing_and_starts_nothing_twice(world: Live) -> None:
    fill(world)
    jobs = [world.sbatch("--gres=gpu:8", seconds=1) for _ in range(8)]
    world.headway.stop("controller", signal.SIGKILL)
    world.headway.start_controller()
    for job in jobs:
        world.until_state(job, "COMPLETED", timeout_s=60)
        assert world.show(job)["Restarts"] == "0"
        assert world.headway.ask("why", job)["decisions"], "the policy placed it"


def test_killed_at_any_moment_every_job_runs_once(world: Live) -> None:
    # given a stream of jobs, and a controller that dies again and again while it places them
    jobs = []
    for round_number in range(6):
        jobs += [world.sbatch("--gres=gpu:2", seconds=1) for _ in range(4)]
        time.sleep(0.05 * round_number)
        world.headway.stop("controller", signal.SIGKILL)
        world.headway.start_controller()
    for job in jobs:
        world.until_state(job, "COMPLETED", timeout_s=60)
        assert world.show(job)["Restarts"] == "0"
    open_steps = [job for job in jobs if "unknown" in world.headway.ask("why", job)["sentence"]]
    assert open_steps == []


@pytest.mark.parametrize("harm", ["rubbish", pytest.param("newer", marks=pytest.mark.slow)])
def test_a_journal_that_cannot_be_used_stops_no_controller(world: Live, harm: str) -> None:
    # given jobs that wait, and a controller that was killed over them
    fill(world)
    jobs = [world.sbatch("--gres=gpu:8", seconds=1) for _ in range(6)]
    world.headway.stop("controller", signal.SIGKILL)
    journal = world.headway.folder / "state" / "journal.sqlite"
    # when its journal is damaged, or the version before is put back
    if harm == "rubbish":
        for file in journal.parent.glob("journal.sqlite*"):
            file.write_bytes(b"rubbish!" * 4096)
    else:
        with closing(sqlite3.connect(journal)) as db:
            db.execute("PRAGMA user_version = 5")
    world.headway.start_controller()
    # then it places them all, and what it could not use is kept
    for job in jobs:
        world.until_state(job, "COMPLETED", timeout_s=60)
        assert world.show(job)["Restarts"] == "0"
        assert world.headway.ask("why", job)["decisions"], "the policy placed it"
    kind = {"rubbish": "damaged", "newer": "schema-5"}[harm]
    kept = list(journal.parent.glob(f"journal.sqlite.{kind}-*Z"))
    assert len(kept) == 1
    for file in journal.parent.glob(f"{kept[0].name}*"):
        file.unlink()


def test_a_journal_damaged_under_a_controller_costs_a_cycle(world: Live) -> None:
    fill(world)
    jobs = [world.sbatch("--gres=gpu:8", seconds=1) for _ in range(6)]
    journal = world.headway.folder / "state" / "journal.sqlite"
    with closing(sqlite3.connect(journal, timeout=30, isolation_level=None)) as db:
        db.execute("DROP TABLE intent")
    for job in jobs:
        world.until_state(job, "COMPLETED", timeout_s=60)
        assert world.show(job)["Restarts"] == "0"
    assert len(list(journal.parent.glob("journal.sqlite.damaged-*Z"))) == 1


def test_a_clean_stop_leaves_a_seamless_restart(world: Live) -> None:
    blocker = world.open_job("-N4", "--gres=gpu:8")
    world.until_state(blocker, "RUNNING")
    job = world.sbatch("--gres=gpu:1", seconds=1)
    assert world.headway.stop("controller") == 0
    assert world.show(job)["Priority"] == "0"
    world.headway.start_controller()
    world.end(blocker)
    world.until_state(blocker, "COMPLETED")
    world.until_state(job, "RUNNING", "COMPLETED")
    assert world.headway.ask("why", job)["decisions"]
