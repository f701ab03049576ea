"""Jobs that make room together, beside an embedded Slurm: all of them are stopped, or none."""

from __future__ import annotations

import pytest

from controller.base.errors import PreemptionRefusedError
from controller.cycle.decision.policy_stops import PolicyStops
from controller.preempt.preemptibility import Preemptibility
from controller.slurm.model.job import Phase
from controller.state.preemption import Cause, PreemptionMethod, Stage
from policies.api import Decision, PolicySpec
from policies.model import Placement
from policies.selection import present_placements
from tests.unit.controller.cycle.decision.test_policy_stops import COMES_BACK, signals, world_of
from tests.unit.controller.examples.slowed import preemption

LONG = {"time_limit_s": 360_000.0, **COMES_BACK}


async def full(world, *, number=4, gpus=8):
    """Long jobs that run and can come back, as many as given."""
    keys = [world.sbatch(50_000.0, gpus_per_node=gpus, **LONG) for _ in range(number)]
    await world.go_on(8)
    assert {world.phase(key) for key in keys} == {Phase.RUNNING}
    return keys


def stopped_by_policy(world):
    """Jobs that a policy has had stopped so far, the first first."""
    return [row.job_id for row in world.preemptions.since(0.0) if row.cause is Cause.POLICY]


def events_with(world, key, words):
    return [event.text for event in world.events.recent(key.job_id) if words in event.text]


async def all_save(world):
    """Every job that was asked saves, and requeues itself."""
    for raw_id, row in world.preemptions.open.items():
        if row.stage is Stage.ASKED:
            world.slurm.requeue(str(raw_id))
    await world.go_on(15)


# --- one group


async def test_no_job_is_stopped_where_the_budget_is_never_enough_for_all_and_this_is_reported_once(tmp_path):
    # given four jobs on four nodes, of which two may be stopped within an hour
    world = world_of(tmp_path, preemption_budget_per_hour=2)
    long = await full(world)
    # when a short one comes that needs all of them gone
    short = world.sbatch(300.0, gpus_per_node=8, nodes=4, time_limit_s=600.0)
    await world.go_on(120)
    # then they stay, and it says what to do
    assert stopped_by_policy(world) == []
    assert {world.phase(key) for key in long} == {Phase.RUNNING}
    assert events_with(world, short, "budget") == [
        "fallback:srtf would stop 4 jobs for it, all or none, and preemption_budget_per_hour is 2: they are never stopped; "
        "raise it to 4 or more to allow it"
    ]
    # when that is done
    world.settings = world.settings.model_copy(update={"preemption_budget_per_hour": 4})
    await world.go_on(40)
    # then they are stopped
    assert sorted(stopped_by_policy(world)) == sorted(key.job_id for key in long)


async def test_all_jobs_of_a_group_are_stopped_if_the_budget_suffices_and_continue_later(tmp_path):
    world = world_of(tmp_path, preemption_budget_per_hour=4)
    long = await full(world)
    short = world.sbatch(60.0, gpus_per_node=8, nodes=4, time_limit_s=600.0)
    await world.go_on(5)
    assert [signals(world, key) for key in long] == [["USR1"]] * 4
    await all_save(world)
    assert world.phase(short) is Phase.RUNNING
    await world.go_on(90)
    assert world.slurm.job(short.job_id).state == "COMPLETED"
    assert [(world.phase(key), world.slurm.job(key.job_id).restarts) for key in long] == [(Phase.RUNNING, 1)] * 4
    assert events_with(world, short, "budget") == []


async def test_nodes_are_not_kept_free_for_a_job_that_waits_for_more_than_the_budget_allows(tmp_path):
    # given three jobs on four nodes, a short job that needs all nodes, and another one that needs the free one
    world = world_of(tmp_path, preemption_budget_per_hour=2)
    await full(world, number=3)
    short = world.sbatch(300.0, gpus_per_node=8, nodes=4, time_limit_s=600.0)
    beside = world.sbatch(1000.0, gpus_per_node=8, time_limit_s=2000.0)
    await world.go_on(6)
    # then it is used, after one more look
    assert (world.phase(beside), world.phase(short), stopped_by_policy(world)) == (Phase.RUNNING, Phase.PENDING, [])
    # and a job that needs a single node gets it, though the other goes on waiting
    last = world.sbatch(50.0, gpus_per_node=8, time_limit_s=60.0)
    await world.go_on(40)
    assert len(stopped_by_policy(world)) == 1
    await all_save(world)
    assert (world.phase(last), world.phase(short)) == (Phase.RUNNING, Phase.PENDING)


async def test_jobs_that_are_being_stopped_need_no_budget(tmp_path):
    # given that an operator has stopped one of four
    world = world_of(tmp_path, preemption_budget_per_hour=3)
    long = await full(world)
    world.preemptions.begin(world.cycle._keeper.jobs[long[1]], Cause.OPERATOR, "by hand")
    # when all have to go
    short = world.sbatch(300.0, gpus_per_node=8, nodes=4, time_limit_s=600.0)
    await world.go_on(5)
    # then the budget does for the others
    assert stopped_by_policy(world) == [long[0].job_id, long[2].job_id, long[3].job_id]
    await all_save(world)
    assert world.phase(short) is Phase.RUNNING


