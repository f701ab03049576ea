"""The whole path beside an embedded Slurm: from submission to a policy's placement, and through every accident on the way."""

from contextlib import nullcontext

import pytest

from controller.base.errors import SlurmUnavailableError
from controller.observe.role import Role
from controller.slurm.embedded import ClusterDescription, GpuLimit, Submission, sbatch_request
from controller.slurm.model.job import JobKey, Phase
from controller.slurm.model.marks import HOLD_MARK
from tests.unit.controller.cycle.decision.test_decider import BrokenPolicy, FakeEndpoint
from tests.unit.controller.worlds.world import World


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def test_a_job_runs_on_the_nodes_that_the_policy_chose(world):
    # given a job on hold, and a policy server that wants it on the third node
    world.endpoint = FakeEndpoint()
    world.endpoint.placement = type(world.endpoint.placement)((2,), (4,))
    world.restart()
    key = world.sbatch(gpus_per_node=4)
    assert world.slurm.job(key.job_id).held
    # when a cycle has passed
    result = await world.turn()
    await world.clock.advance(1.0)
    # then it runs there
    assert result.decided is not None
    assert result.decided.policy == "fake"
    assert world.phase(key) is Phase.RUNNING
    assert world.nodes(key) == {"n3": 4}


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        (sbatch_request(gpus_per_node=8, nodes=4), 4),
        (sbatch_request(gpus=16), 2),
        (sbatch_request(gpus=12), 2),
        (sbatch_request(gpus_per_task=4, ntasks=6), 3),
        (sbatch_request(gpus_per_node=2, nodes=(1, 3)), 1),
    ],
)
async def test_every_form_of_request_gets_its_gpus(world, asked, count):
    key = world.sbatch(request=asked)
    await world.turn()
    await world.clock.advance(1.0)
    assert world.phase(key) is Phase.RUNNING
    assert len(world.nodes(key)) == count
    assert len(set(world.nodes(key).values())) == 1


@pytest.mark.parametrize("policy", ["fifo-skip", "backfill", "srtf", "tiresias", "las"])
async def test_a_job_that_fits_in_equal_parts_only_on_more_nodes_than_there_are_runs(tmp_path, policy):
    """25 GPUs are five on each of five nodes; there are four nodes with eight."""
    world = World(tmp_path, policy=policy)
    key = world.sbatch(100.0, request=sbatch_request(gpus=25))
    await world.go_on(5)
    assert world.phase(key) is Phase.RUNNING
    assert sum(world.nodes(key).values()) == 25
    # and its uneven parts keep no other job from running beside it
    other = world.sbatch(50.0, gpus_per_node=4)
    await world.go_on(10)
    assert (world.phase(other), world.phase(key)) == (Phase.RUNNING, Phase.RUNNING)


async def test_jobs_wait_when_no_nodes_are_free_and_all_run_once(world):
    keys = [world.sbatch(50.0, gpus_per_node=8, nodes=2) for _ in range(7)]
    await world.go_on(300)
    for key in keys:
        assert world.slurm.job(key.job_id).state == "COMPLETED"
        assert world.slurm.job(key.job_id).restarts == 0
        assert len(world.journal.decisions_of(key)) == 1
    assert world.ledger.refusals == {}


async def test_array_tasks_are_placed_one_by_one(world):
    submitted = world.slurm.submit_all(
        Submission(request=sbatch_request(gpus_per_node=8), duration_s=30.0, array=(0, 1, 2, 3, 4, 5))
    )
    await world.go_on(5)
    running = [key for key in submitted if world.phase(key) is Phase.RUNNING]
    assert len(running) == 4
    await world.go_on(90)
    assert {world.slurm.job(key.job_id).state for key in submitted} == {"COMPLETED"}


async def test_what_is_not_ours_passes_untouched(world):
    srun = world.sbatch(gpus_per_node=1, batch=False)
    het = world.sbatch(gpus_per_node=1, het_components=2)
    cpu = world.sbatch(request=sbatch_request(ntasks=4))
    await world.clock.advance(6.0)
    result = await world.turn()
    assert {world.phase(key) for key in (srun, het, cpu)} == {Phase.RUNNING}
    assert result.observation.standings.keys() == set()
    assert result.observation.state.nodes.foreign_gpus.sum() >= 2


