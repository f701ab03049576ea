"""Slurm's tree of switches, asked for once beside the controller: policies are told racks, the store of profiles who is near."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from controller.agents import AgentsServer
from controller.errors import HeadwayError, SlurmUnavailableError
from controller.profile_store import ProfileStore
from controller.racks import Racks, racks_of
from controller.slurm.client import SlurmFacts
from controller.switches import switches_told
from controller.uplinks import links_of

_ASK_AGAIN_S = 10.0
log = structlog.get_logger(__name__)


class Hung(Protocol):
    """What is asked of the controller."""

    def hang(self, racks: Racks) -> None:
        """Nodes hang so from now on."""


@asynccontextmanager
async def learn_switches(
    controller: Hung, agents: AgentsServer | None, facts: Callable[[], Awaitable[SlurmFacts]]
) -> AsyncIterator[None]:
    """Within, as soon as Slurm answers. What it reads wrong, or cannot be read here, leaves all nodes in one rack, and jobs
    neighbours by their nodes alone.
    """
    task = asyncio.create_task(_learn(controller, agents, facts), name="switches")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _learn(controller: Hung, agents: AgentsServer | None, facts: Callable[[], Awaitable[SlurmFacts]]) -> None:
    while True:
        try:
            switches = await asyncio.to_thread(switches_told, await facts())
            break
        except SlurmUnavailableError:
            await asyncio.sleep(_ASK_AGAIN_S)
        except (HeadwayError, OSError) as error:
            log.warning("switches_not_known", problem=str(error))
            return
    if not switches:
        return
    racks = racks_of(switches)
    log.info("racks_known", racks=len(set(racks.leaf.values())), with_speed=len(racks.uplink_gbyte_s))
    controller.hang(racks)
    if agents is None:
        return

    def use(store: ProfileStore) -> None:
        store.links = links_of(switches)

    await agents.use_store(use)
