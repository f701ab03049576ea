"""A job that saves for another one trains on when that one no longer waits."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.base.errors import JournalError
from controller.observe.slurm_order import PriorityFacts
from controller.preempt.text import end_text
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.slurm.model.shares import QosPreemption, Shares
from controller.slurm.priorities.preemption import PreemptionRules
from controller.state.preemption import Cause, EndReason, Stage
from tests.unit.controller.worlds.preempted import Preempted, preempted_world, silent
from tests.unit.policies.processes import eventually

AUTOMATIC = {"preemption": "automatic", "preemption_min_run_s": 0.0, "preemption_cooldown_s": 1.0}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because of the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


@asynccontextmanager
async def saving(folder: Path, policy: str = "srtf") -> AsyncIterator[tuple[Preempted, SlurmJob, JobKey]]:
    """A long job on the whole cluster that is asked to save for a short one, and has not saved yet."""
    async with preempted_world(folder, policy=policy, settings_changes=AUTOMATIC) as cluster:
        for agent in cluster.agents.values():
            agent.answers = silent
        long = await cluster.running(8, 4, time_limit_s=36_000.0, qos="low")
        short = submit(cluster)
        await cluster.world.go_on(2)
        assert cluster.row().stage is Stage.ASKED
        await cluster.heard("n1", "n2", "n3", "n4")
        yield cluster, long, short


def submit(cluster: Preempted, **more: Any) -> JobKey:
    return cluster.world.sbatch(30.0, gpus_per_node=8, time_limit_s=60.0, qos="high", **more)


def by_rules(cluster: Preempted) -> None:
    """Let QOS high preempt low, by Slurm's rules."""
    table = {"high": QosPreemption(frozenset({"low"})), "low": QosPreemption()}
    shares = Shares(qos={"high": 100}, preemption=table)
    rules = PreemptionRules(by_qos=True, mode="REQUEUE", qos=table, priorities=shares.qos, kill_s=5.0)
    cluster.world.knowledge.set_priorities(PriorityFacts(None, shares, rules))


def trains_on(cluster: Preempted, long: SlurmJob) -> bool:
    job = cluster.world.slurm.job(long.key.job_id)
    return job.phase is Phase.RUNNING and job.restarts == 0


@pytest.mark.parametrize("how", ["cancel", "user_hold"])
async def test_a_job_trains_on_when_the_one_that_it_saves_for_is_cancelled_or_held(folder: Path, how: str) -> None:
    async with saving(folder) as (cluster, long, short):
        # when the waiting job is cancelled or held
        getattr(cluster.world.slurm, how)(short.job_id)
        await cluster.world.go_on(2)
        # then the preemption is called off, the ranks hear of it, and the job stays
        row = cluster.row()
        assert (row.cause, row.stage, row.reason) == (Cause.POLICY, Stage.CALLED_OFF, EndReason.NOT_NEEDED)
        assert row.problem == end_text(EndReason.NOT_NEEDED)
        assert f"called off, so it stays on its nodes: {row.problem}" in cluster.events(long.key.job_id)

        async def may_go_on() -> bool:
            return all(agent.asked("go_on") for agent in cluster.agents.values())

        await eventually(may_go_on)
        await cluster.world.go_on(30)
        assert trains_on(cluster, long)


async def test_a_job_that_is_released_again_gets_the_place_after_all(folder: Path) -> None:
    async with saving(folder) as (cluster, long, short):
        cluster.world.slurm.user_hold(short.job_id)
        await cluster.world.go_on(2)
        assert cluster.row().stage is Stage.CALLED_OFF
        for agent in cluster.agents.values():
            agent.answers = agent.save
        cluster.world.slurm.user_release(short.job_id)
        for _ in range(60):  # agents answer in real time
            await cluster.world.go_on(1)
            await cluster.said()
            if cluster.world.phase(short) is Phase.RUNNING:
                break
        assert cluster.world.phase(short) is Phase.RUNNING
        assert cluster.row(2).saved_s is not None
        assert cluster.world.slurm.job(long.key.job_id).restarts == 1