async def test_dependencies_begin_times_and_user_holds_are_waited_for(world):
    first = world.sbatch(20.0, gpus_per_node=1)
    after = world.sbatch(20.0, gpus_per_node=1, dependency=f"afterok:{first.job_id}")
    later = world.sbatch(20.0, gpus_per_node=1, begin_time_s=world.clock.now() + 60)
    held = world.sbatch(20.0, gpus_per_node=1, hold=True)
    await world.go_on(10)
    assert world.phase(first) is Phase.RUNNING
    assert [world.phase(key) for key in (after, later, held)] == [Phase.PENDING] * 3
    await world.go_on(25)
    assert world.phase(after) is Phase.RUNNING
    world.slurm.user_release(held.job_id)
    await world.go_on(10)
    assert world.phase(held) is Phase.RUNNING
    assert world.journal.decisions_of(held), "the policy placed it, not Slurm"
    assert world.phase(later) is Phase.PENDING
    await world.go_on(30)
    assert world.phase(later) is Phase.RUNNING


async def test_a_user_may_hold_a_job_that_headway_holds(world):
    blocker = world.sbatch(20.0, gpus_per_node=8, nodes=4)
    key = world.sbatch(20.0, gpus_per_node=8, nodes=4)
    await world.turn()
    world.slurm.user_hold(key.job_id)
    assert world.woken[-1] == f"user-hold {key.job_id}"
    await world.go_on(60)
    assert world.slurm.job(blocker.job_id).state == "COMPLETED"
    assert world.phase(key) is Phase.PENDING
    world.slurm.user_release(key.job_id)
    await world.go_on(10)
    assert world.phase(key) is Phase.RUNNING


async def test_a_job_that_slurm_refuses_for_a_limit_is_held_again_with_that_reason(tmp_path):
    # given a user who may use eight GPUs at once
    world = World(tmp_path, ClusterDescription(limits=(GpuLimit(user="alice", gpus=8, reason="AssocGrpGRES"),)))
    one, two = world.sbatch(40.0, gpus_per_node=8), world.sbatch(40.0, gpus_per_node=8)
    # when both are placed
    await world.go_on(4)
    # then one runs, and the other is ours again, and says why
    assert world.phase(one) is Phase.RUNNING
    assert world.slurm.job(two.job_id).held
    standing = (await world.turn()).observation.standings[two]
    assert standing.role is Role.INELIGIBLE
    assert "AssocGrpGRES" in standing.why
    # and it keeps no other job from the nodes it was to get
    other = world.sbatch(10.0, gpus_per_node=8, nodes=3, user="bob")
    await world.go_on(3)
    assert world.phase(other) is Phase.RUNNING
    # and runs when the limit allows
    await world.go_on(60)
    assert world.phase(two) in {Phase.RUNNING, Phase.ENDED}


async def test_a_user_far_over_a_limit_delays_no_other_user(tmp_path):
    # given a hundred jobs of a user who may run one of them at a time
    limits = (GpuLimit(user="alice", gpus=8, reason="AssocGrpGRES"),)
    world = World(tmp_path, ClusterDescription(limits=limits), policy="fifo-skip")
    many = [world.sbatch(1000.0, gpus_per_node=8) for _ in range(100)]
    await world.go_on(3)
    # when somebody else submits one
    other = world.sbatch(10.0, gpus_per_node=8, user="bob")
    await world.go_on(5)
    # then it runs: the jobs that Slurm would refuse like the first ones have not been tried
    assert world.phase(other) is Phase.RUNNING
    assert sum(bool(world.journal.decisions_of(key)) for key in many) <= 8
    # and they run one after the other
    world.slurm.cancel(many[0].job_id)
    await world.go_on(10)
    assert [world.phase(key) for key in many].count(Phase.RUNNING) == 1


async def test_a_job_waits_for_a_license_whichever_job_has_it(tmp_path):
    world = World(tmp_path, ClusterDescription(licenses={"sim": 1}), policy="fifo-skip")
    one = world.sbatch(60.0, gpus_per_node=8, licenses={"sim": 1}, user="bob")
    await world.go_on(3)
    two = world.sbatch(10.0, gpus_per_node=8, licenses={"sim": 1})
    await world.go_on(52)  # tries: after 0, 5, 15, 35 s; the next would be at 75 s
    assert world.ledger.refusals[two].reason == "Slurm refuses it: Licenses"
    await world.go_on(10)
    assert world.phase(one) is Phase.ENDED
    assert world.phase(two) is not Phase.PENDING


async def test_a_job_that_does_not_start_in_time_is_placed_again(world):
    key = world.sbatch(gpus_per_node=8, never_starts=True)
    await world.go_on(15)
    assert world.slurm.job(key.job_id).held
    assert world.ledger.refusals[key].count == 1
    assert world.slurm.job(key.job_id).request.required_nodes == ()


