"""From agents' reports over real streams to what policies and people see, beside an embedded Slurm."""

from __future__ import annotations

import asyncio
import csv
import math
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest

from controller.admin.metrics.exporter import make_registry
from controller.cli.client import AdminClient
from controller.contention.measurement import Measurement
from policies.wire.messages import parse_state, serialize_state
from protos.headway.v1 import admin_pb2 as pb
from protos.headway.v1 import agent_pb2
from tests.unit.controller.admin.test_service import asking, refused
from tests.unit.controller.agents.test_server import Agent
from tests.unit.controller.cli.test_app import headway
from tests.unit.controller.examples.reports import Training
from tests.unit.controller.worlds.measured import known, measured_world, share_nodes, window_start
from tests.unit.policies.processes import eventually


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because of the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


async def test_the_slowdown_of_two_jobs_that_share_nodes_is_shown_everywhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet):
        registry = make_registry(world, world.measurement)
        # given two jobs on the same nodes, each half as fast as one of them was alone, and a third that waits
        first, second = await share_nodes(world, fleet)
        waiting = world.sbatch(gpus_per_node=8, nodes=4)
        result = await world.turn()
        # then the policy sees it, also beyond a socket
        jobs = parse_state(serialize_state(result.observation.state)).jobs
        assert jobs.ids == (first.job_id, second.job_id, waiting.job_id)
        assert jobs.contention_sensitivity is not None
        assert jobs.contention_confidence is not None
        assert jobs.throughput_steps_per_s is not None
        np.testing.assert_allclose(jobs.contention_sensitivity, [2.0, 2.0, math.nan], rtol=1e-6)
        np.testing.assert_allclose(jobs.throughput_steps_per_s, [3.0, 3.0, math.nan], rtol=1e-6)
        assert 0 < jobs.contention_confidence[1] < jobs.contention_confidence[0] < 1
        assert jobs.contention_confidence[2] == 0
        # and users can read it, if they may
        async with asking(folder / "status.sock") as status:
            why = await status.Why(pb.WhyRequest(job_id=first.job_id))
            assert (
                f"2.00 times slower than alone beside job {second.job_id} (6 steps/s in 1 window alone" in why.sentence
            )
            assert why.facts["contention_sensitivity"] == "2"
            assert why.facts["beside"] == second.job_id
            other = await status.Why(pb.WhyRequest(job_id=second.job_id))
            assert "(6 steps/s by 1 job of its kind alone; confidence" in other.sentence
            for call, said in (
                (status.ListProfiles(pb.ListProfilesRequest()), "only root"),
                (status.GetProfile(pb.GetProfileRequest(job_id=first.job_id)), "only measurements of their own jobs"),
            ):
                code, text = await refused(call)
                assert code is grpc.StatusCode.PERMISSION_DENIED
                assert said in text
        # and operators see all of it
        async with asking(folder / "admin.sock") as admin:
            (kind,) = (await admin.ListProfiles(pb.ListProfilesRequest())).kinds
            assert (kind.script, kind.gpus, kind.nodes, kind.windows, kind.windows_alone, kind.jobs) == (
                "resnet.py", 8, 2, 3, 1, 2,
            )  # fmt: skip
            assert kind.alone_steps_per_s == pytest.approx(6.0)
            now = {each.job_id: each for each in kind.running}
            assert {job: each.source for job, each in now.items()} == {first.job_id: "alone", second.job_id: "store"}
            assert now[second.job_id].sensitivity == pytest.approx(2.0)
            assert list(now[second.job_id].beside) == [first.job_id]
            profile = await admin.GetProfile(pb.GetProfileRequest(job_id=first.job_id))
            assert [round(window.steps_per_s, 6) for window in profile.windows] == [3.0, 6.0]
            assert [[other.job_id for other in window.beside] for window in profile.windows] == [[second.job_id], []]
            assert dict(profile.steps[0].bytes) == {"all_reduce": 4e6, "all_gather": 1e6}
            assert profile.now.sensitivity == pytest.approx(2.0)
        # and Prometheus counts it
        assert registry.get_sample_value("headway_agents_connected") == 2
        assert registry.get_sample_value("headway_agent_reports_total") == 12 + 24 + 1
        bucket = {"source": "alone", "le": "2.0"}
        assert registry.get_sample_value("headway_contention_sensitivity_bucket", bucket) == 1
        assert registry.get_sample_value("headway_contention_sensitivity_count", {"source": "store"}) == 1


