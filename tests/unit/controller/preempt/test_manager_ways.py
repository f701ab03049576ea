"""Jobs that requeue themselves on USR1, jobs that are stopped by force, and where stopped jobs go."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.admin.metrics.exporter import make_registry
from controller.preempt.attempts import stop_orders
from controller.preempt.manager import UNWATCHED_S
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.preemption import Cause, PreemptionMethod, RelocationConstraint, Stage
from protos.headway.v1 import admin_pb2 as pb
from tests.unit.controller.admin.test_service import asking, refused, served
from tests.unit.controller.cli.test_app import headway
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in
from tests.unit.controller.worlds.near_nodes import NEAR, show_near_nodes
from tests.unit.controller.worlds.preempted import Ranks, no, preempted_world, silent
from tests.unit.policies.processes import eventually


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because of the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


@pytest.fixture
def world(folder: Path) -> ControllerWorld:
    """A cluster without agents."""
    world = world_in(folder)
    world.endpoint.away = True
    return world


def job_of(world: ControllerWorld, job_id: str) -> SlurmJob:
    assert world.last is not None
    found = [job for job in world.last.observation.snapshot.jobs if job.key.job_id == job_id]
    return max(found, key=lambda job: job.key.submit_time_s)


async def declared(world: ControllerWorld, **more: Any) -> SlurmJob:
    """A running job whose user says that it comes back by itself."""
    options = {"traps": frozenset({"USR1"}), "comment": "mine headway=preemptible", "gpus_per_node": 8, **more}
    key = world.sbatch(options.pop("duration_s", 1e6), **options)
    await world.go_on(3)
    return job_of(world, key.job_id)


def row_of(world: ControllerWorld, number: int = 1) -> Any:
    return world.preemptions.find(number)


# --- by signal


async def test_a_job_that_declares_itself_preemptible_is_signalled_once_and_requeues_itself(
    world: ControllerWorld,
) -> None:
    job = await declared(world)
    row = world.preemptions.begin(job, Cause.OPERATOR, "by hand")
    assert (row.way, row.stage) == (PreemptionMethod.SIGNAL, Stage.ASKED)
    await world.go_on(5)
    assert world.slurm.job(job.key.job_id).signals == ["USR1"]
    steps = [step for step in world.journal.intents_of(job.key) if step.verb == "signal"]
    assert [step.outcome for step in steps] == ["done"]
    assert row_of(world).stage is Stage.ASKED
    # when it has saved, it requeues itself; it is not held then, so the cycle holds it
    world.slurm.requeue(job.key.job_id)
    await world.go_on(5)
    row = row_of(world)
    assert (row.stage, row.step, world.phase(job.key)) == (Stage.STARTED, None, Phase.RUNNING)
    assert row.asked_s <= row.stopped_s <= row.started_s
    assert world.slurm.job(job.key.job_id).signals == ["USR1"]


async def test_many_jobs_are_signalled_a_few_at_a_time(world: ControllerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_orders, "_SIGNALS_AT_ONCE", 2)
    jobs = [await declared(world, gpus_per_node=1) for _ in range(5)]
    for job in jobs:
        world.preemptions.begin(job, Cause.OPERATOR, "by hand")
    begun: list[int] = []
    begin = world.journal.begin

    def counted(verb: str, details: Any, time_s: float) -> Any:
        begun.extend([len(details)] if verb == "signal" else [])
        return begin(verb, details, time_s)

    monkeypatch.setattr(world.journal, "begin", counted)
    await world.go_on(5)
    assert begun == [2, 2, 1]
    assert [world.slurm.job(job.key.job_id).signals for job in jobs] == [["USR1"]] * 5


async def test_a_job_that_does_not_requeue_itself_in_time_is_left_alone(world: ControllerWorld) -> None:
    job = await declared(world)
    world.preemptions.begin(job, Cause.OPERATOR, "by hand", within_s=30.0)
    await world.go_on(33)
    row = row_of(world)
    assert (row.stage, row.problem) == (Stage.CALLED_OFF, "it did not requeue itself within 30 s of USR1")
    assert (world.phase(job.key), world.slurm.job(job.key.job_id).signals) == (Phase.RUNNING, ["USR1"])


async def test_one_that_ends_on_the_signal_instead_is_over(world: ControllerWorld) -> None:
    job = await declared(world, traps=frozenset())
    world.preemptions.begin(job, Cause.OPERATOR, "by hand")
    await world.go_on(5)
    row = row_of(world)
    assert row.stage is Stage.OVER
    assert row.problem.startswith("the job ended instead of continuing (")


@pytest.mark.parametrize("lost", ["request", "reply"])
async def test_a_signal_that_may_have_been_lost_is_not_sent_twice(world: ControllerWorld, lost: str) -> None:
    job = await declared(world)
    getattr(world.slurm.faults, f"lose_{lost}")("signal")
    world.preemptions.begin(job, Cause.OPERATOR, "by hand", within_s=30.0)
    await world.go_on(20)
    assert world.slurm.job(job.key.job_id).signals == (["USR1"] if lost == "reply" else [])
    await world.go_on(13)
    row = row_of(world)
    assert row.stage is Stage.CALLED_OFF
    assert row.problem.startswith("it did not requeue itself within 30 s of USR1 (the embedded slurmctld ")


async def test_a_signal_that_slurm_refuses_calls_the_preemption_off(world: ControllerWorld) -> None:
    job = await declared(world)
    world.slurm.faults.refuse_next("signal", "Access/permission denied")
    world.preemptions.begin(job, Cause.OPERATOR, "by hand")
    await world.go_on(2)
    row = row_of(world)
    assert (row.stage, row.problem) == (Stage.CALLED_OFF, "Slurm refused to stop it: Access/permission denied")


# --- by force


async def test_force_stops_a_job_that_did_not_save_in_time_and_reports_the_lost_work(folder: Path) -> None:
    async with preempted_world(folder) as cluster, asking(folder / "admin.sock") as admin:
        world = cluster.world
        job = await cluster.running()
        await cluster.train(job.key, saved_step=17)
        cluster.agents["n2"].answers = silent
        await admin.Preempt(pb.PreemptRequest(job_id=job.key.job_id, within_s=10, force=True))
        await cluster.heard("n1", "n2")
        await world.go_on(9)
        assert cluster.row().stage is Stage.ASKED
        again = await cluster.runs_again(job.key.job_id)
        row = cluster.row()
        assert (again.restarts, row.stage, row.step, row.saved_s) == (1, Stage.STARTED, 17, None)
        assert row.problem == (
            "it did not save within 10 s: the agents of n2 have not answered; stopped by force: all work after step 17 is lost"
        )


async def test_force_lets_a_save_that_fails_be_tried_again_until_the_deadline(folder: Path) -> None:
    async with preempted_world(folder) as cluster, asking(folder / "admin.sock") as admin:
        world = cluster.world
        job = await cluster.running()
        cluster.agents["n2"].answers = lambda _: no("rank 5: could not write: disk full")
        await admin.Preempt(pb.PreemptRequest(job_id=job.key.job_id, force=True))
        await cluster.heard("n1", "n2")
        assert cluster.row().stage is Stage.ASKED
        cluster.agents["n2"].answers = cluster.agents["n2"].save
        await world.go_on(2)
        row = await cluster.comes_to(Stage.SAVED)
        assert (row.attempt, row.step) == (2, 41)


async def test_a_job_that_is_not_preemptible_is_stopped_only_by_force_and_at_once(world: ControllerWorld) -> None:
    async with served(world) as (admin, _):
        key = world.sbatch(1e6, gpus_per_node=8)
        await world.go_on(3)
        code, _ = await refused(admin.Preempt(pb.PreemptRequest(job_id=key.job_id)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        record = await admin.Preempt(pb.PreemptRequest(job_id=key.job_id, force=True))
        assert record.way == "none"
        assert record.problem == (
            "by force, although it cannot continue after a stop: the agent of n1 is not connected, so it is not known "
            "whether it saves, and its comment does not contain headway=preemptible: all work that it has not saved itself is lost"
        )
        await world.go_on(5)
        assert world.slurm.job(key.job_id).restarts == 1
        assert row_of(world).stage is Stage.STARTED


@pytest.mark.parametrize("force", [False, True])
async def test_what_slurm_would_not_start_again_is_never_stopped(world: ControllerWorld, force: bool) -> None:
    async with served(world) as (admin, _):
        cases = {
            "was submitted with --no-requeue: Slurm would not start it again": world.sbatch(1e6, requeue=False),
            "is suspended; `scontrol resume` lets it continue": world.sbatch(1e6),
            "does not run": world.sbatch(1e6, hold=True),
            "is not among the jobs that Headway schedules": world.sbatch(1e6, batch=False),
            "has ended (COMPLETED)": world.sbatch(1.0),
        }
        await world.go_on(4)
        world.slurm.suspend(list(cases.values())[1].job_id)
        await world.turn()
        for why, key in cases.items():
            code, text = await refused(admin.Preempt(pb.PreemptRequest(job_id=key.job_id, force=force)))
            assert (code, text) == (grpc.StatusCode.FAILED_PRECONDITION, f"job {key.job_id} {why}")
        code, _ = await refused(admin.Preempt(pb.PreemptRequest(job_id="999", force=force)))
        assert code is grpc.StatusCode.NOT_FOUND
        assert world.preemptions.newest(10) == []


# --- where it goes


async def test_a_moved_job_runs_on_other_nodes_and_may_return_later(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        job = await cluster.running()
        where = ("--config", str(write_config(folder)))
        moved = await headway("move", job.key.job_id, "--json", *where)
        assert moved.code == 0, moved.err
        assert (moved.json["avoid"], moved.json["only"]) == (["n1", "n2"], [])
        await cluster.comes_to(Stage.SAVED)
        again = await cluster.runs_again(job.key.job_id)
        assert [share.node for share in again.allocated] == ["n3", "n4"]
        await cluster.train(again.key, restored_step=41, first_step_s=0.0)
        await cluster.comes_to(Stage.RESUMED)
        to = await headway("move", job.key.job_id, "--to", "n2,n4", *where)
        assert f"Preemption 2 of job {job.key.job_id}: asked to save, within 60 s" in to.out
        await cluster.comes_to(Stage.SAVED, 2)
        again = await cluster.runs_again(job.key.job_id, restarts=2)
        assert [share.node for share in again.allocated] == ["n2", "n4"]
        wrong = await headway("move", job.key.job_id, "--to", "n9", *where)
        assert (wrong.code, "no managed node is called n9" in wrong.err) == (2, True)
        small = await headway("move", job.key.job_id, "--to", "n1", *where)
        assert (small.code, "would not fit on the remaining nodes" in small.err) == (2, True)
        both = await headway("move", job.key.job_id, "--to", "n1", "--off", "n1,n2", *where)
        assert (both.code, "n1: a node cannot be both required and avoided" in both.err) == (2, True)


async def test_a_job_that_only_slurm_can_place_is_neither_moved_nor_resized(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_near_nodes(monkeypatch)
    async with preempted_world(folder) as cluster:
        job = await cluster.running(gpus_per_node=4, nodes=2, name=NEAR)
        where = ("--config", str(write_config(folder)))
        for order in (["move"], ["move", "--off", "n1"], ["move", "--to", "n3,n4"], ["resize", "--gpus", "4"]):
            found = await headway(order[0], job.key.job_id, *order[1:], *where)
            assert (found.code, "can only be stopped: after that Slurm places it" in found.err) == (2, True), order
        assert (await headway("preempt", job.key.job_id, *where)).code == 0


async def test_a_resized_job_continues_with_its_new_size(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        job = await cluster.running(gpus_per_node=4, nodes=2)
        where = ("--config", str(write_config(folder)))
        wrong = await headway("resize", job.key.job_id, "--gpus", "7", *where)
        assert wrong.code == 1
        assert "7 GPUs do not fit its request for 4 on each node" in wrong.err
        assert (await headway("resize", job.key.job_id, "--gpus", "4", *where)).code == 0
        await cluster.comes_to(Stage.SAVED)
        again = await cluster.runs_again(job.key.job_id)
        assert sum(share.gpus for share in again.allocated) == 4


def write_config(folder: Path) -> Path:
    path = folder / "controller.toml"
    path.write_text(f'partitions = ["dl"]\nruntime_dir = "{folder}"\n')
    return path


async def test_tasks_of_arrays_are_preempted_by_their_own_numbers(folder: Path) -> None:
    async with preempted_world(folder) as cluster, asking(folder / "admin.sock") as admin:
        world = cluster.world
        key = world.sbatch(1e6, gpus_per_node=8, array=(0, 1))
        await world.go_on(5)
        name = f"{key.job_id.split('_')[0]}_1"
        job = cluster.slurm_job(name)
        await cluster.train(job.key)
        record = await admin.Preempt(pb.PreemptRequest(job_id=name))
        assert record.job_id == name
        await cluster.comes_to(Stage.SAVED)
        again = await cluster.runs_again(name)
        await cluster.train(again.key, restored_step=41, first_step_s=0.0)
        await cluster.comes_to(Stage.RESUMED)
        assert world.slurm.job(f"{key.job_id.split('_')[0]}_0").restarts == 0


# --- messages


async def test_status_why_and_prometheus_show_the_preemption(folder: Path) -> None:
    async with preempted_world(folder) as cluster, asking(folder / "status.sock") as status:
        world = cluster.world
        registry = make_registry(world)
        budget = world.settings.preemption_budget_per_hour
        assert registry.get_sample_value("headway_preemption_budget_left") == budget
        job = await cluster.running()
        world.preemptions.begin(
            job, Cause.THRESHOLD, "twice as slow as alone", RelocationConstraint(avoid=frozenset({"n1"}))
        )
        await cluster.comes_to(Stage.SAVED)
        assert (await status.GetStatus(pb.GetStatusRequest())).preemptions_open == 1
        why = await status.Why(pb.WhyRequest(job_id=job.key.job_id))
        assert why.sentence.endswith(
            "It is being preempted by the contention threshold (twice as slow as alone): saved at step 41, about to be requeued. "
            "It has made 5 steps."
        )
        assert why.facts["preemptible"].startswith("no: is being preempted already")
        assert "preemptions  1 under way" in (await headway("status", "--config", str(write_config(folder)))).out
        again = await cluster.runs_again(job.key.job_id)
        await cluster.train(again.key, restored_step=41, first_step_s=0.0)
        await cluster.comes_to(Stage.RESUMED)
        ended = {"cause": "threshold", "end": "resumed"}
        assert registry.get_sample_value("headway_preemptions_total", ended) == 1
        assert registry.get_sample_value("headway_preemptions_total", {"cause": "operator", "end": "called_off"}) == 0
        assert registry.get_sample_value("headway_preemptions_open") == 0
        for reading in (registry, make_registry(world)):  # the other is that of a controller that has started again
            assert reading.get_sample_value("headway_preemption_budget") == budget
            assert reading.get_sample_value("headway_preemption_budget_left") == budget - 1
        for part in ("save", "stop", "place", "resume", "whole"):
            assert registry.get_sample_value("headway_preemption_seconds_count", {"part": part}) == 1
        world.slurm.cancel(job.key.job_id)
        await world.go_on(3)
        why = await status.Why(pb.WhyRequest(job_id=job.key.job_id))
        assert "It was preempted" in why.sentence
        assert "continued at step 41" in why.sentence


async def test_a_preemption_that_is_called_off_ends_the_waiting_command_with_an_exit_code(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        job = await cluster.running()
        cluster.agents["n1"].answers = lambda _: no("rank 0: could not write: [bold]disk[/] full")
        where = ("--config", str(write_config(folder)))
        ran = await headway("preempt", job.key.job_id, "--wait", "--within", "30", *where)
        assert (ran.code, ran.err) == (1, "")
        assert ran.out.splitlines() == [
            f"Preemption 1 of job {job.key.job_id}: asked to save, within 30 s",
            f"Preemption 1 of job {job.key.job_id}: called off: n1: rank 0: could not write: [bold]disk[/] full; the job stays "
            "on its nodes",
        ]
        listed = await headway("preemptions", *where)
        assert "called off" in listed.out
        assert "[bold]disk[/] full" in listed.out
        for within in ("0", "4000", "nan"):
            wrong = await headway("preempt", job.key.job_id, "--within", within, *where)
            assert (wrong.code, "time limit for the save; give 1 to 3570" in wrong.err) == (2, True)


def ends(world: ControllerWorld, job_id: str, verdict: str) -> None:
    """The job's processes end by themselves."""
    job = world.slurm.job(job_id)
    world.slurm._ctld._tasks_ended(job, job.run, verdict)