async def test_jobs_of_a_dead_node_are_placed_again(world):
    key = world.sbatch(500.0, gpus_per_node=8)
    await world.go_on(3)
    (lost,) = world.nodes(key)
    world.slurm.node_down(lost)
    await world.go_on(10)
    again = world.slurm.job(key.job_id)
    assert again.phase is Phase.RUNNING
    assert [share.node for share in again.allocated] != [lost]
    assert again.restarts == 1


async def test_a_drained_node_gets_no_jobs(world):
    world.slurm.node_drain("n1")
    keys = [world.sbatch(gpus_per_node=8) for _ in range(4)]
    await world.go_on(5)
    assert sorted(node for key in keys for node in world.nodes(key)) == ["n2", "n3", "n4"]


async def test_pending_jobs_that_were_not_held_are_adopted(world):
    # given a controller that was away when jobs came, and no room for one of them
    world.alive = False
    first = world.sbatch(30.0, gpus_per_node=8, nodes=4)
    second = world.sbatch(30.0, gpus_per_node=8, nodes=4)
    await world.clock.advance(2.0)
    assert world.phase(first) is Phase.RUNNING
    # when it is back
    world.alive = True
    await world.turn()
    # then the job that waits is ours
    assert world.slurm.job(second.job_id).held
    assert HOLD_MARK in world.slurm.job(second.job_id).admin_comment
    await world.go_on(40)
    assert world.phase(second) is Phase.RUNNING
    assert world.journal.decisions_of(second)


async def test_what_only_slurm_can_place_is_given_to_slurm(world):
    key = world.sbatch(gpus_per_node=1, features="[a|b]", never_starts=True)
    result = await world.turn()
    assert not world.slurm.job(key.job_id).held
    assert result.observation.standings[key].role is Role.YIELDED
    await world.go_on(5)
    assert HOLD_MARK not in world.slurm.job(key.job_id).admin_comment


@pytest.mark.parametrize("killed", [False, True])
async def test_the_reason_stays_when_the_answer_to_the_release_is_lost(world, killed):
    # given a release for Slurm that is carried out, while its answer is lost, or the controller dies
    key = world.sbatch(request=sbatch_request(gpus_per_node=1, nodes=2, nodelist=("n1",)))
    release = world.slurm.client.release

    async def lost(keys):
        await release(keys)
        raise KeyboardInterrupt if killed else SlurmUnavailableError("no answer")

    world.slurm.client.release = lost
    with pytest.raises(KeyboardInterrupt) if killed else nullcontext():
        await world.turn()
    world.slurm.client.release = release
    # when Slurm has started the job before it is seen again
    await world.clock.advance(10.0)
    assert world.phase(key) is Phase.RUNNING
    if killed:
        world.restart()
    await world.turn()
    # then the journal still has the reason
    assert world.journal.open_intents() == []
    assert world.journal.given_to_slurm.last(key).why


async def test_slurm_places_when_neither_policy_nor_fallback_can(tmp_path):
    world = World(tmp_path, fallback=BrokenPolicy())
    key = world.sbatch(gpus_per_node=2)
    await world.go_on(25)
    assert world.phase(key) is Phase.PENDING  # another cycle may go better
    await world.go_on(10)
    assert world.phase(key) is Phase.RUNNING
    # and a job that comes while it goes on is not kept waiting anew
    later = world.sbatch(gpus_per_node=2)
    await world.go_on(3)
    assert world.phase(later) is Phase.RUNNING


async def test_one_failure_of_the_fallback_costs_one_decision(tmp_path):
    world = World(tmp_path)
    fallback, world.decider._fallback = world.decider._fallback, BrokenPolicy()
    world.sbatch(gpus_per_node=2)
    for _ in range(2):
        assert (await world.turn()).decided is None
        await world.clock.advance(5)
    world.decider._fallback = fallback
    result = await world.turn()
    assert len(result.decided.plan.starts) == 1
    assert world.decider.undecided_s == 0
    assert not world.ledger.yielded
    # a failure an hour later is one of its own, and gives nothing away at once either
    await world.go_on(5)
    await world.clock.advance(3600)
    world.decider._fallback = BrokenPolicy()
    world.sbatch(gpus_per_node=2)
    assert (await world.turn()).decided is None
    await world.clock.advance(3600)
    later = world.sbatch(gpus_per_node=2)
    await world.turn()
    assert world.phase(later) is Phase.PENDING


