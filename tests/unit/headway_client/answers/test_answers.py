"""Every method of both clients, over the controller's real sockets."""

from __future__ import annotations

import asyncio
import gc
import grp
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from headway_client import (
    AsyncClient,
    Client,
    EventKind,
    InvalidRequestError,
    JobState,
    NotFoundError,
    NotPermittedError,
    NotReadyError,
    PreemptionCause,
    PreemptionList,
    PreemptionStage,
    PreemptionWay,
    Queue,
    Reason,
    RefusedError,
    SpeedSource,
    UnavailableError,
)

from controller.admin.front import Front
from controller.admin.serve import serve_admin
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in
from tests.unit.controller.worlds.measured import measured_world, share_nodes
from tests.unit.headway_client.conftest import MakeClient
from tests.unit.policies.processes import eventually

DEADLINE_S = 60.0


@asynccontextmanager
async def cluster(folder: Path, group: str = "") -> AsyncIterator[ControllerWorld]:
    """A busy cluster: a job that runs, one that waits and one on hold."""
    world = world_in(folder)
    world.endpoint.away = True
    world.sbatch(1000.0, gpus_per_node=8, nodes=4, name="big", user="ann")
    await world.go_on(2)
    world.sbatch(gpus_per_node=8, user="bob")
    world.sbatch(gpus_per_node=8, user="bob", hold=True)
    await world.turn()
    async with serve_admin(world, folder, group):
        yield world


# --- what is answered


async def test_status_and_policy(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder), connected(folder / "status.sock") as client:
        status, policy = await client.status(), await client.policy()

    assert (status.jobs_waiting, status.jobs_running, status.jobs_ineligible) == (1, 1, 1)
    assert (status.gpus_used, status.gpus_total, status.partitions) == (32, 32, ("dl",))
    assert [(node.name, node.gpus_used, node.available) for node in status.nodes[:1]] == [("n1", 8, True)]
    assert (status.slurm_client, status.lease_stale, status.agents.served) == ("embedded", True, False)
    assert status.policy == policy
    assert (policy.serving, policy.fallback) == (False, "fifo")
    assert "nobody listens" in policy.last_error


async def test_the_queue_and_why(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder), connected(folder / "status.sock") as client:
        queue, waits, runs = await client.queue(), await client.why("2"), await client.why(1)

    assert [(entry.job_id, entry.state) for entry in queue.entries] == [
        ("2", JobState.WAITING), ("1", JobState.RUNNING), ("3", JobState.INELIGIBLE),
    ]  # fmt: skip
    assert (queue.entries[0].user, queue.entries[1].placement) == ("bob", "n1:8,n2:8,n3:8,n4:8")
    assert waits.state is JobState.WAITING and waits.facts["num_gpus"] == "8" and waits.decisions == ()
    assert [(each.policy, each.placement) for each in runs.decisions] == [("fallback:fifo", "n1:8,n2:8,n3:8,n4:8")]
    assert json.loads(json.dumps(runs.to_dict()))["state"] == "running"


async def test_a_snapshot_has_all_that_a_screen_shows(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder), connected(folder / "status.sock") as client:
        found = await client.snapshot()
        queue = await client.queue()

    assert found.queue == queue and found.status.jobs_running == 1 and found.preemptions.preemptions == ()
    assert json.loads(json.dumps(found.to_dict())).keys() == {"status", "queue", "preemptions"}


