"""Policies that preempt, beside an embedded Slurm: jobs that are stopped for others, and come back."""

from __future__ import annotations

import pytest

from controller.base.errors import PreemptionRefusedError
from controller.contention.service import ContentionService
from controller.cycle.decision.plan import Stop
from controller.cycle.stranded import stranded
from controller.preempt.budget import PreemptionBudget
from controller.profiles.current import run_of
from controller.slurm.embedded import sbatch_request
from controller.slurm.model.job import Phase
from controller.state.ledger import Ledger
from controller.state.preemption import Cause, RelocationConstraint, Stage
from policies.api import Decision, PolicySpec
from policies.model import JobState, Placement
from policies.selection import present_placements
from tests.unit.controller.worlds.near_nodes import NEAR, show_near_nodes
from tests.unit.controller.worlds.world import World

COMES_BACK = {"comment": "headway=preemptible", "traps": frozenset({"USR1"})}
AUTOMATIC = {"preemption": "automatic", "preemption_min_run_s": 0.0}


def world_of(folder, policy="srtf", **settings):
    return World(folder, policy=policy, settings_changes=AUTOMATIC | settings)


async def long_one(world, **more):
    """A job that takes the whole cluster for hours, and runs."""
    key = world.sbatch(5000.0, gpus_per_node=8, nodes=4, time_limit_s=36_000.0, **(COMES_BACK | more))
    await world.go_on(5)
    assert world.phase(key) is Phase.RUNNING
    return key


def signals(world, key):
    return world.slurm.job(key.job_id).signals


async def test_a_short_job_runs_in_the_place_of_a_long_one_which_continues_later(tmp_path):
    # given a long job that can come back
    world = world_of(tmp_path)
    long = await long_one(world)
    # when short ones are submitted
    short = [world.sbatch(30.0, gpus_per_node=8, nodes=2, time_limit_s=60.0) for _ in range(2)]
    await world.go_on(5)
    # then the long one is asked to save, once, and goes on until it has; the short ones wait for it, first in line
    assert signals(world, long) == ["USR1"]
    result = await world.turn()
    names = [result.observation.rows[row].key for row in result.decided.plan.queue]
    assert names == short
    assert f"waits until job {long.job_id} is stopped" in result.decided.plan.reasons[result.decided.plan.queue[0]]
    row = world.preemptions.open[int(long.job_id)]
    assert (row.cause, row.stage) == (Cause.POLICY, Stage.ASKED)
    assert "srtf wants it to wait" in row.why
    # when it has saved
    world.slurm.requeue(long.job_id)
    await world.go_on(20)
    # then these run, and it is not reported again
    assert [world.phase(key) for key in short] == [Phase.RUNNING] * 2
    assert world.phase(long) is Phase.PENDING
    # and afterwards it runs again, to its end
    await world.go_on(60)
    assert world.phase(long) is Phase.RUNNING
    assert signals(world, long) == ["USR1"]
    assert world.slurm.job(long.job_id).restarts == 1
    assert {world.slurm.job(key.job_id).state for key in short} == {"COMPLETED"}


@pytest.mark.parametrize(
    "settings",
    [
        {"preemption": "off"},
        {"preemption": "advise"},
        {"preemption_partitions": {"main": "off", "dl": "off"}},
        {"preemption_budget_per_hour": 0},
        {"preemption_min_run_s": 3600.0},
    ],
    ids=lambda settings: next(iter(settings)),
)
async def test_no_job_is_stopped_beyond_what_the_operator_allows(tmp_path, settings):
    world = World(tmp_path, policy="srtf", settings_changes=AUTOMATIC)
    partition = world.settings.partitions[0]
    if "preemption_partitions" in settings:
        settings = {"preemption_partitions": {partition: "off"}}
    world = World(tmp_path / "other", policy="srtf", settings_changes=AUTOMATIC | settings)
    long = await long_one(world)
    short = world.sbatch(30.0, gpus_per_node=8, time_limit_s=60.0)
    await world.go_on(30)
    assert (world.phase(long), world.phase(short), signals(world, long)) == (Phase.RUNNING, Phase.PENDING, [])


async def test_a_job_that_is_not_preemptible_is_never_stopped(tmp_path):
    world = world_of(tmp_path)
    long = await long_one(world, comment="")
    short = world.sbatch(30.0, gpus_per_node=8, time_limit_s=60.0)
    await world.go_on(30)
    assert (world.phase(long), world.phase(short)) == (Phase.RUNNING, Phase.PENDING)
    assert not world.preemptions.since(0.0)