async def test_a_job_that_does_not_save_is_called_off_and_no_other_is_stopped_in_its_place(tmp_path):
    # given that three of four that were asked have saved, and gone
    world = world_of(tmp_path, preemption_budget_per_hour=20)
    long = await full(world)
    short = world.sbatch(300.0, gpus_per_node=8, nodes=4, time_limit_s=600.0)
    await world.go_on(5)
    for key in long[1:]:
        world.slurm.requeue(key.job_id)
    # when the last lets its time pass
    await world.go_on(80)
    assert world.phase(long[0]) is Phase.RUNNING
    assert next(row.stage for row in world.preemptions.since(0.0)) is Stage.CALLED_OFF
    # then the others come back to their nodes, and are left alone while that one rests
    await world.go_on(60)
    assert ({world.phase(key) for key in long}, world.phase(short)) == ({Phase.RUNNING}, Phase.PENDING)
    assert len(stopped_by_policy(world)) == 4


# --- several groups


async def test_small_groups_do_not_spend_what_a_larger_one_before_them_waits_for(tmp_path):
    # given eight jobs on four nodes, of which three may be stopped within an hour
    world = world_of(tmp_path, preemption_budget_per_hour=3, preemption_cooldown_s=0.0)
    await full(world, number=8, gpus=4)
    # when two jobs come for which two have to go, and one for which one has
    first = world.sbatch(20_000.0, gpus_per_node=8, time_limit_s=100_000.0)
    second = world.sbatch(20_000.0, gpus_per_node=8, time_limit_s=200_000.0)
    third = world.sbatch(20_000.0, gpus_per_node=4, time_limit_s=300_000.0)
    await world.go_on(10)
    # then the first gets its room, and the last does not take what is left
    await all_save(world)
    await world.go_on(600, 50.0)
    assert len(stopped_by_policy(world)) == 2
    assert [world.phase(key) for key in (first, second, third)] == [Phase.RUNNING, Phase.PENDING, Phase.PENDING]
    assert events_with(world, second, "budget") == [
        "fallback:srtf would stop 2 jobs for it, all or none, and 1 more may be stopped within this hour "
        "(preemption_budget_per_hour is 3)"
    ]
    # and when the hour is over, both get theirs
    began_s = world.clock.now()
    while len(stopped_by_policy(world)) < 5:
        assert world.clock.now() < began_s + 3600
        await world.go_on(50, 50.0)
    await all_save(world)
    await world.go_on(60)
    assert [world.phase(key) for key in (first, second, third)] == [Phase.RUNNING] * 3
    assert len(stopped_by_policy(world)) == 5


@pytest.mark.parametrize(("budget", "spent", "waits"), [(1, 0, False), (2, 1, True)])
async def test_a_later_job_waits_only_behind_jobs_for_which_the_budget_is_enough(tmp_path, budget, spent, waits):
    # given a job that needs two gone, when one may be: now, or in any hour
    world = world_of(tmp_path, Chooser({4: (0, 1), 5: (2,)}), preemption_budget_per_hour=budget)
    long = await full(world)
    for _ in range(spent):
        world.journal.preemptions.add(preemption(1, 999, world.clock.now() - 60, cause=Cause.THRESHOLD))
    large = world.sbatch(300.0, gpus_per_node=8, nodes=2)
    await world.go_on(5)
    assert len(events_with(world, large, "would stop 2 jobs for it")) == 1
    # when a small one comes behind it, for which that would do
    small = world.sbatch(300.0, gpus_per_node=8)
    await world.go_on(5)
    # then it is served at once, unless the first one's turn comes yet
    assert stopped_by_policy(world) == ([] if waits else [long[2].job_id])
    await world.go_on(50)
    assert len(stopped_by_policy(world)) == (0 if waits else 1)
    assert events_with(world, small, "would stop") == []


async def test_after_jobs_were_withheld_the_queue_is_read_again_soon(tmp_path):
    world = world_of(tmp_path, preemption_budget_per_hour=2)
    await full(world)
    await world.go_on(10)
    world.sbatch(300.0, gpus_per_node=8, nodes=4, time_limit_s=600.0)
    assert [(await world.turn()).in_transit for _ in range(3)] == [True, False, False]


