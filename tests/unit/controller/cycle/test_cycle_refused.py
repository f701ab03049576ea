"""Jobs that Slurm refuses again and again: they cost other jobs nothing, and each is placed in the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from controller.admin.explain.cycle_view import CycleView
from controller.admin.explain.explain import explain
from controller.base.turn import watchdog_turn
from controller.cycle.refusals import MOST_BEHIND, MOST_PLACES
from controller.daemon.watchdog.watchdog import Watchdog
from controller.observe.role import LAST_RETRY_S, Role
from controller.slurm.client import Failure
from controller.slurm.embedded import ClusterDescription, GpuLimit, sbatch_request
from controller.slurm.model.job import JobKey, Phase
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK
from controller.state.journal import read_originals
from controller.state.ledger import NOT_BOOTED, UNFIT_S, Refusal
from tests.birthmarks import without_birthmark
from tests.unit.controller.worlds.world import World

LIMIT = ClusterDescription(limits=(GpuLimit(user="alice", gpus=8, reason="AssocGrpGRES"),))


async def test_a_job_refused_for_days_costs_no_cycle(tmp_path):
    # given a journal in which a job has been refused five thousand times
    world = World(tmp_path, LIMIT, policy="fifo-skip")
    running, refused = (world.sbatch(1000.0, gpus_per_node=8) for _ in range(2))
    await world.go_on(6)
    before = world.ledger.refusals[refused]
    world.ledger.refusals[refused] = replace(before, count=5000, retry_at_s=world.clock.now())
    world.journal.save_jobs(world.ledger, [refused])
    # when a controller starts with it, places the job, and Slurm refuses it once more
    world.restart()
    for _ in range(5):
        await world.turn()
        await world.clock.advance(1.0)
    # then the count goes on, the pause is the longest, and the job runs when the limit allows
    again = world.ledger.refusals[refused]
    assert again.count == 5001
    assert again.retry_at_s - again.refused_at_s == 300.0
    world.slurm.cancel(running.job_id)
    await world.go_on(10)
    assert world.phase(refused) is Phase.RUNNING


async def test_the_longest_pause_is_kept(tmp_path):
    # given a job that was refused often, and a slurmctld that takes a moment
    world = World(tmp_path, LIMIT, policy="fifo-skip")
    _, refused = (world.sbatch(1000.0, gpus_per_node=8) for _ in range(2))
    await world.go_on(6)
    before = world.ledger.refusals[refused]
    world.ledger.refusals[refused] = replace(before, count=20, retry_at_s=world.clock.now())
    hold = world.slurm.client.hold

    async def slow_hold(keys):
        await world.clock.advance(0.05)
        return await hold(keys)

    world.slurm.client.hold = slow_hold
    placed = len(world.journal.decisions_of(refused))
    # then it is placed once more, and not again until the pause is over
    await world.go_on(250)
    assert len(world.journal.decisions_of(refused)) == placed + 1


async def test_ends_of_other_jobs_do_not_lengthen_the_pause(tmp_path):
    # given a job that was refused often, because two jobs together use all that its user may have
    world = World(tmp_path, LIMIT, policy="fifo-skip")
    first, second = (world.sbatch(1000.0, gpus_per_node=4) for _ in range(2))
    refused = world.sbatch(1000.0, gpus_per_node=8)
    await world.go_on(6)
    before = world.ledger.refusals[refused]
    world.ledger.refusals[refused] = replace(before, count=20, retry_at_s=world.clock.now() + 200)
    # when one of them ends, and the job is placed at once, and refused
    world.slurm.cancel(first.job_id)
    await world.go_on(4)
    # then it waits only as long as after a first refusal, also after a restart of the controller
    again = world.ledger.refusals[refused]
    assert (again.count, again.retry_at_s - again.refused_at_s) == (21, 5.0)
    world.restart()
    await world.go_on(8)
    third = world.ledger.refusals[refused]
    assert (third.count, third.retry_at_s - third.refused_at_s) == (22, 10.0)
    world.slurm.cancel(second.job_id)
    await world.go_on(10)
    assert world.phase(refused) is Phase.RUNNING


async def test_a_job_that_slurm_requeues_at_each_start_is_placed_more_and_more_seldom(tmp_path):
    # given a job whose PrologSlurmctld fails each time, so that Slurm puts it back into the queue within a second
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8)
    starts = 0
    for second in range(120):
        await world.go_on(1)
        if world.phase(key) is Phase.RUNNING:
            starts += 1
            world.slurm.requeue(key.job_id)
        if second == 60:
            world.restart()  # the count outlives the controller
    # then it is soon tried again at first, and then less and less often; its user sees why
    assert 5 <= starts <= 8
    (refusal,) = world.ledger.refusals.values()
    assert refusal.retry_at_s - refusal.refused_at_s >= 20.0
    assert "right after its start" in refusal.reason
    # and once it runs for longer, the next requeue costs it nothing
    await world.go_on(100)
    assert world.phase(key) is Phase.RUNNING
    world.slurm.requeue(key.job_id)
    await world.go_on(10)
    assert world.phase(key) is Phase.RUNNING


async def test_a_job_that_starts_while_it_is_refused_is_seen_to_have_started(tmp_path):
    # given a job that was refused once, and that Slurm starts at the very moment in which it is to be held again
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=1, never_starts=True)
    await world.go_on(2)
    world.ledger.refusals[key] = Refusal("AssocGrpGRES", world.clock.now() - 60, world.clock.now() - 55, 1)
    job, hold = world.slurm.job(key.job_id), world.slurm.client.hold

    async def late_hold(keys):
        job.submission = replace(job.submission, never_starts=False)
        world.sbatch(1.0, gpus_per_node=1)  # Slurm looks at its queue
        await world.clock.advance(2.0)
        return await hold(keys)

    world.slurm.client.hold = late_hold
    while world.phase(key) is not Phase.RUNNING:
        await world.go_on(1)
    world.slurm.client.hold = hold
    assert world.cycle._keeper.jobs[key].phase is Phase.PENDING
    # when the next cycle comes
    await world.go_on(2)
    # then there is an event, the mark is removed, and the refusal is forgotten
    assert "started" in [event.kind for event in world.events.recent(key.job_id)]
    assert without_birthmark(job.admin_comment) == ""
    assert key not in world.ledger.refusals


# ---- nodes that only look free


async def test_a_job_is_placed_on_other_nodes_after_a_refusal_that_the_nodes_may_explain(tmp_path):
    # given a node whose GPUs look free, and on which Slurm does not start the job
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8, unfit_nodes=frozenset({"n1"}))
    await world.go_on(13)
    refusal = world.ledger.refusals[key]
    assert (refusal.unfit, refusal.places) == ("n1", 1)
    # when it is placed again, after a restart of the controller too
    world.restart()
    assert world.ledger.refusals[key] == refusal
    await world.go_on(8)
    # then it runs on another node
    assert world.phase(key) is Phase.RUNNING
    assert list(world.nodes(key)) != ["n1"]
    assert key not in world.ledger.refusals


async def test_a_job_avoids_refused_nodes_alone_and_only_for_a_while(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8, unfit_nodes=frozenset({"n1"}))
    await world.go_on(13)
    for name in ("n2", "n3", "n4"):
        world.slurm.node_drain(name)
    other = world.sbatch(30.0, gpus_per_node=8)
    await world.go_on(5)
    assert list(world.nodes(other)) == ["n1"]
    placed = len(world.journal.decisions_of(key))
    await world.go_on(UNFIT_S - 60, step_s=5.0)
    assert len(world.journal.decisions_of(key)) == placed
    await world.go_on(120, step_s=5.0)
    assert len(world.journal.decisions_of(key)) == placed + 1


async def test_a_job_that_is_started_nowhere_is_given_to_slurm(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8, never_starts=True)
    await world.go_on(400)
    job = world.slurm.job(key.job_id)
    assert not job.held
    assert without_birthmark(job.admin_comment) == ""
    assert job.request.required_nodes == ()
    assert world.ledger.yielded == {key: 0}
    assert len(world.journal.decisions_of(key)) == MOST_PLACES
    given = [event.text for event in world.events.recent() if "given to Slurm" in event.text]
    assert "n1, n2, n3, n4" in given[0]
    # and Slurm starts it when it can
    job.submission = replace(job.submission, never_starts=False)
    world.sbatch(1.0, gpus_per_node=1)
    await world.go_on(10)
    assert world.phase(key) is Phase.RUNNING


async def test_a_placed_job_without_a_record_is_not_given_to_slurm_with_the_nodes_of_its_placement(tmp_path):
    # given a placed job that Slurm has not started yet, and a journal that has lost the placement
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8, never_starts=True)
    await world.go_on(3)
    job = world.slurm.job(key.job_id)
    assert job.request.required_nodes == ("n1",)
    del world.ledger.pins[key]
    # when Slurm refuses the hold with which it would be taken into the queue again
    world.slurm.faults.refuse_next("hold", "Unable to contact slurm controller (connect failure)")
    await world.turn()
    # then it is tried again, and placed anew
    assert not world.ledger.yielded
    await world.turn()
    assert [call.verb for call in world.slurm.faults.calls].count("hold") >= 2
    assert key in world.ledger.pins


@pytest.mark.parametrize("stray", [False, True])
async def test_a_job_that_slurm_does_not_take_is_given_to_it_ever_more_seldom(tmp_path, stray):
    # given a job for Slurm to place, and a Slurm that refuses every release
    world = World(tmp_path, policy="fifo-skip")
    release = world.slurm.client.release

    async def refused(keys):
        return {key: Failure("Access/permission denied") for key in keys}

    if stray:
        world.sbatch(1000.0, gpus_per_node=8, nodes=4)
        key = world.sbatch(10.0, gpus_per_node=1)
        await world.go_on(3)
        world.settings = world.settings.model_copy(update={"partitions": ("another",)})
    else:
        key = world.sbatch(10.0, request=sbatch_request(gpus_per_node=1, nodes=2, nodelist=("n1",)))
    world.slurm.client.release = refused
    # when cycles go on for ten minutes
    await world.go_on(600, step_s=2.5)
    # then it was tried after 0, 5, 15, 35, 75, 155, 315 s, and every five minutes from then on
    steps = [step for step in world.journal.intents_of(key) if step.verb == "release"]
    assert len(steps) == 7
    assert world.slurm.job(key.job_id).held
    assert "could not be given to Slurm" in world.ledger.refusals[key].reason
    # and it is released once Slurm lets it
    world.slurm.client.release = release
    await world.go_on(LAST_RETRY_S, step_s=2.5)
    assert not world.slurm.job(key.job_id).held
    assert world.ledger.refusals == {}


async def test_a_job_that_fits_on_one_node_only_is_tried_there_again(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    request = sbatch_request(gpus_per_node=8, nodelist=("n2",))
    key = world.sbatch(1000.0, request=request, unfit_nodes=frozenset({"n2"}))
    await world.go_on(30)
    assert world.ledger.refusals[key].unfit == "n2"
    job = world.slurm.job(key.job_id)
    job.submission = replace(job.submission, unfit_nodes=frozenset())
    await world.go_on(60)
    assert list(world.nodes(key)) == ["n2"]


async def test_after_a_refusal_for_a_limit_no_nodes_are_avoided(tmp_path):
    world = World(tmp_path, LIMIT, policy="fifo-skip")
    world.sbatch(10_000.0, gpus_per_node=8)
    refused = world.sbatch(1000.0, gpus_per_node=8)
    await world.go_on(3000, step_s=5.0)
    refusal = world.ledger.refusals[refused]
    assert refusal.count > MOST_PLACES
    assert (refusal.unfit, refusal.places) == ("", 0)
    assert world.slurm.job(refused.job_id).held


# ---- other jobs of Slurm's queue


async def behind_a_yielded_job(tmp_path, nodes: int) -> tuple[World, JobKey, JobKey, JobKey]:
    """Return a world, a job that runs on n1, a yielded job that waits for n1 and others, and a job that is behind it."""
    world = World(tmp_path, policy="fifo-skip")
    first = world.sbatch(100_000.0, gpus_per_node=8, time_limit_s=36_000.0)
    await world.go_on(5)
    assert list(world.nodes(first)) == ["n1"]
    request = sbatch_request(gpus_per_node=8, nodes=nodes, nodelist=("n1",))
    head = world.sbatch(100.0, request=request, time_limit_s=3600.0)
    await world.go_on(5)
    assert (await world.turn()).observation.standings[head].role is Role.YIELDED
    assert world.slurm.job(head.job_id).reason == "Resources"
    return world, first, head, world.sbatch(10_000.0, gpus_per_node=8)


async def test_behind_a_yielded_job_no_nodes_are_blamed_and_no_job_is_given_to_slurm(tmp_path):
    # given a yielded job that needs all nodes, and a job that would delay it on any of them
    world, first, head, key = await behind_a_yielded_job(tmp_path, nodes=4)
    # when Slurm has refused it more often than nodes are tried
    await world.go_on(900)
    refusal = world.ledger.refusals[key]
    assert refusal.behind > MOST_PLACES
    assert "Priority" in refusal.reason
    # then it still waits for Headway, no node counts as unfit, and the yielded job was not delayed
    assert (refusal.unfit, refusal.places) == ("", 0)
    assert key not in world.ledger.yielded
    world.slurm.cancel(first.job_id)
    await world.go_on(50)
    assert world.phase(head) is Phase.RUNNING
    # and it runs when the yielded job has ended
    await world.go_on(500)
    assert world.phase(key) is Phase.RUNNING
    assert any(event.kind == "placed" for event in world.events.recent(key.job_id))


async def test_a_job_behind_a_yielded_job_is_tried_on_other_nodes(tmp_path):
    # given a yielded job for which Slurm keeps two nodes, and a job that is first placed on them
    world, _, head, key = await behind_a_yielded_job(tmp_path, nodes=3)
    # then it runs on the one that is left, soon, also with a controller that was restarted meanwhile
    await world.go_on(30)
    world.restart()
    await world.go_on(90)
    assert world.phase(key) is Phase.RUNNING
    assert world.phase(head) is Phase.PENDING
    assert len(world.journal.decisions_of(key)) > 1


async def test_a_job_that_is_behind_others_for_too_long_is_given_to_slurm(tmp_path):
    # given a yielded job that waits for hours
    world, first, head, key = await behind_a_yielded_job(tmp_path, nodes=4)
    await world.go_on(3600, step_s=5.0)
    assert key not in world.ledger.yielded
    # then Slurm places the job in the end, with its own request, in its order
    await world.go_on(3600, step_s=5.0)
    assert world.ledger.yielded == {head: 0, key: 0}
    assert len(world.journal.decisions_of(key)) == MOST_BEHIND
    job = world.slurm.job(key.job_id)
    assert (job.held, job.reason, job.request.required_nodes) == (False, "Priority", ())
    world.slurm.cancel(first.job_id)
    await world.go_on(150)
    assert world.phase(head) is Phase.ENDED
    assert world.phase(key) is Phase.RUNNING


# ---- what Slurm cannot carry out


async def test_a_job_that_slurm_cannot_run_where_it_was_placed_is_given_to_slurm(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=1, free_choice_only=True)
    await world.go_on(5)
    assert world.phase(key) is Phase.RUNNING
    job = world.slurm.job(key.job_id)
    assert without_birthmark(job.admin_comment) == ""
    # It is kept, because Slurm no longer shows all of it once the job has run.
    assert job.request == world.ledger.originals[key]
    assert any("BadConstraints" in event.text for event in world.events.recent())


@pytest.mark.parametrize("verb", ["pin", "release", "unmark", "unpin"])
async def test_a_controller_that_dies_on_the_way_gives_such_a_job_to_slurm_later(tmp_path, verb):
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=1, free_choice_only=True)
    original = getattr(world.slurm.client, verb)

    async def killed(*arguments, **options):
        await original(*arguments, **options)
        raise KeyboardInterrupt

    setattr(world.slurm.client, verb, killed)
    with pytest.raises(KeyboardInterrupt):
        for _ in range(5):
            await world.turn()
            await world.clock.advance(1.0)
    setattr(world.slurm.client, verb, original)
    await world.clock.advance(5.0)
    world.restart()
    await world.go_on(10)
    assert world.phase(key) is Phase.RUNNING
    assert without_birthmark(world.slurm.job(key.job_id).admin_comment) == ""


@pytest.mark.parametrize("has_journal", [True, False])
async def test_the_watchdog_frees_such_a_job(tmp_path, has_journal):
    # given a controller that dies right after it has released the job
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=1, free_choice_only=True)
    await world.turn()
    await world.clock.advance(2.0)
    world.alive = False
    job = world.slurm.job(key.job_id)
    assert (job.held, job.reason, without_birthmark(job.admin_comment)) == (True, "BadConstraints", PIN_MARK)
    # when the watchdog looks
    originals = (lambda: read_originals(tmp_path / "journal.sqlite")) if has_journal else dict
    turn = watchdog_turn(tmp_path, 10.0, world.clock)
    watchdog = Watchdog(world.slurm.client, tmp_path / "no-lease", originals, world.clock, 2.0, turn)
    look = asyncio.ensure_future(watchdog.check())
    await world.clock.advance(5.0)
    assert (await look).released == (key,)
    await world.clock.advance(5.0)
    # then Slurm decides alone; without a journal the job's own request is not known
    assert without_birthmark(world.slurm.job(key.job_id).admin_comment) == ""
    assert (world.phase(key) is Phase.RUNNING) is has_journal
    # and it is not released again and again
    look = asyncio.ensure_future(watchdog.check())
    await world.clock.advance(5.0)
    assert (await look).released == ()


async def test_the_mark_of_a_placed_job_is_removed_when_it_starts(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    keys = [world.sbatch(1000.0, gpus_per_node=8, admin_comment="ticket 7") for _ in range(2)]
    await world.turn()
    await world.clock.advance(1.0)
    assert {without_birthmark(world.slurm.job(key.job_id).admin_comment) for key in keys} == {f"ticket 7 {PIN_MARK}"}
    world.slurm.faults.lose_request("unmark")
    await world.go_on(3)
    assert {without_birthmark(world.slurm.job(key.job_id).admin_comment) for key in keys} == {"ticket 7"}


async def test_a_user_that_holds_a_placed_job_keeps_it_on_hold(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=1, never_starts=True)
    await world.turn()
    await world.clock.advance(1.0)
    world.slurm.user_hold(key.job_id)
    await world.go_on(30)
    assert world.slurm.job(key.job_id).held
    assert HOLD_MARK not in world.slurm.job(key.job_id).admin_comment


async def test_a_job_that_fits_on_no_node_is_left_to_slurm_with_slurms_reason(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=9)
    await world.go_on(5)
    result = await world.turn()
    standing = result.observation.standings[key]
    assert standing.role is Role.YIELDED
    assert "BadConstraints" in standing.why
    found = explain(CycleView(result, world.ledger, ["dl"]), key.job_id, world.clock.now())
    assert "scontrol release" not in found.sentence
    assert "scancel" in found.sentence
    # and a restart does not change that
    world.restart()
    assert (await world.turn()).observation.standings[key].role is Role.YIELDED


async def test_a_job_whose_dependency_can_never_be_met_is_left_to_slurm(tmp_path):
    # given a job that waits for one that failed so long ago that Slurm no longer shows it
    world = World(tmp_path, policy="fifo-skip")
    failed = world.sbatch(1.0, gpus_per_node=1, exit_code=1)
    await world.go_on(5)
    await world.clock.advance(1000.0)
    key = world.sbatch(1.0, gpus_per_node=1, dependency=f"afterok:{failed.job_id}")
    await world.go_on(10)
    job = world.slurm.job(key.job_id)
    assert job.reason == "DependencyNeverSatisfied"
    assert (job.held, without_birthmark(job.admin_comment), job.request.required_nodes) == (False, "", ())
    assert key in world.ledger.yielded


async def test_a_job_that_has_run_keeps_its_maximum_of_nodes_when_it_is_refused(tmp_path):
    # given a job that asked for eight GPUs on one node, has run, and was requeued: Slurm shows no maximum of nodes any more
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, request=sbatch_request(gpus=8, nodes=(1, 1)))
    await world.go_on(3)
    assert world.phase(key) is Phase.RUNNING
    job = world.slurm.job(key.job_id)
    job.submission = replace(job.submission, unfit_nodes=frozenset({"n1"}))
    world.slurm.requeue(key.job_id)
    # when Slurm refuses it on the node where it is placed now, and its pin is taken back
    for _ in range(60):
        await world.go_on(1)
        if world.ledger.refusals:
            break
    (again,) = world.ledger.refusals
    # then what it asked for is still known, and it is placed on one node
    assert world.ledger.originals[again].max_nodes == 1
    world.restart()
    await world.go_on(60)
    assert world.phase(again) is Phase.RUNNING
    assert len(world.nodes(again)) == 1
    assert job.request.max_nodes == 1


async def test_a_job_that_waited_long_for_a_limit_is_soon_placed_on_other_nodes(tmp_path):
    # given a job that Slurm has refused for days because of a limit
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8, unfit_nodes=frozenset({"n1"}), begin_time_s=world.clock.now() + 5)
    await world.go_on(2)
    world.ledger.refusals[key] = Refusal(
        "Slurm refuses it: AssocGrpGRES", world.clock.now() - 300, world.clock.now(), 5000, slurm_reason="AssocGrpGRES"
    )
    # when the limit allows it, and it is placed on a node that only looks free
    await world.go_on(20)
    # then it waits there, and until the next attempt, no longer than a job that was never refused
    refusal = world.ledger.refusals[key]
    assert (refusal.unfit, refusal.places, refusal.count) == ("n1", 1, 5001)
    assert refusal.retry_at_s - refusal.refused_at_s == 5.0
    await world.go_on(8)
    assert list(world.nodes(key)) != ["n1"]
    assert world.phase(key) is Phase.RUNNING


@pytest.mark.parametrize("requeued", [False, True], ids=["first run", "requeued"])
async def test_a_job_that_its_user_changes_after_a_refusal_for_a_limit_is_tried_at_once(tmp_path, requeued):
    # given a job of more GPUs than its user may have, which was refused several times
    world = World(tmp_path, ClusterDescription(limits=(GpuLimit(user="bob", gpus=4, reason="AssocGrpGRES"),)))
    key = world.sbatch(1000.0, gpus_per_node=4 if requeued else 8, user="bob")
    if requeued:
        await world.go_on(5)
        world.slurm.requeue(key.job_id, held=True)
        await world.go_on(10)
        world.slurm.update(key.job_id, TresPerNode="gres:gpu:8")
        await world.go_on(3)
        world.slurm.user_release(key.job_id)
    await world.go_on(200)
    ((key, refusal),) = world.ledger.refusals.items()
    assert refusal.retry_at_s - world.clock.now() > 60.0
    # when its user wants fewer
    world.slurm.update(key.job_id, TresPerNode="gres:gpu:2")
    await world.go_on(4)
    # then it runs at once, and not after the pause
    assert world.phase(key) is Phase.RUNNING
    assert key not in world.ledger.refusals


async def test_a_job_that_is_not_changed_waits_after_a_refusal_for_a_limit(tmp_path):
    world = World(tmp_path, ClusterDescription(limits=(GpuLimit(user="bob", gpus=4, reason="AssocGrpGRES"),)))
    key = world.sbatch(1000.0, gpus_per_node=8, user="bob")
    await world.go_on(200)
    refused = [event for event in world.events.recent(key.job_id) if event.text.startswith("Slurm refuses it")]
    assert len(refused) == world.ledger.refusals[key].count < 8


async def test_a_job_that_its_user_changes_after_refusals_for_its_nodes_is_tried_at_once_and_counted_anew(tmp_path):
    # given a job that was placed several times on the node that it wants, and never started there
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, request=sbatch_request(gpus_per_node=8, nodelist=("n2",)), never_starts=True)
    while (refusal := world.ledger.refusals.get(key)) is None or refusal.places < MOST_PLACES - 1:
        await world.go_on(1)
    await world.go_on(3)
    assert refusal.retry_at_s - world.clock.now() > 10.0
    # when its user wants fewer, and Slurm does not start it either
    world.slurm.update(key.job_id, TresPerNode="gres:gpu:2")
    await world.go_on(3)
    # then it is tried before the pause has ended, and its nodes and refusals are those of the new request alone
    assert key in world.ledger.pins
    assert "was changed in Slurm, and is tried again at once" in world.events.recent(key.job_id)[-2].text
    while (again := world.ledger.refusals.get(key)) is None:
        await world.go_on(1)
    assert (again.count, again.places, again.retry_at_s - again.refused_at_s) == (1, 1, 5.0)
    # and it runs once Slurm starts it
    job = world.slurm.job(key.job_id)
    job.submission = replace(job.submission, never_starts=False)
    await world.go_on(10)
    assert world.phase(key) is Phase.RUNNING


async def test_a_change_of_a_job_does_not_lead_it_to_nodes_that_did_not_boot(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    key = world.sbatch(1000.0, gpus_per_node=8, begin_time_s=world.clock.now() + 30)
    await world.go_on(2)
    refusal = Refusal("n1 did not boot for it", world.clock.now(), world.clock.now(), 1, "", "n1", 0, NOT_BOOTED)
    world.ledger.refusals[key] = refusal
    world.slurm.update(key.job_id, TresPerNode="gres:gpu:2")
    await world.go_on(3)
    assert world.ledger.refusals == {key: refusal}
