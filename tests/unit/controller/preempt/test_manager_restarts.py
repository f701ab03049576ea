"""Preemptions over restarts of the controller, over clocks that jump and ids that come again; and what is kept of them."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.base.errors import JournalError, PreemptionRefusedError
from controller.preempt.service import run_preemptions
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK
from controller.slurm.user_holds import Hold
from controller.state.preemption import Cause, Preemption, RelocationConstraint, Stage
from tests.unit.controller.worlds.preempted import Preempted, preempted_world, silent
from tests.unit.policies.processes import eventually


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because of the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


def begin(cluster: Preempted, job: SlurmJob, **more: Any) -> None:
    cluster.world.preemptions.begin(job, Cause.OPERATOR, "by hand", **more)


async def saved(cluster: Preempted, **more: Any) -> SlurmJob:
    """Return a job on n1 and n2 that has saved, for a preemption by hand."""
    job = await cluster.running()
    begin(cluster, job, **more)
    await cluster.comes_to(Stage.SAVED)
    return job


async def asked_with_silent_n2(cluster: Preempted) -> SlurmJob:
    """Return a job on n1 and n2 that is asked to save, for a preemption by hand; its agent on n2 gives no answer."""
    job = await cluster.running()
    cluster.agents["n2"].answers = silent
    begin(cluster, job)
    await cluster.heard("n1", "n2")
    return job


def saves(cluster: Preempted, node: str) -> list[str]:
    return [command.id.rpartition(".")[0] for command in cluster.agents[node].asked()]


# --- restarts


async def test_after_a_restart_a_job_gets_the_request_again_with_the_rest_of_its_time(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        await asked_with_silent_n2(cluster)
        await world.clock.advance(20)
        cluster.restart()
        # nothing is done before Slurm was read
        world.preemptions.tick()
        assert (cluster.row().stage, cluster.row().attempt) == (Stage.ASKED, 1)
        await world.turn()
        await cluster.heard("n1", "n2", times=2)
        assert saves(cluster, "n1") == ["p1.1", "p1.2"]
        assert 39 <= cluster.agents["n2"].asked()[1].save.within_s <= 40
        await world.go_on(38)
        assert cluster.row().stage is Stage.ASKED
        await world.go_on(4)
        assert cluster.row().stage is Stage.CALLED_OFF


async def test_after_a_restart_a_job_that_had_saved_gets_another_request(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster)
        cluster.restart()
        for node in ("n1", "n2"):
            cluster.agents[node].step = 47
        assert not world.preemptions.wanted.is_set()
        await world.turn()
        row = await cluster.comes_to(Stage.SAVED)
        assert world.slurm.job(job.key.job_id).restarts == 0
        await eventually(lambda: _saved_at(cluster, 47))
        row = cluster.row()
        assert (row.step, row.attempt) == (47, 2)
        assert (await cluster.runs_again(job.key.job_id)).restarts == 1


async def _saved_at(cluster: Preempted, step: int) -> bool:
    return cluster.row().step == step and cluster.row().stage is Stage.SAVED


async def test_a_job_that_had_saved_gets_another_request_when_an_agent_was_away(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster)
        for node in ("n1", "n2"):
            cluster.agents[node].step = 47
        world.preemptions.on_connected("n3")  # none of its own
        assert cluster.row().stage is Stage.SAVED
        world.preemptions.on_connected("n2")
        assert (cluster.row().stage, world.preemptions.orders()) == (Stage.ASKED, ([], []))
        await eventually(lambda: _saved_at(cluster, 47))
        assert [saves(cluster, node) for node in ("n1", "n2")] == [["p1.1", "p1.2"]] * 2
        assert (await cluster.runs_again(job.key.job_id)).restarts == 1


async def test_a_job_that_had_saved_is_not_stopped_while_another_request_cannot_be_recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster)
        with monkeypatch.context() as patch:
            patch.setattr(world.journal.preemptions, "save", _fails)
            world.preemptions.on_connected("n2")
        assert world.preemptions.orders() == ([], [])
        await world.turn()
        assert (await cluster.comes_to(Stage.SAVED)).attempt == 2
        assert world.slurm.job(job.key.job_id).restarts == 0


@pytest.mark.parametrize("force", [False, True])
async def test_a_job_cancelled_in_the_moment_of_its_requeue_is_its_users_to_decide(folder: Path, force: bool) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster, constraint=RelocationConstraint(avoid=frozenset({"n1"})), force=force)
        # when its user cancels it in the moment in which it is requeued
        world.slurm.faults.cancel_first()
        await world.cycle.errands()
        # then the preemption is over, and says what the user can do
        row = cluster.row()
        assert (row.stage, row.open) == (Stage.OVER, False)
        job_id = job.key.job_id
        assert row.problem == (
            "the job ended just before it was to be stopped; Slurm put it back into the queue, where it is held: "
            f"`scancel {job_id}` if its work is done, `scontrol release {job_id}` to run it again"
        )
        assert cluster.events(job_id)[-1] == f"ended: {row.problem}"
        # and the job is not placed again
        await world.go_on(5)
        found = world.slurm.job(job_id)
        assert (found.phase, found.held, len(found.starts)) == (Phase.PENDING, True, 1)
        assert cluster.row() == row
        assert world.ledger.relocations == {}
        # until its user releases it
        world.slurm.user_release(job_id)
        assert (await cluster.runs_again(job_id)).restarts == 1


async def test_such_an_end_is_kept_until_the_journal_has_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        await saved(cluster)
        world.slurm.faults.cancel_first()
        with monkeypatch.context() as patch:
            patch.setattr(world.journal.preemptions, "save", _fails)
            with pytest.raises(JournalError):
                await world.cycle.errands()
        assert cluster.row().stage is Stage.SAVED
        await world.turn()
        assert (cluster.row().stage, world.phase(JobKey("1", 0))) == (Stage.OVER, Phase.PENDING)


async def test_what_happened_between_two_snapshots_is_seen(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        stopped = await cluster.running(gpus_per_node=4, nodes=1)
        ended = await cluster.running(gpus_per_node=4, nodes=1)
        for job in (stopped, ended):
            begin(cluster, job, constraint=RelocationConstraint(avoid=frozenset({"n1"})))
        await cluster.comes_to(Stage.SAVED, 1)
        await cluster.comes_to(Stage.SAVED, 2)
        world.slurm.requeue(stopped.key.job_id, held=True)
        world.slurm.update(stopped.key.job_id, AdminComment="headway:hold")
        world.slurm.cancel(ended.key.job_id)
        await world.clock.advance(5)
        cluster.restart()
        await world.turn()
        assert (cluster.row(1).stage, cluster.row(2).stage) == (Stage.STOPPED, Stage.OVER)
        again = await cluster.runs_again(stopped.key.job_id)
        assert "n1" not in {share.node for share in again.allocated}
        assert cluster.row(1).stage is Stage.STARTED
        # and once more, while it runs again
        cluster.restart()
        await world.turn()
        await cluster.train(again.key, restored_step=41, first_step_s=0.0)
        assert (await cluster.comes_to(Stage.RESUMED)).step == 41


async def test_a_preemption_of_a_job_that_was_not_read_goes_on(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster)
        whole = world.last.observation.snapshot if world.last is not None else None
        assert whole is not None
        assert job.raw_id is not None
        # When a snapshot has no news of the job, or its old record, then the preemption is where it was
        missing = replace(whole, jobs=(), unread=frozenset({job.raw_id}))
        old = replace(whole, unread=frozenset({job.raw_id}))
        for snapshot in (missing, old):
            world.preemptions.update(snapshot)
            assert cluster.row().stage is Stage.SAVED
        await world.cycle.errands()
        assert cluster.row().stage is Stage.STOPPED
        # also when the record is that of the run which was stopped a while ago
        await world.clock.advance(90)
        world.preemptions.update(old)
        assert cluster.row().stage is Stage.STOPPED
        assert (await cluster.runs_again(job.key.job_id)).restarts == 1
        # and if Slurm no longer knows it, the preemption is over
        world.preemptions.update(replace(whole, jobs=()))
        assert not cluster.row().open


async def test_a_preemption_whose_deadline_passes_during_a_restart_is_called_off(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await asked_with_silent_n2(cluster)
        await world.clock.advance(100)
        cluster.restart()
        await world.turn()
        row = cluster.row()
        assert (row.stage, row.problem) == (
            Stage.CALLED_OFF, "it did not save within 60 s: its agents could not be reached"
        )  # fmt: skip
        (go_on,) = await _go_ons(cluster)
        assert go_on.startswith("p1.1.")
        assert world.phase(job.key) is Phase.RUNNING


async def _go_ons(cluster: Preempted) -> list[str]:
    async def is_reported() -> bool:
        return bool(cluster.agents["n1"].asked("go_on"))

    await eventually(is_reported)
    return [command.go_on.save_id for command in cluster.agents["n1"].asked("go_on")]


@pytest.mark.parametrize("asked_s", [-1e9, 1e9])
async def test_a_wall_clock_that_was_set_wrong_gives_no_more_than_the_whole_time(folder: Path, asked_s: float) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        await asked_with_silent_n2(cluster)
        row = cluster.row()
        world.journal.preemptions.save(replace(row, asked_s=row.asked_s + asked_s))
        cluster.restart()
        await world.turn()
        expired = asked_s < 0
        assert cluster.row().stage is (Stage.CALLED_OFF if expired else Stage.ASKED)
        await world.go_on(63)
        assert cluster.row().stage is Stage.CALLED_OFF


async def test_a_wall_clock_that_jumps_while_it_runs_moves_no_deadline(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        await asked_with_silent_n2(cluster)
        now = world.clock.now
        for jump_s in (86_400.0, -86_400.0):
            monkeypatch.setattr(world.clock, "now", lambda jump_s=jump_s: now() + jump_s)
            world.preemptions.tick()
            assert cluster.row().stage is Stage.ASKED
        cluster.agents["n2"].answer(
            cluster.agents["n2"].asked()[0].id, cluster.agents["n2"].save(cluster.agents["n2"].asked()[0])
        )
        await cluster.comes_to(Stage.SAVED)
        await world.cycle.errands()
        assert cluster.row().stage is Stage.STOPPED


async def test_an_id_that_slurm_gives_again_is_another_job(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster)
        world.slurm.crash_slurmctld(lose_newest=1, away_s=1.0)
        await world.clock.advance(10)
        other = world.sbatch(1e6, gpus_per_node=4, nodes=2)
        assert other.job_id == job.key.job_id
        await world.go_on(10)
        row = cluster.row()
        assert (row.stage, row.problem) == (Stage.OVER, "Slurm no longer knows the job before it was stopped")
        assert world.slurm.job(other.job_id).restarts == 0
        assert world.phase(other) is Phase.RUNNING


async def test_ranks_that_pause_for_an_earlier_attempt_get_the_message_too(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        await asked_with_silent_n2(cluster)
        cluster.restart()
        await world.turn()
        await cluster.heard("n1", "n2", times=2)
        await world.go_on(62)
        assert cluster.row().stage is Stage.CALLED_OFF
        await eventually(lambda: _told_of(cluster, "p1.1", "p1.2"))


async def _told_of(cluster: Preempted, *saves: str) -> bool:
    return sorted(save.rpartition(".")[0] for save in await _go_ons(cluster)) == sorted(saves)


@pytest.mark.parametrize(("ago_s", "continues"), [(100.0, True), (130.0, False)])
async def test_the_next_controller_lets_ranks_train_on_that_may_still_be_paused(
    folder: Path, ago_s: float, continues: bool
) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await asked_with_silent_n2(cluster)
        # given a controller that is killed before it could tell anybody
        world.preemptions.serve(None)
        await world.clock.advance(61)
        world.preemptions.tick()
        assert cluster.row().stage is Stage.CALLED_OFF
        await world.clock.advance(ago_s)
        cluster.restart()
        if continues:
            (go_on,) = await _go_ons(cluster)
            assert go_on.startswith("p1.1.")
        # an agent processes its orders in turn
        begin(cluster, await _seen(cluster, job))
        await cluster.heard("n1", times=2)
        assert bool(cluster.agents["n1"].asked("go_on")) is continues


async def _seen(cluster: Preempted, job: SlurmJob) -> SlurmJob:
    await cluster.world.turn()
    return await cluster.train(job.key)


# --- marks


async def test_a_job_that_is_not_stopped_after_all_keeps_no_mark(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster)
        # given a slurmctld that is lost between the mark and the requeue
        world.slurm.update(job.key.job_id, AdminComment=HOLD_MARK)
        with world.slurm.faults.unavailable():
            await world.cycle.errands()
            await world.clock.advance(130)
            world.preemptions.tick()
        assert cluster.row().stage is Stage.CALLED_OFF
        cluster.restart()
        await world.go_on(3)
        found = cluster.slurm_job(job.key.job_id)
        assert (found.phase, found.marks) == (Phase.RUNNING, frozenset())
        unmarks = [
            step
            for step in world.journal.intents_of(job.key)
            if step.verb == "unmark" and step.time_s > world.clock.now() - 5
        ]
        assert len(unmarks) == 1


async def called_off_with_its_mark(cluster: Preempted) -> SlurmJob:
    """Return a job whose stop was called off after Slurm had its mark: slurmctld was away for the requeue."""
    world = cluster.world
    job = await saved(cluster)
    world.slurm.update(job.key.job_id, AdminComment=HOLD_MARK)
    with world.slurm.faults.unavailable():
        await world.cycle.errands()
        await world.clock.advance(130)
        world.preemptions.tick()
    assert cluster.row().stage is Stage.CALLED_OFF
    return job


async def test_a_job_that_is_suspended_when_its_stop_is_called_off_loses_its_mark_later(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await called_off_with_its_mark(cluster)
        world.slurm.suspend(job.key.job_id)
        await world.go_on(3)
        world.slurm.resume(job.key.job_id)
        await world.go_on(3)
        found = cluster.slurm_job(job.key.job_id)
        assert (found.phase, found.marks) == (Phase.RUNNING, frozenset())


async def test_a_job_that_runs_on_after_its_stop_loses_its_mark_and_its_ranks_go_on(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster)
        row = cluster.row()
        # given a stop that Slurm has confirmed, and that has marked the job, but not requeued it
        world.slurm.update(job.key.job_id, AdminComment=HOLD_MARK)
        world.preemptions.orders()
        world.preemptions.stopped(row, None)
        assert cluster.row().stage is Stage.STOPPED
        await world.go_on(70)
        # then the stop is called off, as any other
        row = cluster.row()
        assert (row.stage, row.problem) == (
            Stage.CALLED_OFF,
            "Slurm shows the job running as if it had not been stopped",
        )
        found = cluster.slurm_job(job.key.job_id)
        assert (found.phase, found.restarts, found.marks) == (Phase.RUNNING, 0, frozenset())
        assert world.ledger.relocations == {}

        async def is_reported() -> bool:
            return all(cluster.agents[node].asked("go_on") for node in ("n1", "n2"))

        await eventually(is_reported)


@pytest.mark.parametrize("by_user", [False, True])
async def test_a_hold_that_came_just_after_the_start_is_headways_also_after_a_stop_that_was_called_off(
    folder: Path, by_user: bool
) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await called_off_with_its_mark(cluster)
        # given a priority of 0, by a hold of Headway that reached the running job, or by its user
        world.slurm.job(job.key.job_id).priority = 0
        if by_user:
            world.holds.write(job.key.job_id, Hold(world.clock.now()))
        await world.go_on(3)
        # when it is requeued later
        world.slurm.requeue(job.key.job_id)
        await world.go_on(10)
        found = cluster.slurm_job(job.key.job_id)
        # then it waits for nobody but its user
        assert (found.phase, found.held) == ((Phase.PENDING, True) if by_user else (Phase.RUNNING, False))
        assert HOLD_MARK not in found.marks


async def test_a_listener_that_fails_undoes_no_stage(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        job = await cluster.running()
        seen: list[Stage] = []

        def failing(_row: Preemption) -> None:
            raise ValueError("a bug in one service")

        cluster.world.preemptions.listeners[:0] = [failing]
        cluster.world.preemptions.listeners.append(lambda row: seen.append(row.stage))
        begin(cluster, job)
        await cluster.comes_to(Stage.SAVED)
        assert seen == [Stage.ASKED, Stage.SAVED]


# --- many at once


async def test_few_are_stopped_at_once_and_first_those_that_train_on_first(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        jobs = [await cluster.running(nodes=1, gpus_per_node=4) for _ in range(6)]
        for job in reversed(jobs):
            begin(cluster, job)
            await world.clock.advance(1)
        for number in range(1, 7):
            await cluster.comes_to(Stage.SAVED, number)
        stops, _ = world.preemptions.orders()
        assert [row.number for row in stops] == [1, 2, 3, 4]
        world.preemptions.orders_over()
        for job in jobs:
            assert (await cluster.runs_again(job.key.job_id)).restarts == 1


async def test_a_job_whose_ranks_may_train_on_before_the_stop_is_not_stopped(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        await saved(cluster)
        await world.clock.advance(120)
        assert world.preemptions.orders() == ([], [])
        world.preemptions.tick()
        assert cluster.row().stage is Stage.CALLED_OFF


# --- the journal


async def test_a_journal_that_cannot_be_written_stops_no_job(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await asked_with_silent_n2(cluster)
        # given a journal that somebody else has locked
        world.journal._db.execute("PRAGMA busy_timeout = 1")
        lock = sqlite3.connect(world.folder / "journal.sqlite")
        lock.execute("BEGIN IMMEDIATE")
        asked = cluster.agents["n2"].asked()[0]
        cluster.agents["n2"].answer(asked.id, cluster.agents["n2"].save(asked))
        await cluster.said()
        assert not world.preemptions.wanted.is_set()
        other = cluster.slurm_job(job.key.job_id)
        with pytest.raises((JournalError, PreemptionRefusedError)):
            begin(cluster, other)
        # when it is free again, what was answered counts
        lock.rollback()
        lock.close()
        world.preemptions.tick()
        assert cluster.row().stage is Stage.SAVED
        await world.cycle.errands()
        assert world.slurm.job(job.key.job_id).restarts == 1


async def test_history_is_shown_and_dropped_in_time(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await cluster.running()
        begun_s = world.clock.now()
        cluster.agents["n2"].answers = silent
        for _ in range(3):
            begin(cluster, job, within_s=2.0)
            await world.go_on(4)
        assert [row.number for row in world.preemptions.recent(job)] == [3, 2, 1]
        assert [row.number for row in world.preemptions.since(begun_s)] == [1, 2, 3]
        assert [row.number for row in world.preemptions.since(begun_s + 4)] == [2, 3]
        world.journal.prune(keep_decisions=10, older_than_s=world.clock.now() + 1)
        assert world.preemptions.recent(job) == []


# --- beside the cycle


async def test_deadlines_are_kept_while_no_cycle_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.preempt.manager._TICK_S", 0.01)
    async with preempted_world(folder) as cluster, run_preemptions(cluster.world.preemptions, cluster.server):
        world = cluster.world
        await asyncio.sleep(0)  # nothing is under way: it sleeps
        await asked_with_silent_n2(cluster)
        await world.clock.advance(61)
        await cluster.comes_to(Stage.CALLED_OFF)


@pytest.mark.parametrize("write", ["begin", "finish", "save_jobs"])
async def test_a_stop_that_could_not_be_recorded_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        jobs = [await cluster.running(nodes=1) for _ in range(2)]
        for job in jobs:
            begin(cluster, job)
        for number in (1, 2):
            await cluster.comes_to(Stage.SAVED, number)
        with monkeypatch.context() as patch:
            patch.setattr(world.journal, write, _fails)
            with pytest.raises(JournalError):
                await world.cycle.errands()
        # not at once: it would fail as often as it was tried
        world.preemptions.tick()
        assert not world.preemptions.wanted.is_set()
        for job in jobs:
            assert (await cluster.runs_again(job.key.job_id)).restarts == 1
        assert [cluster.row(number).stage for number in (1, 2)] == [Stage.STARTED, Stage.STARTED]


def _fails(*_: Any) -> None:
    raise JournalError("the journal cannot be written: disk full")


async def test_a_stop_that_cannot_be_recorded_in_time_is_called_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster)
        monkeypatch.setattr(world.journal, "begin", _fails)
        with pytest.raises(JournalError):
            await world.cycle.errands()
        await world.clock.advance(120)
        world.preemptions.tick()
        row = cluster.row()
        assert (row.stage, world.slurm.job(job.key.job_id).restarts) == (Stage.CALLED_OFF, 0)
        assert row.problem == "Slurm did not stop it in time: it is not known whether the request reached Slurm"


async def test_a_first_step_that_cannot_be_recorded_is_taken_from_the_next_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster)
        await world.cycle.errands()
        again = await cluster.runs_again(job.key.job_id)
        with monkeypatch.context() as patch:
            patch.setattr(world.journal.preemptions, "save", _fails)
            await cluster.train(again.key, restored_step=41, first_step_s=0.0)
            await cluster.said()
        assert cluster.row().stage is Stage.STARTED
        assert not cluster.server.left_out.get("listener"), "the report was processed as a defect"
        await cluster.train(again.key, restored_step=41, first_step_s=0.0)
        assert (await cluster.comes_to(Stage.RESUMED)).problem == ""


async def test_of_a_journal_that_cannot_be_written_one_try_a_tick_is_enough(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        for job in [await cluster.running(nodes=1) for _ in range(3)]:
            begin(cluster, job, within_s=5.0, force=True)
            await cluster.comes_to(Stage.SAVED, world.preemptions.newest(1)[0].number)
        await world.clock.advance(200)
        tries: list[object] = []

        def fails(row: object) -> None:
            tries.append(row)
            _fails()

        with monkeypatch.context() as patch:
            patch.setattr(world.journal.preemptions, "save", fails)
            world.preemptions.tick()
        assert len(tries) == 1
        world.preemptions.tick()
        assert world.preemptions.open == {}


async def test_a_signal_is_ordered_if_and_only_if_the_journal_has_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with preempted_world(folder, nodes=()) as cluster:
        world = cluster.world
        comes_back = {"traps": frozenset({"USR1"}), "comment": "headway=preemptible"}
        jobs = [await cluster.running(nodes=1, **comes_back) for _ in range(3)]
        save = world.journal.preemptions.save

        def fails_for_the_second(row: Preemption) -> None:
            if row.number == 2:
                _fails()
            save(row)

        for job in jobs:
            begin(cluster, job)
        with monkeypatch.context() as patch:
            patch.setattr(world.journal.preemptions, "save", fails_for_the_second)
            await world.cycle.errands()
        assert [world.slurm.job(job.key.job_id).signals for job in jobs] == [["USR1"], [], []]
        assert [cluster.row(number).attempt for number in (1, 2, 3)] == [1, 0, 0]
        await world.cycle.errands()
        assert [world.slurm.job(job.key.job_id).signals for job in jobs] == [["USR1"]] * 3