async def test_a_job_is_preempted_moved_and_resized(folder: Path, connected: MakeClient) -> None:
    world = world_in(folder)
    world.endpoint.away = True
    keys = [world.sbatch(10_000.0, gpus_per_node=8) for _ in range(3)]
    await world.go_on(2)
    async with serve_admin(world, folder, ""), connected(folder / "admin.sock") as client:
        # when jobs are stopped by force, as nothing says that they save
        stopped = await client.preempt(keys[0].job_id, force=True)
        moved = await client.move(keys[1].job_id, off=["n1"], force=True, within_s=5)
        away = await client.move(keys[2].job_id, force=True)
        assert (stopped.number, stopped.job_id, stopped.cause) == (1, "1", PreemptionCause.OPERATOR)
        assert (stopped.way, stopped.force, stopped.open) == (PreemptionWay.NONE, True, True)
        assert (moved.avoid, moved.within_s, moved.only) == (("n1",), 5.0, ())
        assert (away.avoid, away.gpus, away.saved_s) == (("n3",), None, None)
        # then they go through the stages, and can be listed
        await world.go_on(200)
        ended = await client.wait_for_preemption(stopped.number, timeout_s=DEADLINE_S)
        assert (ended.open, ended.stage) == (False, PreemptionStage.STARTED) or ended.stage is PreemptionStage.RESUMED
        listed = (await client.preemptions()).preemptions
        assert [each.number for each in listed] == [3, 2, 1] and listed[2] == ended
        assert (await client.preemptions(1)).preemptions == listed[:1]
        assert (await client.preemptions(number=2)).preemptions == listed[1:2]
        # and a job may have other GPUs
        resized = await client.resize(keys[1].job_id, 4, force=True)
        assert resized.gpus == 4
        with pytest.raises(NotFoundError, match="no preemption 99"):
            await client.wait_for_preemption(99)


async def test_another_policy_decides_or_the_old_one_stays(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder) as world, connected(folder / "admin.sock") as client:
        world.new_endpoints |= {"unix:///new": FakeEndpoint(address="unix:///new"), "sick": FakeEndpoint(sick=True)}
        with pytest.raises(RefusedError, match="the policy stays as it was") as caught:
            await client.use_policy("sick")
        assert caught.value.reason is Reason.POLICY_UNUSABLE
        assert (await client.policy()).address == "unix:///fake"
    world = world_in(folder / "idle")
    world.new_endpoints["unix:///new"] = FakeEndpoint(address="unix:///new")
    async with serve_admin(world, world.folder, ""), connected(world.folder / "admin.sock") as client:
        found = await client.use_policy("unix:///new")
        assert (found.name, found.address, found.serving) == ("fake", "unix:///new", True)


async def test_measurements(folder: Path, connected: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet), connected(folder / "admin.sock") as client:
        first, second = await share_nodes(world, fleet)
        (kind,) = (await client.profiles()).kinds
        assert (kind.script, kind.gpus, kind.nodes, kind.windows, kind.jobs) == ("resnet.py", 8, 2, 3, 2)
        assert kind.alone_steps_per_s == pytest.approx(6.0)
        assert {each.job_id: each.source for each in kind.running} == {
            first.job_id: SpeedSource.ALONE, second.job_id: SpeedSource.STORE,
        }  # fmt: skip
        found = await client.profile(first.job_id)
        assert [round(window.steps_per_s, 6) for window in found.windows] == [3.0, 6.0]
        assert [[other.job_id for other in window.beside] for window in found.windows] == [[second.job_id], []]
        assert found.steps[0].bytes == {"all_reduce": 4e6, "all_gather": 1e6}
        assert found.now.sensitivity == pytest.approx(2.0)
        assert len((await client.profile(first.job_id, 1)).windows) == 1
        rows = await client.export_profiles(racks={"n1": "r1"})
        assert rows.models and rows.to_dict()["models"][0]["model"] == rows.models[0].model
        assert (await client.status()).agents.connected == 2
        with pytest.raises(NotFoundError) as caught:
            await client.profile(999)
        assert caught.value.reason is Reason.NOTHING_MEASURED


async def test_a_report_on_a_job(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder), connected(folder / "status.sock") as client:
        found = await client.report(1)
        assert (found.job_id, found.user, found.state, found.end_time_s) == ("1", "ann", JobState.RUNNING, None)
        (run,) = found.runs
        assert run.placement == "n1:8,n2:8,n3:8,n4:8"
        with pytest.raises(NotFoundError) as caught:
            await client.report(99)
        assert caught.value.reason is Reason.UNKNOWN_JOB