async def test_while_one_leaves_no_other_is_stopped_in_its_place(tmp_path):
    # given two long jobs, and a short one for which one of them has to go
    world = world_of(tmp_path)
    long = [
        world.sbatch(5000.0, gpus_per_node=8, nodes=2, time_limit_s=limit_s, **COMES_BACK)
        for limit_s in (36_000.0, 30_000.0)
    ]
    await world.go_on(5)
    world.sbatch(300.0, gpus_per_node=8, nodes=2, time_limit_s=600.0)
    await world.go_on(10)
    assert [signals(world, key) for key in long] == [["USR1"], []]
    # when it takes its time to end
    world.slurm.requeue(long[0].job_id)
    for _ in range(10):
        await world.turn()
        await world.clock.advance(0.1)
    await world.go_on(20)
    # then the other stays
    assert signals(world, long[1]) == []
    assert len(world.preemptions.since(0.0)) == 1


async def test_while_one_of_equals_leaves_no_other_is_stopped_in_its_place(tmp_path):
    # given four equal jobs, and a short one for which one of them has to go
    world = world_of(tmp_path)
    long = [world.sbatch(50_000.0, gpus_per_node=8, time_limit_s=360_000.0, **COMES_BACK) for _ in range(4)]
    await world.go_on(400, 20.0)
    short = world.sbatch(30.0, gpus_per_node=8, time_limit_s=60.0)
    await world.go_on(5)
    (gone,) = [key for key in long if signals(world, key)]
    # when it has been requeued, and its processes take a while to end
    world.slurm.requeue(gone.job_id)
    assert world.phase(gone) is Phase.COMPLETING
    await world.turn()
    await world.go_on(20)
    # then the others stay
    assert [key for key in long if signals(world, key)] == [gone]
    assert world.phase(short) is Phase.RUNNING


class Mover:
    """Moves the running job to the last nodes, and starts no job."""

    spec = PolicySpec(name="mover", source="tests", preempts=True)

    def decide(self, state):
        count = len(state.nodes)
        allocation = present_placements(state, state.running)
        for row in state.pending.tolist():
            size = int(state.jobs.num_gpus[row])
            if size == 8:
                allocation[row] = Placement((0,), (8,))
        for row, own in allocation.items():
            if state.jobs.state[row] == JobState.RUNNING and state.jobs.preemptible[row]:
                allocation[row] = Placement((count - 1,), own.gpus)
        return Decision(allocation)


async def test_a_policy_may_move_a_job(tmp_path):
    world = world_of(tmp_path, Mover())
    key = world.sbatch(5000.0, gpus_per_node=8, **COMES_BACK)
    world.sbatch(5000.0, gpus_per_node=1)  # it waits: a policy is asked only when somebody does
    await world.go_on(5)
    assert signals(world, key) == ["USR1"]
    assert world.nodes(key) == {"n1": 8}
    assert world.preemptions.open[int(key.job_id)].constraint == RelocationConstraint(only=frozenset({"n4"}))
    world.cycle._decider._fallback = world_of(tmp_path / "then", "fifo-skip").decider._fallback
    world.slurm.requeue(key.job_id)
    await world.go_on(15)
    # then it is placed there, whatever else is free
    assert world.nodes(key) == {"n4": 8}
    assert world.ledger.relocations == {}


async def test_a_job_that_only_slurm_can_place_is_stopped_but_not_moved(tmp_path, monkeypatch):
    show_near_nodes(monkeypatch)
    world = world_of(tmp_path, Mover())
    key = world.sbatch(5000.0, gpus_per_node=4, nodes=2, name=NEAR, **COMES_BACK)
    await world.go_on(3)
    job = world.cycle._keeper.jobs[key]
    observation = (await world.turn()).observation
    bounds = PreemptionBudget(world.settings, [], world.clock.now())
    # when a policy wants it in another place
    elsewhere = Stop(observation.rows.index(job), "", Placement((2, 3), (4, 4)))
    (refused,) = world.cycle._stops._refusals([(run_of(job), job, elsewhere)], bounds, observation).values()
    assert refused[1].startswith("can only be stopped: after that Slurm places it by its user's own request")
    # but to make room it is stopped
    to_wait = elsewhere._replace(placement=None)
    assert world.cycle._stops._refusals([(run_of(job), job, to_wait)], bounds, observation) == {}