async def test_a_job_goes_on_saving_while_another_one_waits_for_its_nodes(folder: Path) -> None:
    async with saving(folder) as (cluster, _, short):
        # given another short job behind the first
        other = submit(cluster)
        await cluster.world.go_on(1)
        # when the first one is cancelled, it is needed for the other
        cluster.world.slurm.cancel(short.job_id)
        await cluster.world.go_on(3)
        assert cluster.row().stage is Stage.ASKED
        # when that is cancelled too, it is not
        cluster.world.slurm.cancel(other.job_id)
        await cluster.world.go_on(2)
        assert cluster.row().stage is Stage.CALLED_OFF


async def test_a_job_that_has_been_stopped_is_placed_again(folder: Path) -> None:
    async with saving(folder) as (cluster, long, short):
        for agent in cluster.agents.values():
            agent.answers = agent.save
            agent.answer(agent.asked()[-1].id, agent.save(agent.asked()[-1]))
        await cluster.comes_to(Stage.SAVED)
        await cluster.world.cycle.errands()
        cluster.world.slurm.cancel(short.job_id)
        await cluster.runs_again(long.key.job_id)
        assert cluster.row().stage is not Stage.CALLED_OFF


async def test_a_stop_that_slurm_may_still_carry_out_is_not_called_off(folder: Path) -> None:
    async with saving(folder) as (cluster, long, short):
        for agent in cluster.agents.values():
            agent.answer(agent.asked()[-1].id, agent.save(agent.asked()[-1]))
        await cluster.comes_to(Stage.SAVED)
        cluster.world.slurm.faults.lose_reply("requeue_hold")
        await cluster.world.cycle.errands()
        cluster.world.slurm.cancel(short.job_id)
        await cluster.runs_again(long.key.job_id)
        assert cluster.world.slurm.job(long.key.job_id).restarts == 1


async def test_without_a_decision_nothing_is_called_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with saving(folder) as (cluster, _, short):
        submit(cluster, nodes=4)

        async def undecided(*_: object) -> None:
            return None

        with monkeypatch.context() as away:
            away.setattr(cluster.world.decider, "decide", undecided)
            cluster.world.slurm.cancel(short.job_id)
            await cluster.world.turn()
            assert cluster.row().stage is Stage.ASKED


async def test_a_journal_that_cannot_be_written_costs_no_cycle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with saving(folder) as (cluster, _, short):
        cluster.world.slurm.cancel(short.job_id)

        def locked(*_: object) -> bool:
            raise JournalError("database is locked")

        with monkeypatch.context() as broken:
            broken.setattr(cluster.world.preemptions, "call_off", locked)
            await cluster.world.turn()
            assert cluster.row().stage is Stage.ASKED
        await cluster.world.turn()
        assert cluster.row().stage is Stage.CALLED_OFF


async def test_what_is_under_way_at_a_restart_is_continued(folder: Path) -> None:
    async with saving(folder) as (cluster, _, short):
        cluster.world.slurm.cancel(short.job_id)
        cluster.restart()
        await cluster.world.go_on(3)
        assert cluster.row().stage is Stage.ASKED


@pytest.mark.parametrize("text", ["", "other words for the same reason"])
async def test_a_job_that_saves_by_slurms_rules_trains_on_and_may_save_again_later(
    folder: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text:  # the journal has it from a version that said it differently
        monkeypatch.setattr("controller.preempt.manager.end_text", lambda _: text)
    async with preempted_world(folder, policy="fifo", settings_changes=AUTOMATIC) as cluster:
        by_rules(cluster)
        for agent in cluster.agents.values():
            agent.answers = silent
        long = await cluster.running(8, 4, qos="low")
        first = submit(cluster)
        await cluster.world.go_on(2)
        assert (cluster.row().cause, cluster.row().stage) == (Cause.SLURM, Stage.ASKED)
        # when the job of the higher QOS is cancelled
        cluster.world.slurm.cancel(first.job_id)
        await cluster.world.go_on(2)
        # then the other one trains on
        assert cluster.row().reason is EndReason.NOT_NEEDED
        assert trains_on(cluster, long)
        # when another one comes, it is asked to save again: Slurm does not stop it before
        submit(cluster)
        await cluster.world.go_on(2)
        assert (cluster.row(2).cause, cluster.row(2).stage) == (Cause.SLURM, Stage.ASKED)
        assert trains_on(cluster, long)