async def test_what_was_measured_beside_a_neighbour_is_not_current_after_its_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet):
        first, second = await share_nodes(world, fleet)
        await world.slurm.client.signal([second], "KILL")
        await world.go_on(10)
        assert world.nodes(second) == {}

        async def forgotten() -> bool:
            return world.measurement is not None and not world.measurement.known and not world.knowledge.measured

        await eventually(forgotten)
        result = await world.turn()
        assert result.observation.state.jobs.contention_sensitivity is None
        async with asking(folder / "admin.sock") as admin:
            assert "steps/s" not in (await admin.Why(pb.WhyRequest(job_id=first.job_id))).sentence


async def test_a_run_that_was_requeued_is_no_longer_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet):
        first, second = await share_nodes(world, fleet)
        assert world.measurement is not None
        # when one of them is requeued, and runs again on the same nodes
        world.slurm.requeue(second.job_id)
        for _ in range(20):
            await world.go_on(2)
            if world.slurm.job(second.job_id).restarts == 1 and world.nodes(second) == {"n1": 4, "n2": 4}:
                break
        await world.turn()
        # then only the other run is known, although the same jobs are near
        await known(world, 1)
        assert [run.job_id for run in world.measurement.known] == [int(first.job_id)]


async def test_tasks_of_arrays_are_found_by_slurm_s_own_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet):
        from controller.slurm.embedded import Submission, sbatch_request
        from tests.unit.controller.examples.reports import Training

        request = sbatch_request(gpus_per_node=8, nodes=1)
        world.slurm.submit(Submission(request=request, duration_s=1e6, array=(0, 1)))
        await world.go_on(30)
        tasks = {job.key.job_id: job for job in (await world.slurm.client.snapshot()).jobs}
        numbers = {name: job.raw_id for name, job in tasks.items()}
        assert len(set(numbers.values())) == 2
        name, job = next((name, job) for name, job in tasks.items() if job.allocated[0].node == "n1")
        assert job.raw_id is not None
        start_s = window_start(3)
        fleet.report([Training(job.raw_id, ("n1",), 4.0, start_s=start_s - 1000, gpus=8, ranks=8)], start_s)
        await fleet.said()
        await known(world, 1)
        async with asking(folder / "admin.sock") as admin:
            await world.turn()
            profile = await admin.GetProfile(pb.GetProfileRequest(job_id=name))
            assert (profile.job_id, profile.now.job_id, profile.now.sensitivity) == (name, name, pytest.approx(1.0))
            assert "as fast as alone, with no job beside it" in (await admin.Why(pb.WhyRequest(job_id=name))).sentence