async def test_events_come_as_they_happen(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder) as world, connected(folder / "status.sock") as client:
        following = await client.listen()
        world.events.add("placed", "7", "n1:8 by srtf")
        world.events.add("parked", "", "a kind of a later version")
        placed = await asyncio.wait_for(following(), DEADLINE_S)
        parked = await asyncio.wait_for(following(), DEADLINE_S)
        assert (placed.kind, placed.job_id, placed.text) == (EventKind.PLACED, "7", "n1:8 by srtf")
        assert (parked.kind, parked.kind.known, parked.time_s) == ("parked", False, world.clock.now())


async def test_past_events_come_first_and_alone_if_only_they_are_wanted(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder) as world, connected(folder / "status.sock") as client:
        world.events.add("placed", "7", "earlier")
        world.events.add("placed", "8", "of another job")
        following = await client.listen(job_id=7, past_only=True)
        assert (await asyncio.wait_for(following(), DEADLINE_S)).text == "earlier"
        assert await asyncio.wait_for(following(), DEADLINE_S) is None
        following = await client.listen(since_s=0.0, job_id="7")
        world.events.add("started", "7", "later")
        assert [(await asyncio.wait_for(following(), DEADLINE_S)).text for _ in range(2)] == ["earlier", "later"]
        following = await client.listen(since_s=world.clock.now() + 60.0, until_s=world.clock.now(), job_id="7")
        assert await asyncio.wait_for(following(), DEADLINE_S) is None


async def test_events_stop_after_so_long_without_one(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder) as world, connected(folder / "status.sock") as client:
        following = await client.listen(idle_s=0.05)
        assert await asyncio.wait_for(following(), DEADLINE_S) is None
        world.events.add("policy", "", "later")
        later = await eventually(lambda: asyncio.wait_for(following(), DEADLINE_S))  # the limit holds for this one too
        assert later is not None
        assert later.text == "later"


async def test_events_stop_when_the_client_is_closed(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder) as world, connected(folder / "status.sock") as client:
        following = await client.listen()
        waiting = asyncio.ensure_future(following())
        await asyncio.sleep(0.1)
        client.client.close()
        assert await asyncio.wait_for(waiting, DEADLINE_S) is None
        assert await asyncio.wait_for(following(), DEADLINE_S) is None
        # and the controller knows that there is one listener less
        await eventually(lambda: _none_listens(world))


async def _none_listens(world: ControllerWorld) -> bool:
    return not world.events._listeners


async def test_events_end_with_the_controller(folder: Path, connected: MakeClient) -> None:
    async with AsyncExitStack() as controller, connected(folder / "status.sock") as client:
        await controller.enter_async_context(cluster(folder))
        following = await client.listen()
        waiting = asyncio.ensure_future(following())
        await asyncio.sleep(0.1)
        await controller.aclose()
        with pytest.raises(UnavailableError, match="Jobs are not affected"):
            await asyncio.wait_for(waiting, DEADLINE_S)
        # and what comes after an error is an end
        assert await asyncio.wait_for(following(), DEADLINE_S) is None


# --- who may ask


async def test_status_sock_changes_no_job_of_another_user(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder), connected(folder / "status.sock") as client:
        for call in (client.preempt, client.profile, client.request_profile):
            with pytest.raises(NotPermittedError) as caught:
                await call("1")  # ann's
            assert caught.value.reason is Reason.NOT_YOUR_JOB
        for call in (lambda: client.use_policy("unix:///new"), client.profiles, client.export_profiles):
            with pytest.raises(NotPermittedError):
                await call()


async def test_private_jobs_are_kept_from_other_users(
    folder: Path, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headway_client.steps.APPEARS_S", 1.0
    )  # a job that is refused might have been submitted just now
    async with cluster(folder) as world:
        world.slurm_says(PrivateData="jobs")
        async with connected(folder / "status.sock") as client:
            for call in (
                lambda: client.why(1),
                client.listen,
                lambda: client.wait(1),
            ):
                with pytest.raises(NotPermittedError) as caught:
                    await call()
                assert caught.value.reason is Reason.JOBS_PRIVATE
            # nodes are no secret, and lists have jobs of this user alone
            found = await client.snapshot()
            assert (found.status.nodes_total, found.queue, found.preemptions) == (4, Queue(), PreemptionList())
        async with connected(folder / "admin.sock") as client:
            assert len((await client.queue()).entries) == 3


