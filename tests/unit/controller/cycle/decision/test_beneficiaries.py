"""Jobs that are stopped in vain, beside an embedded Slurm: for a job that Slurm refuses, again and again."""

from __future__ import annotations

from asyncio import run
from dataclasses import replace

import pytest

from controller.base.clock import VirtualClock
from controller.cycle.decision.beneficiaries import MOST_TIMES, Beneficiaries
from controller.cycle.refusals import retry_now
from controller.slurm.embedded import ClusterDescription, GpuLimit
from controller.slurm.model.job import JobKey, Phase
from controller.state.ledger import NOT_BOOTED, Ledger, Refusal
from tests.unit.controller.cycle.decision.test_policy_stops import COMES_BACK, long_one, signals
from tests.unit.controller.examples.build import job
from tests.unit.controller.worlds.world import World

SETTINGS = {
    "preemption": "automatic", "preemption_min_run_s": 0.0, "preemption_cooldown_s": 30.0, "preemption_moves_per_hour": 100,
    "preemption_budget_per_hour": 100,
}  # fmt: skip


def limited(gpus):
    return ClusterDescription(limits=(GpuLimit(user="alice", gpus=gpus, reason="AssocGrpGRES"),))


class Stopped:
    """Saves and requeues each job that is asked to, and counts."""

    def __init__(self, world):
        self.world = world
        self.seen = {}

    async def go_on(self, seconds):
        for _ in range(int(seconds / 10)):
            await self.world.go_on(10, 5.0)
            for raw_id in list(self.world.preemptions.open):
                name = str(raw_id)
                asked = len(self.world.slurm.job(name).signals)
                if asked > self.seen.get(name, 0) and self.world.slurm.job(name).phase is Phase.RUNNING:
                    self.seen[name] = asked
                    self.world.slurm.requeue(name)

    async def until_completed(self, key, most_s):
        """Go on until the job has completed; it must within that time."""
        for _ in range(int(most_s / 10)):
            if self.world.slurm.job(key.job_id).state == "COMPLETED":
                return
            await self.go_on(10)
        raise AssertionError(f"{self.world.slurm.job(key.job_id).state} after {most_s} s")

    @property
    def number(self):
        return len(self.world.preemptions.since(0.0))


def said(world, key, words):
    return [event.text for event in world.events.recent(key.job_id) if words in event.text]


# --- refused for a limit


async def test_for_a_job_above_its_users_limit_others_are_stopped_once(tmp_path):
    # given a long job on all nodes, and a short one of a user with a lower limit
    world = World(tmp_path, limited(8), policy="srtf", settings_changes=SETTINGS)
    long, stopped = await long_one(world, user="bob"), Stopped(world)
    short = world.sbatch(30.0, gpus_per_node=8, nodes=2, time_limit_s=60.0, user="alice")
    # when it goes on waiting for more than an hour
    await stopped.go_on(4500)
    # then the long one was stopped for it once, and runs, and an event says why no more
    assert (stopped.number, world.phase(long), world.phase(short)) == (1, Phase.RUNNING, Phase.PENDING)
    assert said(world, short, "would stop") == [
        "fallback:srtf would stop 1 job for it, but Slurm refused it (AssocGrpGRES), so none is stopped for it before a job ends "
        "that may lift the limit"
    ]


async def test_after_an_end_that_may_lift_the_limit_jobs_are_stopped_for_it(tmp_path):
    # given a user below the limit, with a job that would exceed it
    world = World(tmp_path, limited(16), policy="srtf", settings_changes=SETTINGS)
    first = world.sbatch(2000.0, gpus_per_node=8, time_limit_s=36_000.0, user="alice")
    await world.go_on(5)
    second = world.sbatch(30.0, gpus_per_node=8, nodes=2, time_limit_s=60.0, user="alice")
    await world.go_on(20)
    assert (world.phase(first), world.phase(second)) == (Phase.RUNNING, Phase.PENDING)
    long = world.sbatch(50_000.0, gpus_per_node=8, nodes=3, time_limit_s=360_000.0, user="bob", **COMES_BACK)
    stopped = Stopped(world)
    await stopped.go_on(1200)
    assert (world.phase(long), stopped.number) == (Phase.RUNNING, 0)
    # when the first ends, which frees too little room
    # then a job is stopped for the second, which runs
    await stopped.until_completed(second, 1500)
    assert stopped.number == 1


