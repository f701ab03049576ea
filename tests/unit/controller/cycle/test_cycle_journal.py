"""A journal that cannot be written for a moment costs a cycle, and nothing else: the next one learns the same changes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from controller.base.errors import JournalError, SlurmUnavailableError
from controller.slurm.embedded import sbatch_request
from controller.slurm.model.job import Phase
from tests.unit.controller.worlds.world import World


def locked_once(world, method):
    """The journal's next such write that has something to write fails."""
    real = getattr(world.journal, method)
    failed = []

    def write(*arguments):
        given = [list(one) if not hasattr(one, "originals") else one for one in arguments]
        if not failed and given[-1]:
            failed.append(1)
            raise JournalError("the journal cannot be written: database is locked")
        return real(*given)

    setattr(world.journal, method, write)
    return failed


async def go_on(world, seconds):
    """Cycles, and the jobs that ended as a policy would hear of them."""
    heard = []
    for _ in range(seconds):
        with suppress(JournalError):
            heard += (await world.turn()).runs
        await world.clock.advance(1.0)
    return heard


async def test_the_end_of_a_job_is_recorded_in_the_next_cycle(tmp_path):
    world = World(tmp_path)
    key = world.sbatch(5.0, gpus_per_node=1)
    await world.go_on(4)
    failed = locked_once(world, "record_runs")
    heard = await go_on(world, 12)
    assert failed
    assert world.journal.last_run(key.job_id).state == "COMPLETED"
    assert [run.key for run in heard] == [key]
    assert [event.kind for event in world.events.recent(key.job_id)].count("ended") == 1


@pytest.mark.parametrize("kills_it", [False, True])
async def test_a_requeue_counts_once(tmp_path, kills_it):
    # given a job that has run for ten seconds when it is requeued, and a journal that is locked then
    world = World(tmp_path)
    key = world.sbatch(1000.0, gpus_per_node=1)
    await world.go_on(10)
    world.slurm.requeue(key.job_id)
    await world.clock.advance(0.5)
    failed = locked_once(world, "save_jobs")
    with pytest.raises(JournalError):
        await world.turn()
    assert failed
    assert world.ledger.served == {}
    if kills_it:
        world.restart()
    # then its first run counts, once, and it is announced once
    await go_on(world, 20)
    assert world.phase(key) is Phase.RUNNING
    (served,) = world.ledger.served.values()
    assert served.first_submit_s == key.submit_time_s
    if not kills_it:
        assert 9 < served.service_s < 11
        assert [event.text for event in world.events.recent(key.job_id)].count(
            "requeued by Slurm (RUNNING); it is placed again"
        ) == 1


@pytest.mark.parametrize("method", ["open_intents", "estimates", "found_all"])
async def test_facts_rebuilt_after_a_loss_survive_a_first_cycle_that_fails(tmp_path, method):
    # given jobs that run and one that waits, a journal that was removed, and one that fails once at its first cycle
    world = World(tmp_path, policy="fifo-skip")
    running = world.sbatch(1000.0, gpus_per_node=8)
    for _ in range(4):
        world.sbatch(1000.0, gpus_per_node=8)
    await world.go_on(3)
    world.journal.close()
    (tmp_path / "journal.sqlite").unlink()
    world.restart()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.journal, method, failing)
        with pytest.raises(JournalError):
            await world.turn()
    assert world.ledger.originals == {}
    # when the next one works
    await world.turn()
    # then it knows again which nodes were of its own choice
    assert world.ledger.originals[running].required_nodes == ()
    assert not world.journal.may_lack(running, seen_here=True)


def failing(*_):
    raise JournalError("the journal cannot be written: database is locked")