async def test_private_jobs_are_shown_to_the_group_of_the_operator(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder, grp.getgrgid(os.getgid()).gr_name) as world, connected(folder / "status.sock") as client:
        world.slurm_says(PrivateData="jobs")
        assert len((await client.queue()).entries) == 3


# --- refusals


async def refusal(awaitable: Any) -> Any:
    with pytest.raises(Exception) as caught:
        await awaitable
    return type(caught.value), caught.value.reason  # type: ignore[attr-defined]


@pytest.fixture
def no_search_for_cycles() -> Iterator[None]:
    """Python does not look for objects that only refer to each other."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_search_for_cycles")
async def test_calls_that_have_ended_leave_no_connections_behind(
    folder: Path, connected: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller closes connections of a user who has too many."""
    fronts: list[Front] = []
    listen = Front.listen

    def noted(front: Front, address: str) -> None:
        fronts.append(front)
        listen(front, address)

    monkeypatch.setattr(Front, "listen", noted)
    async with cluster(folder), connected(folder / "status.sock") as client:
        for _ in range(4):
            assert await refusal(client.why(99)) == (NotFoundError, Reason.UNKNOWN_JOB)
            assert await refusal(client.listen(job_id="x;1")) == (InvalidRequestError, Reason.INVALID_JOB_ID)
            following = await client.listen(job_id=7, past_only=True)
            assert await following() is None
        # then gRPC closes each connection a moment after its last call
        await eventually(lambda: _none_connected(fronts))


async def _none_connected(fronts: list[Front]) -> bool:
    return bool(fronts) and not any(front._sides for front in fronts)


async def test_each_refusal_has_a_class_and_a_reason(folder: Path, connected: MakeClient) -> None:
    async with cluster(folder), connected(folder / "admin.sock") as client:
        assert await refusal(client.why(99)) == (NotFoundError, Reason.UNKNOWN_JOB)
        assert await refusal(client.why("x;1")) == (InvalidRequestError, Reason.INVALID_JOB_ID)
        assert await refusal(client.preempt(99)) == (NotFoundError, Reason.UNKNOWN_JOB)
        assert await refusal(client.preempt(1)) == (RefusedError, Reason.NOT_PREEMPTIBLE)
        assert await refusal(client.preempt(1, within_s=0)) == (InvalidRequestError, Reason.INVALID_PREEMPTION)
        assert await refusal(client.move(1, to="n9")) == (InvalidRequestError, Reason.INVALID_PREEMPTION)
        assert await refusal(client.resize(1, 4000, force=True)) == (RefusedError, Reason.NOT_RESIZABLE)
        assert await refusal(client.resize(1, -1)) == (InvalidRequestError, None)
        assert await refusal(client.profiles()) == (RefusedError, Reason.NO_AGENTS)
        assert await refusal(client.request_profile(1)) == (RefusedError, Reason.NO_AGENTS)


async def test_before_the_first_reading_the_controller_is_there_and_not_ready(
    folder: Path, connected: MakeClient
) -> None:
    async with serve_admin(world_in(folder), folder, ""), connected(folder / "admin.sock") as client:
        assert (await client.status()).snapshot_time_s == 0.0
        assert await refusal(client.queue()) == (NotReadyError, Reason.NOT_READY)
        assert (await client.snapshot()).queue is None
        with pytest.raises(NotReadyError):
            await client.wait(1, away_s=0.1, every_s=0.1)


def test_both_clients_have_the_same_methods() -> None:
    names = [{name for name in vars(kind) if not name.startswith("_")} for kind in (Client, AsyncClient)]

    assert names[0] == names[1]