async def test_the_command_line_shows_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet):
        first, second = await share_nodes(world, fleet)
        config = folder / "controller.toml"
        config.write_text(f'partitions = ["dl"]\nruntime_dir = "{folder}"\n')
        where = ("--config", str(config))
        status = await headway("status", *where)
        assert "agents      2 of 4 nodes connected; silent: n3 (never connected), n4 (never connected)" in status.out
        agents = (await headway("status", "--json", *where)).json["agents"]
        assert (agents["connected"], agents["nodes"]) == (2, 4)
        assert agents["silent"] == [{"name": "n3", "since_s": 0.0}, {"name": "n4", "since_s": 0.0}]
        listed = await headway("profile", "list", *where)
        assert f"{first.job_id}: 2.00x (alone, " in listed.out
        assert "BATCH" not in listed.out  # no agent has reported it
        assert f"{second.job_id}: 2.00x (store, " in listed.out
        (kind,) = (await headway("profile", "list", "--json", *where)).json["kinds"]
        assert kind["signature"] == "ab" * 32
        shown = await headway("profile", "show", first.job_id, *where)
        assert "all_gather 1 MB, all_reduce 4 MB" in shown.out
        assert "150 ms (45%)" in shown.out
        assert f"{second.job_id} (resnet.py)" in shown.out
        assert (await headway("profile", "show", second.job_id, "--json", *where)).json["now"]["source"] == "store"
        unknown = await headway("profile", "show", "999", *where)
        assert (unknown.code, "there are no measurements of job 999" in unknown.err) == (1, True)
        written = await headway(
            "profile", "export", "--to", str(folder / "here.json"), "--rows", str(folder / "rows"), *where
        )
        assert (written.code, written.err) == (0, "")
        assert "here.json: 1 model, 1 pair" in written.out
        with (folder / "rows" / "pairs.csv").open() as file:
            ratios = [float(row["ratio"]) for row in csv.DictReader(file)]
        assert ratios == [pytest.approx(0.5)] * 2


async def test_kinds_differ_by_gpu_and_batch_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet):
        # Given one script on two models of GPU, with two batch sizes
        one, two = (world.sbatch(duration_s=1e6, gpus_per_node=8, nodes=1, user="ann") for _ in range(2))
        await world.go_on(30)
        start_s = window_start(3)
        jobs = []
        for key, model, batch_size, steps_per_s in ((one, "NVIDIA H100 PCIe", 32, 6.0), (two, "Tesla V100", 64, 2.0)):
            (node,) = world.nodes(key)
            gpus = [agent_pb2.GpuTelemetry(index=index, name=model) for index in range(8)]
            telemetry = agent_pb2.NodeTelemetry(gpus_read=True, gpus=gpus)
            fleet.agents[node].outbox.put(agent_pb2.AgentReport(time_s=start_s, telemetry=telemetry))
            job = Training(
                int(key.job_id), (node,), steps_per_s, start_s=start_s - 1000, gpus=8, ranks=8, batch_size=batch_size
            )
            jobs.append(job)
        fleet.report(jobs, start_s)
        await fleet.said()
        await known(world, 2)
        # Then these are two kinds, and operators see why
        async with asking(folder / "admin.sock") as admin:
            kinds = (await admin.ListProfiles(pb.ListProfilesRequest())).kinds
            assert {(kind.gpu_model, kind.batch_size, round(kind.alone_steps_per_s, 6)) for kind in kinds} == {
                ("NVIDIA H100 PCIe", 32, 6.0),
                ("Tesla V100", 64, 2.0),
            }
        config = folder / "controller.toml"
        config.write_text(f'partitions = ["dl"]\nruntime_dir = "{folder}"\n')
        listed = (await headway("profile", "list", "--config", str(config))).out
        assert "BATCH" in listed
        assert "Tesla V100" in listed


