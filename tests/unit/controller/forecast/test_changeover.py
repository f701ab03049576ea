"""The time between the end of a job and the start of the next one, as the controller measures it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controller.cycle.view.result import CycleResult
from controller.forecast.changeover import MOST_A_CYCLE, MOST_S, NEWEST, Changeovers
from controller.forecast.service import TRACKS_FILE, StartForecasts
from tests.unit.controller.forecast.test_service import FakeForecaster
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in


def measuring(folder: Path) -> tuple[ControllerWorld, Changeovers]:
    world = world_in(folder)
    world.endpoint.away = True
    measured = Changeovers()
    world.listeners.append(measured.on_cycle)
    return world, measured


async def test_both_parts_are_measured_where_a_job_follows_another(tmp_path: Path) -> None:
    # given a job of 20 s, and one that waits for its GPUs; Slurm is read every second
    world, measured = measuring(tmp_path)
    world.sbatch(20.0, gpus_per_node=8, nodes=4)
    world.sbatch(20.0, gpus_per_node=8, nodes=4)
    await world.go_on(35)
    # then one end is known, and two starts; neither took longer than a few readings
    (free_s,) = measured.free_s
    assert 0.0 <= free_s <= 3.0
    assert len(measured.start_s) == 2
    assert all(-1.0 <= time_s <= 3.0 for time_s in measured.start_s)


async def test_the_time_until_slurm_is_read_again_counts(tmp_path: Path) -> None:
    world, measured = measuring(tmp_path)
    world.sbatch(20.0, gpus_per_node=8)
    await world.go_on(5)
    await world.clock.advance(40.0)
    await world.turn()
    (free_s,) = measured.free_s
    assert free_s == pytest.approx(25.0, abs=3.0)


async def test_an_outage_is_no_changeover(tmp_path: Path) -> None:
    world, measured = measuring(tmp_path)
    world.sbatch(20.0, gpus_per_node=8)
    await world.go_on(5)
    await world.clock.advance(20.0 + MOST_S + 60.0)
    await world.turn()
    assert measured.free_s == []


@pytest.mark.parametrize(("apart_s", "counted"), [(200.0, [MOST_S]), (400.0, []), (800.0, [])])
async def test_a_longer_time_counts_as_the_limit_where_no_cycle_failed(
    tmp_path: Path, apart_s: float, counted: list[float]
) -> None:
    # given a job of which Slurm shows 800 s after its end that its GPUs are free, and cycles so far apart
    world, _ = measuring(tmp_path)
    world.sbatch(5.0, gpus_per_node=8)
    await world.go_on(10)
    (one,) = [job for job in world.last.observation.jobs.values() if job.end_time_s is not None]
    end_s = one.end_time_s
    assert end_s is not None
    measured, observed = Changeovers(), world.last.observation
    for step in range(int(800.0 / apart_s) + 1):
        at_s = step * apart_s
        state = replace(observed.state, time_s=end_s + at_s)
        changes = replace(world.last.changes, ended=(one,) if at_s == 800.0 else (), started=())
        measured.on_cycle(replace(world.last, observation=replace(observed, state=state), changes=changes))
    assert measured.free_s == counted


async def test_one_cycle_replaces_some_of_the_times_only(tmp_path: Path) -> None:
    world, _ = measuring(tmp_path)
    world.sbatch(5.0, gpus_per_node=8)
    await world.go_on(10)
    (one,) = [job for job in world.last.observation.jobs.values() if job.end_time_s is not None]
    for jobs in (1, MOST_A_CYCLE, MOST_A_CYCLE + 1, 2 * NEWEST):
        measured = Changeovers()
        measured.on_cycle(replace(world.last, changes=replace(world.last.changes, ended=(one,) * jobs, started=())))
        assert min(jobs, MOST_A_CYCLE) / 2 <= len(measured.free_s) <= MOST_A_CYCLE


async def test_a_job_that_was_not_started_leaves_nothing_behind(tmp_path: Path) -> None:
    # given a job that Slurm cannot start where it was placed
    world, measured = measuring(tmp_path)
    world.sbatch(1000.0, gpus_per_node=1, free_choice_only=True)
    await world.go_on(10)
    assert measured.start_s == []
    assert measured._decided == {}


async def test_the_newest_times_are_kept_and_are_part_of_the_next_request(tmp_path: Path) -> None:
    world, measured = measuring(tmp_path)
    world.sbatch(5.0, gpus_per_node=8)
    await world.go_on(3)
    before: CycleResult = world.last
    await world.go_on(10)
    (one,) = [job for job in world.last.observation.jobs.values() if job.end_time_s is not None]
    for _ in range(NEWEST + 10):
        measured.on_cycle(replace(world.last, changes=replace(before.changes, ended=(one,), started=())))
    assert len(measured.free_s) == NEWEST

    fake = FakeForecaster()
    forecasts = StartForecasts(fake, world.clock, world.folder / "journal.sqlite", world.folder / TRACKS_FILE)
    forecasts.changeovers = measured
    world.sbatch(5.0, gpus_per_node=8)
    await world.turn()
    await forecasts.make(world.last, "fifo")
    (request,) = fake.requests
    assert request.free_s == measured.free_s
    assert request.start_s == measured.start_s
    assert len(request.start_s) == 1
