"""A cluster whose nodes have agents: an embedded Slurm, and made-up agents over real streams."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.admin.serve import serve_admin
from controller.agents.service import serve_agents
from controller.contention.measurement import measure
from tests.unit.controller.agents.test_server import PATIENT, Agent
from tests.unit.controller.examples.reports import Training
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in
from tests.unit.controller.worlds.world import newest
from tests.unit.policies.processes import eventually

WINDOW_S = 30.0
STEP = {"step_s": 0.33, "compute_s": 0.15, "comm_exposed_s": 0.16, "comm_hidden_s": 0.02}
"""Times of a training step while another job shares its resources, in seconds."""
KINDS = {"all_reduce": 4e6, "all_gather": 1e6}


def window_start(back: int) -> float:
    """Beginning of the window that lies so many before the present one."""
    return (time.time() // WINDOW_S - back) * WINDOW_S


class Fleet:
    """The agents of some nodes."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self.agents = {agent.node: agent for agent in agents}

    def report(self, jobs: Iterable[Training], start_s: float, every_s: float = 5.0) -> None:
        """Send all reports of one window."""
        for at in range(int(WINDOW_S / every_s)):
            for job in jobs:
                for node in job.nodes:
                    self.agents[node].outbox.put(job.report(node, start_s + at * every_s), keep=True)

    def profile(self, job: Training, at_s: float) -> None:
        """A profile, as the first node's agent tells of it."""
        self.agents[job.nodes[0]].outbox.put(job.profile(at_s, STEP, KINDS), keep=True)

    async def said(self) -> None:
        """Everything is acknowledged."""
        for agent in self.agents.values():
            await agent.emptied()


@asynccontextmanager
async def measured_world(
    folder: Path, monkeypatch: pytest.MonkeyPatch, nodes: Iterable[str] = ("n1", "n2")
) -> AsyncIterator[tuple[ControllerWorld, Fleet]]:
    """A controller, asked and with agents, whose clocks for what is worked out now and then run fast."""
    monkeypatch.setattr("controller.agents.reports.storage._COMPUTE_EVERY_S", 0.05)
    monkeypatch.setattr("controller.contention.measurement._UPDATE_EVERY_S", 0.05)
    monkeypatch.setattr("controller.contention.measurement.FRESH_WINDOWS", 60)  # however long a test takes
    address = f"unix://{folder}/agents.sock"
    world = world_in(folder, settings_changes={"agents_address": address, "state_dir": folder / "state"})
    world.endpoint.away = True
    await world.turn()
    async with AsyncExitStack() as stack:
        agents = await stack.enter_async_context(serve_agents(world.settings, newest(world)))
        world.measurement = await stack.enter_async_context(
            measure(newest(world), world.knowledge.set_measured, agents, world.settings, WINDOW_S)
        )
        await stack.enter_async_context(serve_admin(world, folder, "", measurement=world.measurement))
        fleet = Fleet([await stack.enter_async_context(Agent(address, node, **PATIENT).running()) for node in nodes])
        for agent in fleet.agents.values():
            await agent.connected()
        yield world, fleet


async def known(world: ControllerWorld, jobs: int) -> None:
    """Something is known of so many jobs, and the next snapshot says it."""

    async def there() -> bool:
        return world.measurement is not None and len(world.measurement.known) == jobs

    await eventually(there)
    await eventually(lambda: _passed_on(world))


async def _passed_on(world: ControllerWorld) -> bool:
    return world.measurement is not None and world.knowledge.measured is world.measurement.known


async def share_nodes(world: ControllerWorld, fleet: Fleet, users: tuple[str, str] = ("ann", "bob")) -> tuple[Any, Any]:
    """Two jobs of one kind on the same two nodes: the first was alone at 6 steps/s, now both make 3. Gives their keys."""
    first = world.sbatch(duration_s=1e6, gpus_per_node=4, nodes=2, user=users[0])
    second = world.sbatch(duration_s=1e6, gpus_per_node=4, nodes=2, user=users[1])
    await world.go_on(30)
    assert world.nodes(first) == world.nodes(second) == {"n1": 4, "n2": 4}

    def training(key: Any, steps_per_s: float, start_s: float) -> Training:
        return Training(
            int(key.job_id), ("n1", "n2"), steps_per_s, start_s=start_s - 1000, gpus=4, ranks=4, script="resnet.py"
        )

    alone_s, together_s = window_start(5), window_start(3)
    fleet.report([training(first, 6.0, alone_s)], alone_s)
    fleet.report([training(key, 3.0, together_s - 10_000) for key in (first, second)], together_s)
    fleet.profile(training(first, 3.0, together_s), together_s + 20)
    await fleet.said()
    await known(world, 2)
    await world.turn()
    return first, second