class Chooser:
    """Gives the jobs of these rows these nodes, whole, and stops the jobs that are there; of the others, each takes a free node."""

    spec = PolicySpec(name="chooser", source="tests", preempts=True)

    def __init__(self, wanted):
        self.wanted = wanted

    def decide(self, state):
        allocation = present_placements(state, state.running)
        wanted = {row: nodes for row, nodes in self.wanted.items() if row in state.pending}
        for row in [row for row in state.pending.tolist() if row not in self.wanted]:
            free = set(range(len(state.nodes))) - {node for place in allocation.values() for node in place.nodes}
            if free:
                allocation[row] = Placement((min(free),), (8,))
        for row, nodes in wanted.items():
            there = [other for other, place in allocation.items() if set(place.nodes) & set(nodes)]
            if all(state.jobs.preemptible[other] for other in there):
                allocation = {other: place for other, place in allocation.items() if other not in there}
                allocation[row] = Placement(nodes, (8,) * len(nodes))
        return Decision(allocation)


@pytest.mark.parametrize(("budget", "number"), [(1, 0), (2, 2)])
async def test_jobs_that_change_places_do_so_both_or_stay(tmp_path, budget, number):
    world = world_of(tmp_path, Swapper(), preemption_budget_per_hour=budget)
    one, other = await full(world, number=2)
    world.sbatch(300.0, gpus_per_node=8, nodes=4)  # it waits: a policy is asked only when somebody does
    await world.go_on(5)
    assert stopped_by_policy(world) == [one.job_id, other.job_id][:number]
    words = "would stop 2 jobs together with it, all or none, and preemption_budget_per_hour is 1"
    assert len(events_with(world, one, words)) == (number == 0)


class Swapper:
    """Wants the first two running jobs in each other's place."""

    spec = PolicySpec(name="swapper", source="tests", preempts=True)

    def decide(self, state):
        allocation = present_placements(state, state.running)
        rows = [row for row in allocation if state.jobs.preemptible[row]]
        if len(rows) == 2:
            one, other = rows
            allocation[one], allocation[other] = allocation[other], allocation[one]
        if not len(state.running):
            allocation |= {row: Placement((row,), (8,)) for row in state.pending.tolist()}
        return Decision(allocation)


# --- a group of which one may not be stopped


async def decided(world, monkeypatch):
    """Returns what begins the stops of a plan that stops four jobs, with none of them begun."""
    calls = []
    monkeypatch.setattr(PolicyStops, "begin", lambda _, *given: calls.append(given))
    await full(world)
    world.sbatch(300.0, gpus_per_node=8, nodes=4, time_limit_s=600.0)
    await world.go_on(3)
    monkeypatch.undo()
    assert [len(group.rows) for group in calls[-1][0].groups] == [4]
    return lambda: world.cycle._stops.begin(*calls[-1])


def cannot_come_back(world, monkeypatch):
    was = world.preemptions.preemptibility
    monkeypatch.setattr(
        world.preemptions,
        "preemptibility",
        lambda job: Preemptibility(PreemptionMethod.NONE, "cannot come back") if job.key.job_id == "3" else was(job),
    )


def rests(world, _):
    world.journal.preemptions.add(preemption(1, 3, world.clock.now() - 60))


def moved_often(world, _):
    for ago_s in (3000.0, 2000.0):
        world.journal.preemptions.add(preemption(1, 3, world.clock.now() - ago_s))


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (cannot_come_back, "it cannot come back"),
        (rests, "it was preempted recently, and is not preempted again for another 9 min"),
        (moved_often, "it was preempted 2 times within an hour (preemption_moves_per_hour is 2)"),
    ],
)
async def test_where_one_may_not_be_stopped_none_of_its_group_is(tmp_path, monkeypatch, happens, why):
    world = world_of(tmp_path)
    begin = await decided(world, monkeypatch)
    happens(world, monkeypatch)
    for _ in range(3):
        begin()
    assert stopped_by_policy(world) == []
    assert events_with(
        world, next(key for key in world.cycle._keeper.jobs if key.job_id == "3"), "stays on its nodes"
    ) == [
        f"stays on its nodes, although fallback:srtf would stop it: {why}; so 3 other jobs of its group are not stopped either"
    ]
    assert not [event for event in world.events.recent() if event.kind == "preempt" and event.job_id != "3"]


async def test_after_a_late_refusal_no_further_job_of_the_group_gets_a_request_to_save(tmp_path, monkeypatch):
    world = world_of(tmp_path)
    begin = await decided(world, monkeypatch)
    was = world.preemptions.begin

    def refuse(job, *more):
        if job.key.job_id == "2":
            raise PreemptionRefusedError("2", "is in a bad mood")
        return was(job, *more)

    monkeypatch.setattr(world.preemptions, "begin", refuse)
    begin()
    assert stopped_by_policy(world) == ["1"]


async def test_a_job_that_rests_has_the_policy_leave_all_of_its_group(tmp_path):
    world = world_of(tmp_path)
    long = await full(world)
    world.journal.preemptions.add(preemption(1, int(long[2].job_id), world.clock.now() - 60, cause=Cause.OPERATOR))
    short = world.sbatch(300.0, gpus_per_node=8, nodes=4, time_limit_s=600.0)
    await world.go_on(30)
    assert (stopped_by_policy(world), world.phase(short)) == ([], Phase.PENDING)