async def test_agents_that_fall_silent_are_named_with_since_when(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with measured_world(folder, monkeypatch, nodes=()) as (world, _):
        registry = make_registry(world, world.measurement)
        begun_s = time.time()
        async with Agent(world.settings.agents_address, "n2").running() as agent:
            await agent.connected()
        async with Agent(world.settings.agents_address, "stranger").running() as agent:
            await agent.failed("there is no node stranger")
        async with asking(folder / "status.sock") as status:

            async def is_reported() -> bool:
                silent = {
                    node.name: node.since_s for node in (await status.GetStatus(pb.GetStatusRequest())).agents.silent
                }
                return silent["n1"] == 0 and begun_s <= silent.get("n2", 0) <= time.time()

            await eventually(is_reported)
            assert (await status.GetStatus(pb.GetStatusRequest())).agents.refused >= 1
        refusals = registry.get_sample_value("headway_agent_streams_refused_total", {"code": "PERMISSION_DENIED"})
        assert refusals is not None
        assert refusals >= 1


async def test_a_broken_store_costs_what_is_known_until_it_can_be_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, broken, complaints = Measurement.update, False, []

    async def fail(*arguments: Any) -> None:
        if broken:
            raise sqlite3.OperationalError("disk I/O error")
        await update(*arguments)

    monkeypatch.setattr(Measurement, "update", fail)
    monkeypatch.setattr(
        "controller.contention.measurement.log", SimpleNamespace(error=lambda *_, **said: complaints.append(said))
    )
    async with measured_world(folder, monkeypatch) as (world, fleet):
        await share_nodes(world, fleet)
        assert (len(world.knowledge.measured), complaints) == (2, [])
        broken = True

        async def forgotten() -> bool:
            return not world.knowledge.measured

        await eventually(forgotten)
        assert "disk I/O error" in complaints[0]["problem"]
        broken = False
        await known(world, 2)


async def test_without_agents_the_controller_is_not_queried_about_them(folder: Path) -> None:
    from tests.unit.controller.admin.test_service import served
    from tests.unit.controller.worlds.controller_world import world_in

    world = world_in(folder)
    await world.turn()
    async with served(world) as (admin, _):
        assert not (await admin.GetStatus(pb.GetStatusRequest())).agents.served
        code, text = await refused(admin.ListProfiles(pb.ListProfilesRequest()))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "agents_address" in text


def seen(path: Path, script: str, start_s: float) -> None:
    """Add a window of a job that trained this script."""
    with closing(sqlite3.connect(path, timeout=60.0)) as db, db:
        db.execute(
            "INSERT INTO observation (start_s, job_id, restart, uid, script, signature, gpus, nodes, hosts, steps, steps_per_s,"
            " idle_gpus, alone, neighbours) VALUES (?, ?, 0, 1000, ?, 'ab', 8, 1, '[\"n1\"]', 30, 1.0, 0, 1, '[]')",
            (start_s, int(script.partition(".")[0]), script),
        )


async def test_all_kinds_of_jobs_come_in_several_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.admin.profile_messages.MOST", 4)
    start_s = window_start(9)
    async with measured_world(folder, monkeypatch, nodes=()) as (world, _):
        path = world.settings.profiles_path
        for number in range(11):  # half of them with the newest window
            seen(path, f"{number}.py", start_s - number % 2)
        scripts = [f"{number}.py" for number in (0, 10, 2, 4, 6, 8, 1, 3, 5, 7, 9)]
        with AdminClient(folder / "admin.sock") as client:
            ask = client._stub.ListProfiles
            for limit, count, more in (
                (0, 11, False),
                (3, 3, True),
                (4, 4, True),
                (9, 9, True),
                (11, 11, False),
                (20, 11, False),
            ):
                found = await asyncio.to_thread(client.profiles, limit)
                assert ([kind.script for kind in found.kinds], found.more) == (scripts[:count], more), limit

            # windows that are computed between two answers move no kind from one to the other
            def ask_slowly(request: pb.ListProfilesRequest, **options: Any) -> pb.ProfileList:
                part = ask(request, **options)
                seen(path, "9.py", start_s + 30 + request.skip)
                return part

            monkeypatch.setattr(client._stub, "ListProfiles", ask_slowly)
            found = await asyncio.to_thread(client.profiles, 0)
            assert [kind.script for kind in found.kinds] == scripts

            # a controller of an earlier version always returns the first ones
            def ask_earlier(request: pb.ListProfilesRequest, **options: Any) -> pb.ProfileList:
                part = ask(pb.ListProfilesRequest(limit=request.limit), **options)
                part.ClearField("until_s")
                return part

            monkeypatch.setattr(client._stub, "ListProfiles", ask_earlier)
            found = await asyncio.to_thread(client.profiles, 0)
            assert (len(found.kinds), found.more) == (4, True)
