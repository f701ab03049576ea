"""A job saves on request, is stopped, placed again and trains on; or it keeps its nodes, and users can read why."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.admin.metrics.metered_client import MeteredClient
from controller.admin.serve import serve_admin
from controller.agents.service import serve_agents
from controller.base.clock import RealClock
from controller.base.config import ControllerSettings
from controller.cycle.decision.decider import Decider
from controller.daemon.daemon import Controller
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.preempt.attempts.saving import STEP_WATCH_S
from controller.preempt.service import run_preemptions
from controller.slurm.embedded import EmbeddedSlurm, Submission, sbatch_request
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.journal import Journal
from controller.state.preemption import Stage
from policies.api import load_policy
from policies.serving.client import PolicyClient
from policies.serving.runtime.sdnotify import Notifier
from protos.headway.v1 import admin_pb2 as pb
from protos.headway.v1 import agent_pb2
from tests.unit.controller.admin.test_service import asking, refused
from tests.unit.controller.cli.test_app import headway
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.worlds.preempted import Preempted, Ranks, SavingAgent, no, preempted_world, silent
from tests.unit.controller.worlds.world import newest
from tests.unit.policies.processes import eventually

DEADLINE_S = 30.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because of the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


async def test_a_job_saves_on_request_is_stopped_placed_again_and_trains_on(folder: Path) -> None:
    async with preempted_world(folder) as cluster, asking(folder / "admin.sock") as admin:
        world = cluster.world
        job = await cluster.running()
        # when an operator preempts it
        record = await admin.Preempt(pb.PreemptRequest(job_id=job.key.job_id))
        assert (record.number, record.stage, record.way, list(record.nodes)) == (1, "asked", "checkpoint", ["n1", "n2"])
        # then both agents are asked, and all ranks save
        row = await cluster.comes_to(Stage.SAVED)
        assert (row.step, row.attempt) == (41, 1)
        (asked,) = cluster.agents["n1"].asked()
        assert asked.id.startswith("p1.1.")
        assert (asked.job.job_id, asked.job.restart, asked.save.still_s) == (job.raw_id, 0, 120.0)
        assert 0 < asked.save.within_s <= 60.0
        # and it is stopped without another look at the cluster
        world.slurm.faults.calls.clear()
        assert world.preemptions.wanted.is_set()
        await world.cycle.errands()
        assert [call.verb for call in world.slurm.faults.calls] == ["requeue_hold"]
        assert cluster.row().stage is Stage.STOPPED
        steps = [step for step in world.journal.intents_of(job.key) if step.verb == "requeue_hold"]
        assert [(step.detail, step.outcome) for step in steps] == [("preemption 1: by hand", "done")]
        # and it is placed again, runs, and tells of a step
        again = await cluster.runs_again(job.key.job_id)
        assert (again.restarts, cluster.row().stage) == (1, Stage.STARTED)
        assert len(world.slurm.job(job.key.job_id).starts) == 2
        await cluster.train(again.key, restored_step=41, first_step_s=0.0)
        row = await cluster.comes_to(Stage.RESUMED)
        assert world.preemptions.open == {}
        times = [row.asked_s, row.saved_s, row.stopped_s, row.started_s, row.resumed_s]
        assert times == sorted(times)  # type: ignore[type-var]
        assert row.problem == ""
        texts = cluster.events(job.key.job_id)
        assert [text.split()[0] for text in texts] == ["asked", "saved", "stopped", "runs", "trains"]
        (listed,) = (await admin.ListPreemptions(pb.ListPreemptionsRequest())).preemptions
        assert (listed.stage, listed.open, listed.step) == ("resumed", False, 41)


async def test_a_job_that_does_not_save_in_time_is_left_where_it_is(folder: Path) -> None:
    async with preempted_world(folder) as cluster, asking(folder / "admin.sock") as admin:
        world = cluster.world
        job = await cluster.running()
        cluster.agents["n2"].answers = silent
        await admin.Preempt(pb.PreemptRequest(job_id=job.key.job_id, within_s=20))
        await cluster.heard("n1", "n2")
        await world.go_on(19)
        assert cluster.row().stage is Stage.ASKED
        await world.go_on(3)
        row = cluster.row()
        assert row.stage is Stage.CALLED_OFF
        assert row.problem == "it did not save within 20 s: the agents of n2 have not answered"
        assert world.phase(job.key) is Phase.RUNNING
        assert world.slurm.job(job.key.job_id).starts[0][0] == job.start_time_s

        # and all ranks receive the order to train on
        async def is_reported() -> bool:
            return all(cluster.agents[node].asked("go_on") for node in ("n1", "n2"))

        await eventually(is_reported)
        (go_on,) = cluster.agents["n1"].asked("go_on")
        assert go_on.go_on.save_id == cluster.agents["n1"].asked()[0].id


async def test_a_job_that_is_not_preemptible_is_refused(folder: Path) -> None:
    async with preempted_world(folder) as cluster, asking(folder / "admin.sock") as admin:
        world = cluster.world
        key = world.sbatch(1e6, gpus_per_node=4, nodes=2)
        await world.go_on(3)
        code, text = await refused(admin.Preempt(pb.PreemptRequest(job_id=key.job_id)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert text == (
            f"job {key.job_id} cannot continue after a stop: no process of it has reported to the agent of its node, and its "
            "comment does not contain headway=preemptible"
        )
        async with asking(folder / "status.sock") as status:
            code, text = await refused(status.Preempt(pb.PreemptRequest(job_id=key.job_id)))
            assert code is grpc.StatusCode.PERMISSION_DENIED
        assert world.preemptions.newest(10) == []


async def test_the_controller_itself_moves_a_job_from_one_run_to_the_next(folder: Path) -> None:
    # given the daemon beside an embedded Slurm on the real clock, and an agent
    clock = RealClock()
    address = f"unix://{folder}/agents.sock"
    settings = ControllerSettings(
        partitions=("dl",), runtime_dir=folder, state_dir=folder / "state", agents_address=address
    )
    (folder / "controller.toml").write_text(f'partitions = ["dl"]\nruntime_dir = "{folder}"\n')
    slurm = EmbeddedSlurm(clock=clock)
    with closing(Journal(settings.journal_path)) as journal, closing(WakePipe(settings.wake_path)) as wake:
        decider = Decider(FakeEndpoint(away=True), load_policy("fifo"), 0.5, clock)
        controller = Controller(settings, MeteredClient(slurm.client, clock), decider, journal, clock, PolicyClient)
        async with (
            serve_admin(controller, folder, ""),
            serve_agents(controller.settings, newest(controller)) as server,
            run_preemptions(controller.preemptions, server),
            SavingAgent(address, "n1").running() as agent,
        ):
            key = slurm.submit(Submission(request=sbatch_request(gpus_per_node=8), duration_s=1000.0))
            daemon = asyncio.create_task(controller.run(wake, Notifier({})))

            async def runs() -> bool:
                last = controller.last
                return last is not None and any(job.phase is Phase.RUNNING for job in last.observation.jobs.values())

            await eventually(runs)
            agent.trains(Ranks(int(key.job_id), tuple(range(8)), 8))
            await agent.emptied()

            async def trains_again() -> None:
                async def restarted() -> bool:
                    return slurm.job(key.job_id).restarts == 1 and slurm.job(key.job_id).phase is Phase.RUNNING

                await eventually(restarted)
                agent.trains(Ranks(int(key.job_id), tuple(range(8)), 8, restart=1, restored_step=41, first_step_s=0.0))

            # when somebody preempts the job and waits
            training = asyncio.create_task(trains_again())
            where = ("--config", str(folder / "controller.toml"))
            ran = await headway("preempt", key.job_id, "--wait", *where)
            await training
            # then there is an event for each of its stages, and the job trains again
            assert (ran.code, ran.err) == (0, "")
            lines = ran.out.splitlines()
            assert lines[0] == f"Preemption 1 of job {key.job_id}: asked to save, within 60 s"
            assert lines[-1].startswith(f"Preemption 1 of job {key.job_id}: resumed at step 41, ")
            listed = await headway("preemptions", "--json", *where)
            (record,) = listed.json["preemptions"]
            assert (record["stage"], record["step"], record["open"]) == ("resumed", 41, False)
            # and from its last rank's save to its requeue the queue was not read
            verbs = [call.verb for call in slurm.faults.calls if call.time_s >= record["saved_s"]]
            assert verbs[0] == "requeue_hold"
            controller.stop()
            await asyncio.wait_for(daemon, DEADLINE_S)


# --- when it does not go well


async def preempt(folder: Path, job_id: str, **more: Any) -> pb.PreemptionRecord:
    async with asking(folder / "admin.sock") as admin:
        return await admin.Preempt(pb.PreemptRequest(job_id=job_id, **more))


async def went_on(cluster: Preempted, *nodes: str) -> None:
    """Those agents have received the order to let their ranks train on."""

    async def is_reported() -> bool:
        return all(cluster.agents[node].asked("go_on") for node in nodes)

    await eventually(is_reported)


async def saved(cluster: Preempted, folder: Path, **more: Any) -> SlurmJob:
    """A job whose ranks stand still, not stopped yet."""
    job = await cluster.running()
    await preempt(folder, job.key.job_id, **more)
    await cluster.comes_to(Stage.SAVED)
    return job


async def test_one_node_that_cannot_save_calls_the_preemption_off_at_once(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        job = await cluster.running()
        cluster.agents["n2"].answers = lambda _: no("rank 5: could not write: disk full")
        await preempt(folder, job.key.job_id)
        row = await cluster.comes_to(Stage.CALLED_OFF)
        assert row.problem == "n2: rank 5: could not write: disk full"
        await went_on(cluster, "n1", "n2")
        await cluster.world.go_on(5)
        assert cluster.world.slurm.job(job.key.job_id).restarts == 0
        async with asking(folder / "status.sock") as status:
            why = await status.Why(pb.WhyRequest(job_id=job.key.job_id))
        assert why.sentence.endswith(
            "A preemption by an operator (by hand) was called off 5 s ago: n2: rank 5: could not write: disk full. "
            "It has made 5 steps."
        )
        assert (why.facts["preemption_stage"], why.facts["preemptible"]) == ("called off", "checkpoint")


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (
            agent_pb2.SavedRanks(ranks=range(4, 8), world_size=8, step=40),
            "n1: 4 of 8 at step 41, n2: 4 of 8 at step 40",
        ),
        (
            agent_pb2.SavedRanks(ranks=range(4, 7), world_size=8, step=41),
            "n1: 4 of 8 at step 41, n2: 3 of 8 at step 41",
        ),
        (agent_pb2.SavedRanks(ranks=range(4), world_size=8, step=41), "n1: 4 of 8 at step 41, n2: 4 of 8 at step 41"),
        (
            agent_pb2.SavedRanks(ranks=range(4, 8), world_size=9, step=41),
            "n1: 4 of 8 at step 41, n2: 4 of 9 at step 41",
        ),
    ],
)
async def test_ranks_that_did_not_save_one_step_together_are_not_stopped(
    folder: Path, second: agent_pb2.SavedRanks, words: str
) -> None:
    async with preempted_world(folder, nodes=("n1", "n2")) as cluster:
        job = await cluster.running()
        cluster.agents["n2"].answers = lambda command: agent_pb2.CommandAnswer(
            accepted=True, saved=second if command.WhichOneof("what") == "save" else None
        )
        await preempt(folder, job.key.job_id)
        row = await cluster.comes_to(Stage.CALLED_OFF)
        assert row.problem == f"the ranks that saved are not all of one program ({words})"
        await went_on(cluster, "n1", "n2")


async def test_a_node_on_which_none_of_its_ranks_trains_does_not_matter(folder: Path) -> None:
    async with preempted_world(folder, nodes=("n1", "n2")) as cluster:
        job = await cluster.running()
        cluster.agents["n1"].trains(Ranks(job.raw_id or 0, tuple(range(8)), 8))
        cluster.agents["n2"].trains(Ranks(job.raw_id or 0, (), 8))
        await cluster.said()
        await preempt(folder, job.key.job_id)
        assert (await cluster.comes_to(Stage.SAVED)).step == 41


async def test_nodes_without_an_agent_are_named(folder: Path) -> None:
    async with preempted_world(folder, nodes=("n1",)) as cluster, asking(folder / "admin.sock") as admin:
        job = await cluster.running()
        cluster.agents["n1"].trains(Ranks(job.raw_id or 0, tuple(range(8)), 8))
        await cluster.said()
        code, text = await refused(admin.Preempt(pb.PreemptRequest(job_id=job.key.job_id)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert text == f"job {job.key.job_id} could save, but the agent of n2 is not connected"
        # by force it is asked all the same, and saves when the agent is back in time
        record = await preempt(folder, job.key.job_id, force=True)
        assert (record.stage, record.way) == ("asked", "checkpoint")
        await cluster.heard("n1")
        assert cluster.row().stage is Stage.ASKED
        async with SavingAgent(cluster.world.settings.agents_address, "n2").running() as late:
            late.here[job.raw_id or 0] = Ranks(job.raw_id or 0, (), 8)
            assert (await cluster.comes_to(Stage.SAVED)).step == 41
        await cluster.world.cycle.errands()
        assert cluster.row().stage is Stage.STOPPED


async def test_an_agent_that_reconnects_gets_the_request_again(folder: Path) -> None:
    async with preempted_world(folder, nodes=("n1",)) as cluster:
        world = cluster.world
        job = None
        async with SavingAgent(world.settings.agents_address, "n2").running() as second:
            await second.connected()
            cluster.agents["n2"] = second
            job = await cluster.running()
            second.answers = silent
            await preempt(folder, job.key.job_id)
            await cluster.heard("n1", "n2")
            here = dict(second.here)
        del cluster.agents["n2"]
        await world.go_on(10)
        assert cluster.row().stage is Stage.ASKED
        # when a new run of it finds its ranks again
        async with SavingAgent(world.settings.agents_address, "n2").running() as second:
            second.here = here
            row = await cluster.comes_to(Stage.SAVED)
            # then it was asked for the same save
            assert [command.id for command in second.asked()] == [cluster.agents["n1"].asked()[0].id]
            assert row.attempt == 1


async def test_an_agent_that_has_lost_its_ranks_gets_another_request(folder: Path) -> None:
    async with preempted_world(folder, nodes=("n1",)) as cluster:
        world = cluster.world
        async with SavingAgent(world.settings.agents_address, "n2").running() as second:
            await second.connected()
            cluster.agents["n2"] = second
            job = await cluster.running()
            second.answers = silent
            await preempt(folder, job.key.job_id)
            await cluster.heard("n1", "n2")
            here = dict(second.here)
        async with SavingAgent(world.settings.agents_address, "n2").running() as second:
            cluster.agents["n2"] = second
            await cluster.heard("n2")
            assert cluster.row().stage is Stage.ASKED
            second.here = here
            await world.go_on(3)
            row = await cluster.comes_to(Stage.SAVED)
            assert row.attempt == 2
            assert [command.id.rpartition(".")[0] for command in cluster.agents["n1"].asked()] == ["p1.1", "p1.2"]


@pytest.mark.parametrize("stage", ["asked", "saved"])
@pytest.mark.parametrize("how", ["cancelled", "completed"])
async def test_a_job_that_ends_meanwhile_is_over(folder: Path, stage: str, how: str) -> None:
    async with preempted_world(folder, nodes=("n1", "n2")) as cluster:
        world = cluster.world
        job = await cluster.running(duration_s=10.0)
        if stage == "asked":
            cluster.agents["n2"].answers = silent
        await preempt(folder, job.key.job_id)
        await (cluster.heard("n1", "n2") if stage == "asked" else cluster.comes_to(Stage.SAVED))
        if how == "cancelled":
            world.slurm.cancel(job.key.job_id)
            await world.clock.advance(0.01)
            await world.cycle.errands()  # it is completing: Slurm will not requeue it
            await world.clock.advance(0.2)
        else:
            await world.clock.advance(20.0)
            await world.cycle.errands()
        assert cluster.row().open
        await world.turn()
        row = cluster.row()
        assert (row.stage, row.problem) == (Stage.OVER, f"the job ended before it was stopped ({how.upper()})")
        await world.go_on(200)
        assert world.slurm.job(job.key.job_id).state == how.upper()
        assert len(world.slurm.job(job.key.job_id).starts) == 1


async def test_a_job_that_an_operator_requeues_keeps_its_constraint(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await cluster.running()
        cluster.agents["n2"].answers = silent
        await preempt(folder, job.key.job_id, avoid=["n1"])
        await cluster.heard("n1", "n2")
        world.slurm.requeue(job.key.job_id)
        again = await cluster.runs_again(job.key.job_id)
        assert "n1" not in {share.node for share in again.allocated}
        row = cluster.row()
        assert (row.stage, row.step, row.saved_s) == (Stage.STARTED, None, None)
        assert row.stopped_s is not None
        await cluster.train(again.key, first_step_s=0.0)
        assert (await cluster.comes_to(Stage.RESUMED)).problem == ""


async def away(cluster: Preempted, seconds: float) -> int:
    """slurmctld does not answer for so long, while the daemon does what it does between readings. How often it was asked."""
    world = cluster.world
    world.slurm.faults.calls.clear()
    with world.slurm.faults.unavailable():
        for _ in range(int(seconds * 2)):
            world.preemptions.tick()
            if world.preemptions.wanted.is_set():
                await world.cycle.errands()
            await world.clock.advance(0.5)
    return sum(call.verb == "requeue_hold" for call in world.slurm.faults.calls)


async def test_while_slurmctld_is_away_it_is_tried_again(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        job = await saved(cluster, folder)
        assert 4 <= await away(cluster, 30) <= 8
        assert cluster.row().stage is Stage.SAVED
        again = await cluster.runs_again(job.key.job_id)
        assert (again.restarts, cluster.row().stage) == (1, Stage.STARTED)


async def test_a_slurmctld_that_stays_away_leaves_the_job_to_train_on(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster, folder)
        await away(cluster, 114)
        assert cluster.row().stage is Stage.SAVED
        assert await away(cluster, 60) <= 1
        row = cluster.row()
        assert row.stage is Stage.CALLED_OFF
        assert row.problem == "Slurm did not stop it in time: the embedded slurmctld did not answer to requeue_hold"
        await went_on(cluster, "n1", "n2")
        await world.go_on(20)
        assert world.slurm.job(job.key.job_id).restarts == 0
        assert world.phase(job.key) is Phase.RUNNING


async def test_a_stop_whose_confirmation_is_lost_shows_in_the_next_snapshot(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster, folder, avoid=["n2"])
        world.slurm.faults.lose_reply("requeue_hold")
        await world.cycle.errands()
        assert cluster.row().stage is Stage.SAVED
        again = await cluster.runs_again(job.key.job_id)
        assert (again.restarts, cluster.row().stage) == (1, Stage.STARTED)
        assert "n2" not in {share.node for share in again.allocated}


async def test_the_queue_is_read_often_until_a_stopped_job_could_be_placed(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster, folder)
        assert world.preemptions.moving
        for node in ("n1", "n2", "n3", "n4"):
            world.slurm.node_drain(node)
        await world.go_on(10)
        assert (cluster.row().stage, world.preemptions.moving) == (Stage.STOPPED, True)
        # one that finds no room waits as any other does
        await world.go_on(10)
        assert (cluster.row().stage, world.preemptions.moving) == (Stage.STOPPED, False)
        world.slurm.node_resume("n4")
        world.slurm.node_resume("n3")
        assert (await cluster.runs_again(job.key.job_id)).restarts == 1


async def test_a_stop_that_slurm_refuses_is_called_off(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster, folder)
        world.slurm.faults.refuse_next("requeue_hold", "Requested operation is presently disabled")
        await world.go_on(2)
        row = cluster.row()
        assert row.stage is Stage.CALLED_OFF
        assert row.problem == "Slurm refused to stop it: Requested operation is presently disabled"
        await went_on(cluster, "n1", "n2")
        assert world.phase(job.key) is Phase.RUNNING


async def test_a_job_is_preempted_by_one_at_a_time(folder: Path) -> None:
    async with preempted_world(folder) as cluster, asking(folder / "admin.sock") as admin:
        job = await saved(cluster, folder)
        for more in ({}, {"force": True}):
            code, text = await refused(admin.Preempt(pb.PreemptRequest(job_id=job.key.job_id, **more)))
            assert code is grpc.StatusCode.FAILED_PRECONDITION
            assert text == f"job {job.key.job_id} is being preempted already (saved, by operator)"
        again = await cluster.runs_again(job.key.job_id)
        # one that runs again, and saves again, may be preempted again
        await cluster.train(again.key, first_step_s=None)
        assert cluster.row(1).stage is Stage.STARTED
        await preempt(folder, job.key.job_id)
        assert (cluster.row(1).stage, cluster.row(1).open) == (Stage.STARTED, False)
        await cluster.comes_to(Stage.SAVED, 2)


async def test_the_message_to_go_on_reaches_an_agent_that_was_away(folder: Path) -> None:
    async with preempted_world(folder, nodes=("n1",)) as cluster:
        world = cluster.world
        async with SavingAgent(world.settings.agents_address, "n2").running() as second:
            await second.connected()
            cluster.agents["n2"] = second
            job = await cluster.running()
            cluster.agents["n1"].answers = silent
            await preempt(folder, job.key.job_id, within_s=5)
            await cluster.heard("n1", "n2")
        await world.go_on(10)
        assert cluster.row().stage is Stage.CALLED_OFF
        async with SavingAgent(world.settings.agents_address, "n2").running() as second:
            cluster.agents["n2"] = second
            await went_on(cluster, "n2")
            assert second.asked() == []


async def test_a_job_whose_steps_are_not_reported_is_no_longer_followed(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        world = cluster.world
        job = await saved(cluster, folder)
        await cluster.runs_again(job.key.job_id)
        await world.go_on(STEP_WATCH_S + 20, step_s=10.0)
        row = cluster.row()
        assert (row.stage, row.open, row.problem) == (Stage.STARTED, False, "no step was reported")
        assert world.preemptions.open == {}
        assert world.phase(job.key) is Phase.RUNNING


async def test_a_run_that_began_before_the_saved_step_is_reported(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        job = await saved(cluster, folder)
        again = await cluster.runs_again(job.key.job_id)
        await cluster.train(again.key, restored_step=20, first_step_s=0.0)
        row = await cluster.comes_to(Stage.RESUMED)
        assert row.problem == "it began at step 20, although step 41 was saved"