async def test_a_refusal_at_the_last_moment_is_reported_once(tmp_path, monkeypatch):
    world = world_of(tmp_path)
    long = await long_one(world)

    def refuse(job, *_):
        raise PreemptionRefusedError(job.key.job_id, "is in a bad mood")

    monkeypatch.setattr(world.preemptions, "begin", refuse)
    world.sbatch(30.0, gpus_per_node=8, time_limit_s=60.0)
    await world.go_on(10)
    texts = [event.text for event in world.events.recent(long.job_id) if "bad mood" in event.text]
    assert texts == ["stays on its nodes, although fallback:srtf would stop it: it is in a bad mood"]


# --- where stopped jobs go, and how large


async def stopped(world, key, elsewhere):
    world.preemptions.begin(world.cycle._keeper.jobs[key], Cause.OPERATOR, "by hand", elsewhere)
    await world.go_on(2)
    world.slurm.requeue(key.job_id)
    await world.go_on(8)
    found = world.slurm.job(key.job_id)
    return type(key)(key.job_id, found.submit_time_s)


async def test_a_job_avoids_the_nodes_of_its_constraint(tmp_path):
    world = world_of(tmp_path, "fifo-skip")
    key = world.sbatch(5000.0, gpus_per_node=8, **COMES_BACK)
    await world.go_on(3)
    (before,) = world.nodes(key)
    key = await stopped(world, key, RelocationConstraint(avoid=frozenset({before})))
    (after,) = world.nodes(key)
    assert after != before
    assert world.ledger.relocations == {}


async def test_a_job_that_fits_on_no_other_nodes_loses_its_constraint_with_an_event(tmp_path):
    # given a job that needs every node
    world = world_of(tmp_path, "fifo-skip")
    key = await long_one(world)
    key = await stopped(world, key, RelocationConstraint(avoid=frozenset({"n1"})))
    assert world.phase(key) is Phase.RUNNING
    assert len(world.nodes(key)) == 4
    texts = [event.text for event in world.events.recent(key.job_id) if "may go anywhere" in event.text]
    assert texts == ["may go anywhere again: it had to avoid n1, and fits on no other nodes now"]


async def test_a_constraint_that_has_ended_since_the_observation_is_no_error(tmp_path, monkeypatch):
    world = world_of(tmp_path, "fifo-skip")
    observations = []

    def noting(observation, ledger):
        if found := stranded(observation, ledger):
            observations.append(observation)
        return found

    monkeypatch.setattr("controller.cycle.settling.stranded", noting)
    await stopped(world, await long_one(world), RelocationConstraint(avoid=frozenset({"n1"})))
    (observation,) = observations
    assert stranded(observation, Ledger()) == {}


async def test_a_job_that_slurm_places_loses_its_constraint_with_an_event(tmp_path, monkeypatch):
    # given a job that is to avoid its nodes, and that only Slurm can place since its user has changed it
    world = world_of(tmp_path, "fifo-skip")
    key = world.sbatch(5000.0, gpus_per_node=4, nodes=2, name=NEAR, **COMES_BACK)
    await world.go_on(3)
    avoid = RelocationConstraint(avoid=frozenset(world.nodes(key)))
    world.preemptions.begin(world.cycle._keeper.jobs[key], Cause.OPERATOR, "by hand", avoid)
    show_near_nodes(monkeypatch)
    await world.go_on(2)
    world.slurm.requeue(key.job_id)
    await world.go_on(300, 5.0)
    # then Slurm has started it, and the event says why it is not where it was to go
    assert world.phase(key) is Phase.RUNNING
    (text,) = [event.text for event in world.events.recent(key.job_id) if "that is dropped" in event.text]
    assert text.startswith(
        "was to be placed on other nodes than n1,n2; that is dropped, because Slurm places it: asks for"
    )


async def test_a_job_waits_until_the_nodes_of_its_constraint_are_free(tmp_path):
    world = world_of(tmp_path, "fifo-skip")
    key = world.sbatch(5000.0, gpus_per_node=8, **COMES_BACK)
    blocker = world.sbatch(60.0, gpus_per_node=8)
    await world.go_on(3)
    (taken,) = world.nodes(blocker)
    key = await stopped(world, key, RelocationConstraint(only=frozenset({taken})))
    assert world.phase(key) is Phase.PENDING
    assert world.slurm.job(key.job_id).held
    await world.go_on(90)
    assert world.nodes(key) == {taken: 8}