@pytest.mark.parametrize("verb", ["pin", "release"])
@pytest.mark.parametrize("accident", ["lose_request", "lose_reply"])
async def test_a_call_without_an_answer_loses_nothing(world, verb, accident):
    key = world.sbatch(30.0, gpus_per_node=4)
    getattr(world.slurm.faults, accident)(verb)
    await world.go_on(60)
    done = world.slurm.job(key.job_id)
    assert (done.state, done.restarts) == ("COMPLETED", 0)


@pytest.mark.parametrize("verb", ["pin", "release"])
async def test_a_batch_cut_short_is_finished_later(world, verb):
    keys = [world.sbatch(30.0, gpus_per_node=4) for _ in range(6)]
    world.slurm.faults.cut_short(verb, 3)
    await world.go_on(80)
    assert {world.slurm.job(key.job_id).state for key in keys} == {"COMPLETED"}
    assert {world.slurm.job(key.job_id).restarts for key in keys} == {0}


@pytest.mark.parametrize("reads", [True, False])
async def test_no_job_starts_on_nodes_that_have_not_registered_with_a_new_slurmctld(world, monkeypatch, reads):
    """On 22.05 it would get none of the GPUs of its nodes."""
    # given a slurmctld that restarts while a job is bound to nodes, after the snapshot
    key = world.sbatch(30.0, gpus_per_node=4)
    good = world.slurm.client.pin

    async def slow(pins):
        world.slurm.crash_slurmctld(away_s=1.2)
        await world.clock.advance(1.3)
        if not reads:
            world.slurm.faults.lose_request("unregistered")
        return await good(pins)

    monkeypatch.setattr(world.slurm.client, "pin", slow)
    # when the cycle goes on
    await world.turn()
    # then the job stays held, and it runs once nodes have registered
    assert world.slurm.job(key.job_id).held
    monkeypatch.setattr(world.slurm.client, "pin", good)
    await world.go_on(80)
    done = world.slurm.job(key.job_id)
    assert (done.state, done.restarts, world.ledger.refusals) == ("COMPLETED", 0, {})


@pytest.mark.parametrize("verb", ["snapshot", "pin", "release"])
async def test_a_controller_killed_in_a_cycle_continues_where_it_was(world, verb):
    # given a controller that dies while Slurm does what it asked
    keys = [world.sbatch(30.0, gpus_per_node=4) for _ in range(3)]
    original = getattr(world.slurm.client, verb)

    async def killed(*arguments):
        await original(*arguments)
        raise KeyboardInterrupt

    setattr(world.slurm.client, verb, killed)
    with pytest.raises(KeyboardInterrupt):
        await world.turn()
    setattr(world.slurm.client, verb, original)
    # when it starts again
    world.restart()
    await world.go_on(80)
    # then every job has run once, and no step is left open
    assert {world.slurm.job(key.job_id).state for key in keys} == {"COMPLETED"}
    assert {world.slurm.job(key.job_id).restarts for key in keys} == {0}
    assert world.journal.open_intents() == []


async def test_ids_issued_again_after_a_crash_are_other_jobs(world):
    # given a job that slurmctld forgets
    lost = world.sbatch(30.0, gpus_per_node=8)
    await world.turn()
    world.slurm.crash_slurmctld(lose_newest=1)
    await world.clock.advance(3.0)
    # when another gets its id
    again = world.sbatch(30.0, gpus_per_node=2)
    assert again.job_id == lost.job_id
    await world.go_on(5)
    # then it is placed as what it is
    assert world.nodes(again) == {"n1": 2}
    assert lost not in world.ledger.originals


async def test_ended_jobs_teach_the_next_estimate_and_are_forgotten(world):
    for _ in range(3):
        world.sbatch(40.0, gpus_per_node=8, name="bert")
        await world.go_on(45)
    waiting = world.sbatch(40.0, gpus_per_node=8, name="bert", hold=True)
    world.slurm.user_release(waiting.job_id)
    await world.go_on(6)
    result = await world.turn()
    estimate = world.ledger.estimates["alice", "bert"]
    assert estimate.mean_s == pytest.approx(40.0, abs=1.0)
    assert len(result.observation.state.jobs) == 1
    await world.go_on(600, step_s=5.0)
    assert world.ledger.originals == {}


async def test_two_controllers_lives_give_one_history(world):
    key = world.sbatch(30.0, gpus_per_node=8)
    await world.go_on(5)
    world.restart()
    await world.go_on(60)
    record = world.journal.last_run(key.job_id)
    assert record is not None
    assert (record.key, record.state, record.num_gpus) == (key, "COMPLETED", 8)


async def test_a_key_is_never_confused_with_an_older_job(world):
    stale = JobKey(world.sbatch(gpus_per_node=1).job_id, 5)
    assert (await world.slurm.client.release([stale]))[stale].gone