@pytest.mark.parametrize("verdict", ["FAILED", "TIMEOUT"])
async def test_a_job_that_fails_after_its_start_is_a_failure_for_the_one_that_waits(folder: Path, verdict: str) -> None:
    async with preempted_world(folder) as cluster:
        job = await cluster.running()
        waits = asyncio.create_task(headway("move", job.key.job_id, "--wait", "--config", str(write_config(folder))))

        async def begun() -> bool:
            return cluster.world.preemptions.find(1) is not None

        await eventually(begun)
        await cluster.comes_to(Stage.SAVED)
        again = await cluster.runs_again(job.key.job_id)
        ends(cluster.world, again.key.job_id, verdict)
        await cluster.world.go_on(5)
        row = cluster.row()
        assert (row.stage, row.open) == (Stage.OVER, False)
        assert row.problem == f"the job was started again and ended ({verdict}) before its first step"
        ran = await waits
        assert (ran.code, row.problem in ran.err, "scontrol show job" in ran.err) == (1, True, True)


async def test_a_job_that_completes_before_its_first_report_had_resumed(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await cluster.running()
        world.preemptions.begin(job, Cause.OPERATOR, "by hand")
        await cluster.comes_to(Stage.SAVED)
        again = await cluster.runs_again(job.key.job_id)
        ends(world, again.key.job_id, "COMPLETED")
        await world.go_on(5)
        assert (cluster.row().stage, cluster.row().problem) == (
            Stage.STARTED,
            "the job ended (COMPLETED) before a step was reported",
        )


async def test_without_an_agent_that_reports_steps_a_minute_suffices(world: ControllerWorld) -> None:
    job = await declared(world)
    world.preemptions.begin(job, Cause.OPERATOR, "by hand")
    await world.go_on(3)
    world.slurm.requeue(job.key.job_id)
    await world.go_on(30)
    assert (row_of(world).stage, row_of(world).open) == (Stage.STARTED, True)
    await world.go_on(UNWATCHED_S)
    row = row_of(world)
    assert (row.stage, row.open) == (Stage.STARTED, False)
    assert row.problem == "it has run for 60 s; no agent on its nodes reports its steps"


async def test_a_user_who_may_not_see_jobs_does_not_see_preemptions(world: ControllerWorld) -> None:
    world.preemptions.begin(await declared(world), Cause.OPERATOR, "by hand")
    async with served(world) as (admin, status):
        world.slurm_says(PrivateData="jobs")
        assert len((await admin.ListPreemptions(pb.ListPreemptionsRequest())).preemptions) == 1
        assert not (await status.ListPreemptions(pb.ListPreemptionsRequest())).preemptions
        assert not (await status.ListPreemptions(pb.ListPreemptionsRequest(number=1))).preemptions


async def test_why_shows_how_a_job_could_continue(folder: Path) -> None:
    async with preempted_world(folder) as cluster, asking(folder / "status.sock") as status:
        job = await cluster.running()
        facts = (await status.Why(pb.WhyRequest(job_id=job.key.job_id))).facts
        assert facts["preemptible"] == "checkpoint"
        for node, ranks in (("n1", (0, 1, 2)), ("n2", (4, 5, 6, 7))):
            cluster.agents[node].trains(
                Ranks(job.raw_id or 0, tuple(range(4)) if node == "n1" else ranks, 8, saving=ranks)
            )
        await cluster.said()
        facts = (await status.Why(pb.WhyRequest(job_id=job.key.job_id))).facts
        assert facts["preemptible"] == (
            "no: cannot continue after a stop: rank 3 of 8 has not called headway_job.checkpoint, and its comment does not "
            "contain headway=preemptible"
        )
