"""A job is asked to save, stopped, placed again and trains on; or it is left where it is, and everybody is told why."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from controller.admin import serve_admin
from controller.clock import RealClock
from controller.config import ControllerSettings
from controller.daemon import Controller
from controller.decide import Decider
from controller.journal import Journal
from controller.metrics import MeteredClient
from controller.preempting import drive_preemptions
from controller.preemption import Stage
from controller.serve_agents import serve_agents
from controller.slurm.client import Phase
from controller.slurm.embedded import EmbeddedSlurm, Submission, sbatch_request
from controller.wake import WakePipe
from policies.api import load_policy
from policies.client import PolicyClient
from policies.sdnotify import Notifier
from protos.headway.v1 import admin_pb2 as pb
from tests.unit.controller.preempted import Ranks, SavingAgent, preempted_world, silent
from tests.unit.controller.test_admin import asking, refused
from tests.unit.controller.test_cli import headway
from tests.unit.controller.test_decide import FakeEndpoint
from tests.unit.policies.processes import eventually

DEADLINE_S = 30.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because of the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


async def test_a_job_is_asked_to_save_stopped_placed_again_and_trains_on(folder: Path) -> None:
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
        assert world.preempting.wanted.is_set()
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
        assert world.preempting.open == {}
        times = [row.asked_s, row.saved_s, row.stopped_s, row.started_s, row.resumed_s]
        assert times == sorted(times)  # type: ignore[type-var]
        assert row.problem == ""
        told = cluster.events(job.key.job_id)
        assert [text.split()[0] for text in told] == ["asked", "saved", "stopped", "runs", "trains"]
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
        assert row.problem == "it did not save within 20 s: nothing heard from n2"
        assert world.phase(job.key) is Phase.RUNNING
        assert world.slurm.job(job.key.job_id).starts[0][0] == job.start_time_s

        # and all ranks are told to train on
        async def told() -> bool:
            return all(cluster.agents[node].asked("go_on") for node in ("n1", "n2"))

        await eventually(told)
        (go_on,) = cluster.agents["n1"].asked("go_on")
        assert go_on.go_on.save_id == cluster.agents["n1"].asked()[0].id


async def test_who_cannot_come_back_is_not_preempted(folder: Path) -> None:
    async with preempted_world(folder) as cluster, asking(folder / "admin.sock") as admin:
        world = cluster.world
        key = world.sbatch(1e6, gpus_per_node=4, nodes=2)
        await world.go_on(3)
        code, text = await refused(admin.Preempt(pb.PreemptRequest(job_id=key.job_id)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert text == (
            f"job {key.job_id} cannot come back: no process in it tells its agent that it trains (yet), nor does its comment say "
            "headway=preemptible"
        )
        async with asking(folder / "status.sock") as status:
            code, text = await refused(status.Preempt(pb.PreemptRequest(job_id=key.job_id)))
            assert code is grpc.StatusCode.PERMISSION_DENIED
        assert world.preempting.newest(10) == []


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
            serve_agents(controller) as server,
            drive_preemptions(controller.preempting, server),
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
            # then it is told of every step of it, and the job trains again
            assert (ran.code, ran.err) == (0, "")
            lines = ran.out.splitlines()
            assert lines[0] == f"Preemption 1 of job {key.job_id}: asked to save, within 60 s"
            assert lines[-1].startswith(f"Preemption 1 of job {key.job_id}: resumed at step 41, ")
            listed = await headway("preemptions", "--json", *where)
            (record,) = listed.json["preemptions"]
            assert (record["stage"], record["step"], record["open"]) == ("resumed", 41, False)
            controller.stop()
            await asyncio.wait_for(daemon, DEADLINE_S)