async def test_a_job_bound_to_a_node_that_goes_down_may_go_anywhere(tmp_path):
    world = world_of(tmp_path, "fifo-skip")
    key = world.sbatch(5000.0, gpus_per_node=8, **COMES_BACK)
    blocker = world.sbatch(600.0, gpus_per_node=8)
    await world.go_on(3)
    (taken,) = world.nodes(blocker)
    key = await stopped(world, key, RelocationConstraint(only=frozenset({taken})))
    world.slurm.node_drain(taken)
    await world.go_on(10)
    assert world.phase(key) is Phase.RUNNING
    assert taken not in world.nodes(key)


@pytest.mark.parametrize(
    ("asked", "gpus", "held", "tasks"),
    [
        (sbatch_request(gpus_per_node=2, nodes=2, ntasks_per_node=2), 2, [2], 2),
        (sbatch_request(gpus_per_node=2, nodes=2, ntasks_per_node=2), 8, [2, 2, 2, 2], 8),
        (sbatch_request(gpus=4), 16, [8, 8], 2),
        (sbatch_request(gpus_per_task=4, ntasks=2), 4, [4], 1),
        (sbatch_request(gpus_per_node=8, nodes=1, memory_mib_per_node=8000), 2, [2], 1),
    ],
)
async def test_a_resized_job_runs_in_its_new_size_until_it_is_resized_again(tmp_path, asked, gpus, held, tasks):
    world = world_of(tmp_path, "fifo-skip")
    key = world.sbatch(5000.0, request=asked, **COMES_BACK)
    await world.go_on(3)
    own = sorted(world.nodes(key).values())
    # when it is given another size
    key = await stopped(world, key, RelocationConstraint(gpus=gpus))
    assert sorted(world.nodes(key).values()) == held
    assert world.slurm.job(key.job_id).request.num_tasks == tasks
    # then policies see it in that
    row = {job.key: row for row, job in enumerate((await world.turn()).observation.rows)}[key]
    state = (await world.turn()).observation.state
    assert state.jobs.num_gpus[row] == gpus
    # and it has it after an accident, and after a restart of the controller, too
    world.restart()
    world.slurm.requeue(key.job_id)
    await world.go_on(8)
    assert sorted(world.nodes(key).values()) == held
    # and the way back is its own
    await world.go_on(1)
    key = next(iter(world.ledger.relocations))
    await stopped(world, key, RelocationConstraint(gpus=sum(own)))
    assert sorted(world.nodes(key).values()) == own
    assert world.slurm.job(key.job_id).request.num_tasks == max(asked.num_tasks, len(own))
    if asked.memory_mib_per_node:
        assert world.slurm.job(key.job_id).request.memory_mib_per_node == asked.memory_mib_per_node


async def test_a_job_that_was_put_back_a_moment_ago_is_not_started_in_the_same_second(tmp_path):
    world = world_of(tmp_path, "fifo-skip")
    key = world.sbatch(5000.0, gpus_per_node=8, **COMES_BACK)
    await world.go_on(3)
    world.slurm.requeue(key.job_id)
    await world.go_on(6, step_s=0.1)
    starts = world.slurm.job(key.job_id).starts
    assert len(starts) == 2
    assert int(starts[1][0]) > world.slurm.job(key.job_id).submit_time_s


@pytest.mark.parametrize(("cause", "waits"), [(Cause.POLICY, False), (Cause.THRESHOLD, False), (Cause.OPERATOR, True)])
async def test_only_a_job_that_an_operator_has_moved_waits_for_nodes_that_others_hold(tmp_path, cause, waits):
    world = world_of(tmp_path, "fifo-skip")
    key = world.sbatch(5000.0, gpus_per_node=8, **COMES_BACK)
    blocker = world.sbatch(1e6, gpus_per_node=8, time_limit_s=2e6)
    await world.go_on(3)
    (taken,) = world.nodes(blocker)
    world.preemptions.begin(world.cycle._keeper.jobs[key], cause, "so", RelocationConstraint(only=frozenset({taken})))
    await world.go_on(2)
    world.slurm.requeue(key.job_id)
    await world.go_on(100)
    assert world.phase(key) is Phase.PENDING
    world.settings = world.settings.model_copy(update={"preemption": "off"})
    await ContentionService(world, 30.0).judge(await world.turn())
    await world.go_on(5)
    assert (world.phase(key) is Phase.PENDING) == waits