async def test_another_job_gets_the_nodes_that_a_refused_one_would_get_first(tmp_path):
    # given a job above its user's limit, which comes first
    world = World(tmp_path, limited(8), policy="srtf", settings_changes=SETTINGS)
    long, stopped = await long_one(world, user="bob"), Stopped(world)
    refused = world.sbatch(30.0, gpus_per_node=8, nodes=2, time_limit_s=60.0, user="alice")
    await stopped.go_on(900)
    assert (stopped.number, world.phase(refused)) == (1, Phase.PENDING)
    # when another one comes behind it
    other = world.sbatch(50.0, gpus_per_node=8, nodes=2, time_limit_s=600.0, user="carol")
    # then it is served
    await stopped.until_completed(other, 400)
    await stopped.go_on(60)
    assert (stopped.number, world.phase(long)) == (2, Phase.RUNNING)


def test_a_job_that_was_refused_for_a_limit_has_others_stopped_for_it_after_an_end_or_a_day():
    clock, ledger, waits = VirtualClock(), Ledger(), job("7")
    some = Beneficiaries(ledger, clock.monotonic)
    refusal = Refusal("why", clock.now(), clock.now() + 5.0, 2, slurm_reason="QOSMaxGRESPerUser")
    ledger.refusals[waits.key] = refusal
    assert "Slurm refused it (QOSMaxGRESPerUser)" in some.why_not(waits)
    # after an end it is tried once
    ledger.refusals[waits.key] = retry_now(refusal, clock.now())
    assert some.why_not(waits) == ""
    some.note(waits)
    ledger.refusals[waits.key] = replace(retry_now(refusal, clock.now()), count=3)
    assert some.why_not(waits)
    # and once a day without one
    run(clock.advance(86_000.0))
    assert some.why_not(waits)
    run(clock.advance(500.0))
    assert some.why_not(waits) == ""
    some.note(waits)
    assert some.why_not(waits)
    some.forget(())


def test_jobs_of_the_same_limit_are_passed_over_together_and_those_of_others_are_not():
    ledger = Ledger()
    some, now_s = Beneficiaries(ledger), 1000.0
    one, alike, woken, other = (job(name).key for name in "1234")
    refusal = Refusal("why", 0.0, 5.0, 1, slurm_reason="AssocGrpGRES", unfit="n1")
    ledger.refusals = {
        one: refusal, alike: replace(refusal, like="1"), woken: replace(refusal, like="1", woken=1), other: refusal
    }  # fmt: skip
    some.pass_over({alike}, now_s)
    assert {key.job_id: one.retry_at_s for key, one in ledger.refusals.items()} == {
        "1": 1300.0,
        "2": 1300.0,
        "3": 5.0,
        "4": 5.0,
    }
    assert ledger.refusals[one].unfit_nodes(now_s) == frozenset()


# --- refused for other reasons


@pytest.mark.parametrize("word", ["", "ReqNodeNotAvail, Reserved for maintenance", NOT_BOOTED])
def test_jobs_are_stopped_for_one_job_some_times_an_hour_whatever_it_is_refused_for(word):
    clock, ledger, waits = VirtualClock(), Ledger(), job("7")
    some = Beneficiaries(ledger, clock.monotonic)
    for _ in range(MOST_TIMES):
        assert some.why_not(waits) == ""
        some.note(waits)
        ledger.refusals[waits.key] = Refusal("why", clock.now(), clock.now() + 5.0, 1, slurm_reason=word)
    assert some.why_not(waits) == "jobs were stopped for it 3 times within an hour, so none is stopped for it now"
    # a requeue changes its key, not its id
    again = replace(waits, key=JobKey(waits.key.job_id, waits.key.submit_time_s + 60))
    assert some.why_not(again)
    assert some.why_not(job("8")) == ""


async def test_where_jobs_were_stopped_often_for_a_job_that_was_not_refused_the_others_are_left_alone(tmp_path):
    world = World(tmp_path, policy="srtf", settings_changes=SETTINGS)
    long, stopped = await long_one(world), Stopped(world)
    short = world.sbatch(30.0, gpus_per_node=8, nodes=2, time_limit_s=60.0)
    waits = (await world.slurm.client.snapshot()).jobs[-1]
    assert waits.key == short
    for _ in range(MOST_TIMES):
        world.cycle._stops._beneficiaries.note(waits)
    await stopped.go_on(1800)
    assert (stopped.number, signals(world, long), world.phase(short)) == (0, [], Phase.PENDING)
    assert len(said(world, short, "jobs were stopped for it 3 times within an hour")) == 1
    # and an hour after the first of these times it gets its turn
    await stopped.until_completed(short, 2000)
    assert stopped.number == 1
