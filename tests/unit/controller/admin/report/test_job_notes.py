"""Why jobs wait, as the controller notes it, and what a restart keeps of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.admin.explain.wait_reason import FOR_GPUS
from controller.admin.report.job_notes import JobNotes
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in


def noted(world: ControllerWorld) -> JobNotes:
    notes = JobNotes(world.journal.job_notes, world.preemptions.steps_done)
    world.listeners[:] = [notes.note]
    return notes


async def test_the_time_is_divided_by_reason(tmp_path: Path) -> None:
    # given a full cluster, a job that waits for GPUs, and one that waits for the first
    world = world_in(tmp_path)
    world.endpoint.away = True
    notes = noted(world)
    full = world.sbatch(60.0, gpus_per_node=8, nodes=4)
    await world.go_on(3)
    waits = world.sbatch(gpus_per_node=8)
    held = world.sbatch(gpus_per_node=8, hold=True)
    # when half a minute passes
    await world.go_on(31)
    # then
    assert notes.waits_of(waits)[FOR_GPUS] == pytest.approx(30.0, abs=2.0)
    assert notes.waits_of(held) == {"held by its user": pytest.approx(30.0, abs=2.0)}
    # and when the job has started, the journal has the note
    await world.go_on(40)
    assert world.nodes(waits)
    (note,) = world.journal.job_notes.of_job(waits.job_id, 0.0)
    assert note.waits_s[FOR_GPUS] == pytest.approx(60.0, abs=5.0)
    assert notes.waits_of(full).get(FOR_GPUS, 0.0) <= 2.0


async def test_a_restarted_controller_goes_on_from_the_notes_of_the_one_before(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    world.endpoint.away = True
    notes = noted(world)
    world.sbatch(1000.0, gpus_per_node=8, nodes=4)
    await world.go_on(2)
    key = world.sbatch(gpus_per_node=8)
    await world.go_on(700)  # long enough for the notes of waiting jobs to be written
    before_s = notes.waits_of(key)[FOR_GPUS]
    again = noted(world)
    await world.go_on(10)
    saved_s = world.journal.job_notes.of_job(key.job_id, 0.0)[-1].waits_s[FOR_GPUS]
    assert 0 < saved_s <= before_s
    assert again.waits_of(key)[FOR_GPUS] == pytest.approx(saved_s + 9.0, abs=2.0)


async def test_time_in_which_no_controller_looked_is_not_guessed(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    world.endpoint.away = True
    notes = noted(world)
    world.sbatch(1e5, gpus_per_node=8, nodes=4)
    await world.go_on(2)
    key = world.sbatch(gpus_per_node=8)
    await world.go_on(5)
    await world.clock.advance(10_000.0)
    await world.turn()
    assert notes.waits_of(key)[FOR_GPUS] <= 130.0


async def test_there_are_notes_of_present_jobs_alone(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    world.endpoint.away = True
    notes = noted(world)
    keys = [world.sbatch(10.0, gpus_per_node=8, nodes=4) for _ in range(3)]
    await world.go_on(60)
    await world.clock.advance(2000.0)
    await world.turn()
    assert [notes.waits_of(key) for key in keys] == [{}, {}, {}]
    assert not notes._unsaved
    assert len(world.journal.job_notes.of_job(keys[1].job_id, 0.0)) == 1
    world.journal.prune(1000, world.clock.now() + 1)
    assert world.journal.job_notes.of_job(keys[1].job_id, 0.0) == []
