"""Agents beside a controller: only where it is set, only nodes that there are, and Slurm's jobs are everybody's neighbours."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller.agents.service import serve_agents
from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError
from controller.profiles.current import jobs_by_node
from controller.profiles.store import ProfileStore
from controller.profiles.windows import RunKey, SlurmRun
from nodeagent.uplink.session import Direction, Signer
from nodeagent.uplink.stream import StreamError, _write
from tests.unit.controller.agents.test_server import Agent
from tests.unit.controller.worlds.world import World, newest
from tests.unit.policies.processes import eventually


class Beside:
    """A controller with a last cycle."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = ControllerSettings(
            partitions=("dl",), runtime_dir=folder, state_dir=folder / "state", **settings
        )
        self.last: Any = None


async def test_nothing_is_served_or_made_where_no_address_is_set(tmp_path: Path) -> None:
    beside = Beside(tmp_path)
    async with serve_agents(beside.settings, newest(beside)) as server:
        assert server is None
    assert list(tmp_path.iterdir()) == []


async def test_served_where_one_is_set_and_only_to_slurm_s_nodes(tmp_path: Path) -> None:
    world = World(tmp_path)
    beside = Beside(tmp_path, agents_address=f"unix://{tmp_path}/agents.sock")
    beside.last = await world.turn()
    (name, *_) = (node.name for node in beside.last.observation.snapshot.nodes)
    async with serve_agents(beside.settings, newest(beside)) as server:
        assert server is not None
        async with Agent(server.address, name).running() as agent:
            agent.put()
            await agent.emptied()
        async with Agent(server.address, "stranger").running() as agent:
            await agent.failed("there is no node stranger")
    assert beside.settings.profiles_path.stat().st_mode & 0o777 == 0o600


async def test_no_more_agents_connect_than_agents_most(tmp_path: Path) -> None:
    world = World(tmp_path)
    beside = Beside(tmp_path, agents_address=f"unix://{tmp_path}/agents.sock", agents_most=1)
    beside.last = await world.turn()
    first, second, *_ = (node.name for node in beside.last.observation.snapshot.nodes)
    async with serve_agents(beside.settings, newest(beside)) as server:
        assert server is not None
        async with Agent(server.address, first).running() as agent:
            await agent.connected()
            async with Agent(server.address, second).running() as other:
                await other.failed("RESOURCE_EXHAUSTED: 1 agents are connected")


@pytest.mark.parametrize(
    "wrong",
    [
        {"agents_address": "0.0.0.0:0", "agents_munge": "off"},
        {"agents_address": "nonsense"},
        {"agents_address": "unix:///run/none/agents.sock"},
    ],
)
async def test_errors_of_addresses_name_the_key(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="agents_address"):
        beside = Beside(tmp_path, **wrong)
        async with serve_agents(beside.settings, newest(beside)):
            pass


async def test_jobs_by_node_are_those_with_an_allocation(tmp_path: Path) -> None:
    world = World(tmp_path)
    running = world.sbatch(nodes=2, gpus_per_node=8)
    await world.go_on(30)
    waiting = world.sbatch(nodes=4, gpus_per_node=8)
    await world.go_on(2)
    found = jobs_by_node(await world.slurm.client.snapshot())
    assert sorted(found.values()) == [[int(running.job_id)]] * 2
    assert int(waiting.job_id) not in {job for jobs in found.values() for job in jobs}


async def test_the_store_learns_which_jobs_slurm_runs_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.agents.service._PRESENT_EVERY_S", 0.01)
    passed_on: list[tuple[dict[str, list[int]], list[SlurmRun]]] = []
    monkeypatch.setattr(
        ProfileStore, "note_present", lambda _store, _time_s, jobs, runs: passed_on.append((jobs, runs))
    )
    world = World(tmp_path)
    key = world.sbatch(nodes=1, gpus_per_node=1)
    await world.go_on(30)
    beside = Beside(tmp_path, agents_address=f"unix://{tmp_path}/agents.sock")
    beside.last = await world.turn()

    async def noted() -> bool:
        return bool(passed_on)

    async with serve_agents(beside.settings, newest(beside)):
        await eventually(noted)
    jobs, runs = passed_on[0]
    (started,) = (job for job in beside.last.observation.snapshot.jobs if job.key == key)
    assert list(jobs.values()) == [[int(key.job_id)]]
    assert runs == [SlurmRun(RunKey(int(key.job_id), 0), started.start_time_s)]


async def test_a_second_controller_leaves_the_socket_of_the_first(tmp_path: Path) -> None:
    first = Beside(tmp_path, agents_address=f"unix://{tmp_path}/agents.sock")
    second = Beside(tmp_path, agents_address=f"unix://{tmp_path}/agents.sock")
    async with serve_agents(first.settings, newest(first)) as server:
        assert server is not None
        with pytest.raises(ConfigurationError):
            async with serve_agents(second.settings, newest(second)):
                pass
        async with Agent(server.address, "n1").running() as agent:
            await agent.connected()


async def test_a_stream_of_which_others_cancel_a_task_ends_at_once_and_comes_again(tmp_path: Path) -> None:
    """gRPC tells an agent nothing of a handler that ends by a CancelledError: it would wait for 30 s of silence."""
    beside = Beside(tmp_path, agents_address=f"unix://{tmp_path}/agents.sock")
    async with serve_agents(beside.settings, newest(beside)) as server:
        assert server is not None
        async with Agent(server.address, "n1").running() as agent:
            await agent.connected()
            (task,) = (each for each in asyncio.all_tasks() if "AgentStream._sending" in repr(each))
            task.cancel()

            async def again() -> bool:
                return agent.link.status.streams >= 2

            await eventually(again, within_s=25.0)


async def test_a_message_to_a_stream_that_has_just_ended_is_an_end_like_any_other() -> None:
    """gRPC raises InvalidStateError then, which is no defect of the agent."""

    class Ended:
        async def write(self, _message: object) -> None:
            raise asyncio.InvalidStateError("RPC already finished.")

        async def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.UNAVAILABLE

        async def details(self) -> str:
            return "the controller is ending"

    call: Any = Ended()
    with pytest.raises(StreamError, match="ended the stream: UNAVAILABLE: the controller is ending"):
        await _write(call, Signer(None, Direction.FROM_AGENT), b"")
