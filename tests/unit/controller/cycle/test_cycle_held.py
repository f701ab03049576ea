"""No job is held for ever, whatever users, operators and accidents do to it while Headway holds it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from controller.base.errors import SlurmError
from controller.base.turn import watchdog_turn
from controller.daemon.watchdog.watchdog import Watchdog
from controller.slurm.embedded import (
    ClusterDescription,
    NodeDescription,
    PartitionDescription,
    sbatch_request,
)
from controller.slurm.model.job import Phase
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from controller.state.journal import read_originals
from tests.birthmarks import without_birthmark
from tests.unit.controller.cycle.decision.test_decider import BrokenPolicy
from tests.unit.controller.worlds.world import World

TWO_PARTITIONS = ClusterDescription(partitions=(PartitionDescription(name="dl"), PartitionDescription(name="other")))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, policy="fifo-skip")


def manage(world, *partitions):
    """Change the managed partitions, as a reload of the settings would."""
    world.settings = world.settings.model_copy(update={"partitions": partitions})


def ran(world, key):
    return world.phase(key) in {Phase.RUNNING, Phase.ENDED}


async def requeued(world):
    """A job of twelve GPUs that has lost a node; the node is down."""
    key = world.sbatch(1000.0, request=sbatch_request(gpus=12))
    await world.go_on(5)
    lost = next(iter(world.nodes(key)))
    world.slurm.node_down(lost)
    return key


async def test_a_job_that_its_user_moves_out_of_the_scope_is_given_back(tmp_path):
    world = World(tmp_path, TWO_PARTITIONS, policy="fifo-skip")
    for _ in range(4):
        world.sbatch(100.0, gpus_per_node=8)
    key = world.sbatch(50.0, gpus_per_node=8)
    await world.go_on(5)
    world.slurm.job(key.job_id).partition = "other"
    await world.go_on(3)
    assert not world.slurm.job(key.job_id).held
    assert HOLD_MARK not in world.slurm.job(key.job_id).admin_comment
    await world.go_on(150)
    assert ran(world, key)


async def test_jobs_of_a_partition_that_a_reload_removes_are_given_back(tmp_path):
    world = World(tmp_path, TWO_PARTITIONS, policy="fifo-skip")
    manage(world, "dl", "other")
    for _ in range(4):
        world.sbatch(100.0, gpus_per_node=8, partition="other")
    key = world.sbatch(50.0, gpus_per_node=8, partition="other")
    await world.go_on(5)
    manage(world, "dl")
    await world.go_on(150)
    assert ran(world, key)


async def test_a_requeue_between_two_snapshots_keeps_the_users_own_request(world):
    world.alive = False
    key = await requeued(world)
    await world.clock.advance(20.0)
    world.alive = True
    world.restart()
    await world.go_on(30)
    assert world.phase(key) is Phase.RUNNING
    assert sorted(world.nodes(key).values()) == [6, 6]


@pytest.mark.parametrize("restarts_meanwhile", [False, True])
async def test_a_requeue_that_takes_its_time_keeps_the_users_own_request(world, restarts_meanwhile):
    # Given a job of two nodes, pinned to them, whose tasks do not heed TERM
    key = world.sbatch(1000.0, gpus_per_node=1, nodes=2, traps=("TERM",))
    await world.go_on(5)
    first = set(world.nodes(key))
    # When an operator requeues it, one of its nodes takes no more jobs, and the controller looks while it still ends
    world.slurm.node_drain(min(first))
    world.slurm.requeue(key.job_id)
    await world.go_on(2)
    job = world.slurm.job(key.job_id)
    assert (job.phase, job.restarts, job.submit_time_s) == (Phase.COMPLETING, 1, key.submit_time_s)
    if restarts_meanwhile:
        world.restart()
    await world.go_on(30)
    # Then it runs where there is room, and no run of it counts twice
    assert world.phase(key) is Phase.RUNNING
    assert min(first) not in world.nodes(key)
    again = next(each for each in world.ledger.served if each.job_id == key.job_id)
    assert again.submit_time_s != key.submit_time_s
    assert world.ledger.served[again].first_submit_s == key.submit_time_s
    assert 3 < world.ledger.served[again].service_s < 8


async def test_a_requeued_job_that_no_policy_places_is_released_without_its_old_nodes(world):
    world.decider._fallback = BrokenPolicy()
    key = world.sbatch(1000.0, request=sbatch_request(gpus=12))
    await world.go_on(60)
    world.slurm.node_down(next(iter(world.nodes(key))))
    await world.go_on(400)
    assert world.phase(key) is Phase.RUNNING


async def test_the_watchdog_gives_a_requeued_job_its_own_request_back(world):
    # given a job that waits for a node, pinned once to a dead one
    key = world.sbatch(1000.0, request=sbatch_request(gpus=12))
    await world.go_on(5)
    held = list(world.nodes(key))
    others = [name for name in ("n1", "n2", "n3", "n4") if name not in held]
    for name in others:
        world.slurm.node_drain(name)
    world.slurm.node_down(held[0])
    await world.go_on(5)
    for name in others:
        world.slurm.node_resume(name)
    # when the controller is gone
    world.alive = False
    originals = partial(read_originals, world.folder / "journal.sqlite")
    turn = watchdog_turn(world.folder, 10.0, world.clock)
    watchdog = Watchdog(world.slurm.client, world.folder / "no-lease", originals, world.clock, 2.0, turn)
    look = asyncio.ensure_future(watchdog.check())
    await world.clock.advance(5.0)
    assert (await look).away
    # then Slurm may start it anywhere
    await world.clock.advance(300.0)
    assert world.phase(key) is Phase.RUNNING


async def test_a_users_hold_is_kept_while_a_job_waits_for_another(world):
    first = world.sbatch(50.0, gpus_per_node=1)
    key = world.sbatch(50.0, gpus_per_node=1, dependency=f"afterany:{first.job_id}")
    await world.go_on(5)
    world.slurm.user_hold(key.job_id)
    await world.turn()
    await world.go_on(200)
    assert world.phase(key) is Phase.PENDING
    world.slurm.user_release(key.job_id)
    await world.go_on(20)
    assert ran(world, key)


async def held_at_submission(world):
    """A job that job_submit.lua holds."""
    world.sbatch(100.0, gpus_per_node=8)
    return world.sbatch(50.0, gpus_per_node=8)


async def adopted(world):
    """A job that was submitted while the controller was away."""
    world.sbatch(100.0, gpus_per_node=8)
    await world.go_on(3)
    world.alive = False
    key = world.sbatch(50.0, gpus_per_node=8)
    world.alive = True
    return key


async def requeued_by_an_operator(world):
    """A job that ran, and that has no node to run on again."""
    key = world.sbatch(50.0, gpus_per_node=8)
    await world.go_on(3)
    world.slurm.node_drain(next(iter(world.nodes(key))))
    world.slurm.requeue(key.job_id)
    return key


async def refused(world):
    """A job that was placed, and that Slurm did not start."""
    key = world.sbatch(50.0, gpus_per_node=8, never_starts=True)
    await world.go_on(15)
    return key


@pytest.mark.parametrize("given", [held_at_submission, adopted, requeued_by_an_operator, refused])
async def test_users_release_holds_of_their_own_wherever_the_job_comes_from(world, given):
    # Given a job that Headway holds, for one reason or another
    for _ in range(3):
        world.sbatch(100.0, gpus_per_node=8)
    job_id = (await given(world)).job_id
    while without_birthmark(world.slurm.job(job_id).admin_comment) != HOLD_MARK:
        await world.go_on(1)
    # When its user holds it
    world.slurm.user_hold(job_id)
    await world.go_on(3)
    assert without_birthmark(world.slurm.job(job_id).admin_comment) == USER_HOLD_MARK
    assert world.holds.read() == {}
    await world.go_on(200)
    assert world.slurm.job(job_id).phase is Phase.PENDING
    # Then its user may release it
    world.slurm.user_release(job_id)
    record = world.slurm.job(job_id)
    record.submission = replace(record.submission, never_starts=False)
    await world.go_on(20)
    assert world.slurm.job(job_id).phase in {Phase.RUNNING, Phase.ENDED}


@pytest.mark.parametrize("lost", ["hold", "mark", "unmark"])
@pytest.mark.parametrize("how", ["lose_reply", "lose_request"])
async def test_a_change_of_hands_that_was_interrupted_is_finished(world, lost, how):
    blocker = world.sbatch(30.0, gpus_per_node=8, nodes=4)
    key = world.sbatch(50.0, gpus_per_node=1)
    await world.go_on(3)
    world.slurm.user_hold(key.job_id)
    getattr(world.slurm.faults, how)(lost)
    await world.go_on(60)
    assert world.slurm.job(blocker.job_id).state == "COMPLETED"
    assert without_birthmark(world.slurm.job(key.job_id).admin_comment).split() == [USER_HOLD_MARK]
    world.slurm.user_release(key.job_id)
    await world.go_on(20)
    assert ran(world, key)


async def test_a_released_job_is_never_left_with_both_marks(world):
    key = world.sbatch(50.0, gpus_per_node=1, hold=True)
    await world.go_on(3)
    world.slurm.user_release(key.job_id)
    world.slurm.faults.lose_request("unmark")
    await world.go_on(60)
    assert ran(world, key)


async def test_a_mark_that_was_left_on_a_started_job_does_not_undo_an_operators_hold(world):
    # Given a job whose release was answered, and the exchange of its marks not
    key = world.sbatch(1000.0, gpus_per_node=1)
    world.slurm.faults.lose_request("unmark")
    await world.turn()
    assert without_birthmark(world.slurm.job(key.job_id).admin_comment) == HOLD_MARK
    await world.go_on(5)
    assert (world.phase(key), without_birthmark(world.slurm.job(key.job_id).admin_comment)) == (Phase.RUNNING, "")
    # When an operator requeues it, held, then it stays held
    world.slurm.requeue(key.job_id, held=True)
    await world.go_on(60)
    job = world.slurm.job(key.job_id)
    assert (job.phase, job.held) == (Phase.PENDING, True)


async def test_the_mark_of_a_hold_that_came_just_after_the_start_lasts_as_long_as_the_hold(world):
    # given a hold of Headway that has reached a job that runs already, and whose end Slurm has not answered
    key = world.sbatch(1000.0, gpus_per_node=8)
    await world.turn()
    await world.clock.advance(1.0)
    job = world.slurm.job(key.job_id)
    assert job.phase.occupies_nodes
    job.priority, job.admin_comment = 0, HOLD_MARK
    await world.go_on(3)
    # then the mark shows that it is not a user's, until it ends
    assert without_birthmark(world.slurm.job(key.job_id).admin_comment) == HOLD_MARK
    world.slurm.job(key.job_id).priority = 1
    await world.go_on(3)
    assert without_birthmark(world.slurm.job(key.job_id).admin_comment) == ""


async def test_of_several_partitions_one_that_can_hold_the_job_counts(tmp_path):
    partitions = (PartitionDescription(name="small", nodes="n[1-2]"), PartitionDescription(name="big", nodes="n[3-6]"))
    description = ClusterDescription(nodes=(NodeDescription(names="n[1-6]"),), partitions=partitions)
    world = World(tmp_path, description, policy="fifo-skip")
    manage(world, "small", "big")
    key = world.sbatch(50.0, gpus_per_node=8, nodes=4, partition="small,big")
    await world.go_on(20)
    assert ran(world, key)


@pytest.mark.parametrize(
    "asked",
    [
        sbatch_request(gpus_per_node=1, memory_mib_per_node=10_000_000),
        sbatch_request(gpus_per_node=1, cpus_per_task=1000),
        sbatch_request(gpus=1000),
    ],
)
async def test_what_can_never_start_is_not_held(world, asked):
    key = world.sbatch(request=asked)
    await world.go_on(3)
    job = world.slurm.job(key.job_id)
    assert (without_birthmark(job.admin_comment), job.reason) == (
        "",
        "BadConstraints",
    )  # Slurm's own verdict, and its own hold


async def test_a_user_may_request_less_after_a_refusal(world):
    key = world.sbatch(50.0, gpus_per_node=8, never_starts=True)
    await world.go_on(15)
    assert world.ledger.originals == {}
    world.slurm.update(key.job_id, TresPerNode="gres:gpu:2", ExcNodeList="n1")
    record = world.slurm.job(key.job_id)
    record.submission = replace(record.submission, never_starts=False)
    await world.go_on(40)
    assert world.nodes(key) == {"n2": 2}


async def test_a_job_that_cannot_be_pinned_is_given_to_slurm_in_the_end(world):
    key = world.sbatch(50.0, gpus_per_node=1)
    for _ in range(3):
        world.slurm.faults.refuse_next("pin", "Requested node configuration is not available")
    await world.go_on(60)
    assert ran(world, key)


async def test_a_job_is_not_released_with_a_request_that_is_not_its_own(world):
    key = await requeued(world)
    world.decider._fallback = BrokenPolicy()
    world.slurm.faults.refuse_next("unpin", "no")
    await world.go_on(400)
    assert world.phase(key) is Phase.RUNNING


async def test_slurmctld_being_away_is_no_refusal(world):
    key = world.sbatch(50.0, gpus_per_node=1)
    for _ in range(5):
        world.slurm.faults.lose_request("pin")
    await world.go_on(10)
    assert ran(world, key)
    assert world.ledger.refusals == {}


async def test_node_lists_of_the_past_are_not_kept(tmp_path):
    world = World(tmp_path, policy="fifo-skip")
    for name in ("n1", "n2", "n3"):
        for _ in range(3):
            world.sbatch(1.0, request=sbatch_request(gpus_per_node=1, exclude=(name,)))
    await world.go_on(30)
    world.sbatch(100.0, gpus_per_node=1)
    assert (await world.turn()).observation.state.node_sets.shape[0] <= 3


async def test_everything_refused_is_noticed(world):
    for _ in range(2):
        world.sbatch(50.0, gpus_per_node=1)
    for _ in range(80):
        for verb in ("pin", "hold", "unpin", "release", "unmark"):
            world.slurm.faults.refuse_next(verb, "Access/permission denied")
    await world.go_on(100)
    assert world.cycle.verbs.refused_in_a_row >= 10


async def test_repeated_refusals_of_one_job_do_not_affect_the_others(world):
    world.sbatch(50.0, gpus_per_node=1)
    for _ in range(40):
        for verb in ("pin", "hold", "unpin", "release", "unmark"):
            world.slurm.faults.refuse_next(verb, "Invalid node name specified")
    await world.go_on(100)
    assert world.cycle.verbs.errors >= 10
    assert world.cycle.verbs.refused_in_a_row == 0


async def test_a_clock_set_back_delays_no_job(world):
    key = world.sbatch(50.0, gpus_per_node=8, never_starts=True)
    await world.go_on(15)
    refusal = world.ledger.refusals[key]
    world.ledger.refusals[key] = replace(refusal, retry_at_s=world.clock.now() + 86_400)
    record = world.slurm.job(key.job_id)
    record.submission = replace(record.submission, never_starts=False)
    await world.go_on(5)
    assert ran(world, key)


async def test_facts_of_jobs_that_ended_between_two_snapshots_are_forgotten(world):
    key = world.sbatch(5.0, gpus_per_node=1)
    world.slurm.faults.refuse_next("pin", "no")
    await world.turn()
    assert key in world.ledger.refusals
    world.slurm.cancel(key.job_id)
    await world.clock.advance(1000.0)
    world.restart()
    await world.turn()
    assert world.ledger.keys() == set()
    assert world.journal.load_ledger().keys() == set()


async def test_a_hold_that_slurm_does_not_allow_leaves_the_job_to_slurm(world):
    world.alive = False
    blocker = world.sbatch(20.0, gpus_per_node=8, nodes=4)
    key = world.sbatch(20.0, gpus_per_node=8)
    await world.clock.advance(2.0)
    world.alive = True
    world.slurm.faults.refuse_next("hold", "jobs of scrontab cannot be changed")
    await world.go_on(60)
    assert world.slurm.job(blocker.job_id).state == "COMPLETED"
    assert ran(world, key)
    with pytest.raises(SlurmError):
        world.slurm.job("999")


async def test_a_job_whose_reservation_ends_waits_for_its_user_as_with_slurm_alone(world):
    # given a job that waits for a node of its reservation, and free nodes outside
    world.slurm.reserve("exam", ("n1",), world.clock.now() - 10, world.clock.now() + 3600)
    first, key = (world.sbatch(100.0, gpus_per_node=8, reservation="exam") for _ in range(2))
    await world.go_on(5)
    assert world.phase(first) is Phase.RUNNING
    # when the reservation ends, then it is placed nowhere, and its user may release it
    world.slurm.expire_reservation("exam")
    result = await world.turn()
    assert "its reservation has ended" in result.observation.standings[key].why
    await world.go_on(200, step_s=5)
    assert world.phase(key) is Phase.PENDING
    assert without_birthmark(world.slurm.job(key.job_id).admin_comment) == USER_HOLD_MARK
    world.slurm.user_release(key.job_id)
    await world.go_on(20)
    assert world.phase(key) is Phase.RUNNING


async def test_a_job_of_a_maintenance_starts_on_its_nodes_which_no_other_job_gets(world):
    world.slurm.reserve("repair", ("n1", "n2"), world.clock.now() - 10, world.clock.now() + 7200, maintenance=True)
    inside = world.sbatch(100.0, gpus_per_node=8, nodes=2, reservation="repair")
    others = [world.sbatch(100.0, gpus_per_node=8) for _ in range(3)]
    await world.go_on(20)
    assert sorted(world.nodes(inside)) == ["n1", "n2"]
    assert sorted(node for key in others for node in world.nodes(key)) == ["n3", "n4"]
    await world.go_on(200)  # also after it has ended
    assert not {"n1", "n2"} & {node for key in others for node in world.nodes(key)}