async def test_facts_about_failed_pins_are_removed_with_the_job(tmp_path):
    world = World(tmp_path)
    for _ in range(3):
        key = world.sbatch(1000.0, gpus_per_node=1)
        world.slurm.faults.refuse_next("pin", "no")
        await world.turn()
        assert set(world.cycle._applier._pin_failures) == {key}
        world.slurm.cancel(key.job_id)
        await world.clock.advance(400.0)
        await world.turn()
    assert world.cycle._applier._pin_failures == {}


async def test_names_of_users_of_the_past_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("controller.observe.observer._MOST_USERS", 4)
    world = World(tmp_path, policy="fifo-skip")
    for number in range(8):
        world.sbatch(0.5, gpus_per_node=1, user=f"user{number}")
    await world.go_on(5)
    await world.clock.advance(1000.0)
    world.sbatch(100.0, gpus_per_node=1)
    await world.turn()
    assert (await world.turn()).observation.state.jobs.users == ("alice",)


async def test_a_step_is_settled_by_a_snapshot_that_began_after_it(tmp_path):
    world = World(tmp_path)
    key = world.sbatch(60.0, gpus_per_node=1)
    await world.go_on(2)
    # given a step that is begun while a snapshot is read, when the clock is set back
    newest_step = world.journal.newest_step()
    snapshot = await world.slurm.client.snapshot()
    world.journal.begin("release", {key: ""}, world.clock.now() - 3600.0)
    await world.cycle.run(snapshot, newest_step=newest_step)
    assert len(world.journal.open_intents()) == 1
    # then the next snapshot shows its outcome
    await world.turn()
    assert world.journal.open_intents() == []


async def test_a_step_is_settled_though_the_clock_was_set_back_since(tmp_path):
    world = World(tmp_path)
    key = world.sbatch(60.0, gpus_per_node=1)
    await world.go_on(2)
    world.journal.begin("mark", {key: ""}, world.clock.now() + 3600.0)
    await world.turn()
    assert world.journal.open_intents() == []
    assert world.journal.intents_of(key)[0].outcome == "found running"


async def test_a_release_keeps_its_reason_though_its_job_has_left_the_partition(tmp_path):
    # given a release for Slurm that is carried out, while its answer is lost
    world = World(tmp_path)
    key = world.sbatch(request=sbatch_request(gpus_per_node=1, nodes=2, nodelist=("n1",)))
    release = world.slurm.client.release

    async def lost(keys):
        await release(keys)
        raise SlurmUnavailableError("no answer")

    world.slurm.client.release = lost
    await world.turn()
    why = world.journal.given_to_slurm.last(key)
    assert why is not None
    # when its user moves it to a partition of Slurm alone
    snapshot = await world.slurm.client.snapshot()
    jobs = tuple(replace(job, partition="slurms-own") if job.key == key else job for job in snapshot.jobs)
    await world.cycle.run(replace(snapshot, jobs=jobs))
    # then the step is settled as done, and the reason stays
    assert world.journal.open_intents() == []
    assert world.journal.given_to_slurm.last(key) == why


async def test_the_first_decision_of_a_policy_is_recorded_though_the_journal_fails_once(tmp_path, monkeypatch):
    # given a job that no decision starts, and a journal that cannot be written when the first one is made
    world = World(tmp_path, policy="fifo")
    world.sbatch(60.0, request=sbatch_request(gpus_per_node=8, nodes=4))
    world.sbatch(60.0, gpus_per_node=8)
    world.slurm.node_drain("n1")
    record, entries = world.journal.record_decision, []

    def write(entry, placed):
        if not entries:
            entries.append(None)
            raise JournalError("the journal cannot be written: database is locked")
        entries.append(entry.policy)
        record(entry, placed)

    monkeypatch.setattr(world.journal, "record_decision", write)
    with pytest.raises(JournalError):
        await world.turn()
    await world.turn()
    await world.turn()
    # then the next cycle records it, and reports it once
    assert entries == [None, "fallback:fifo"]
    assert [event.kind for event in world.events.recent() if event.kind in {"fallback", "policy"}] == ["fallback"]
