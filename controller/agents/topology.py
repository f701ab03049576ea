"""Reads Slurm's tree of switches once: policies receive the racks, the store of profiles the links that jobs share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from controller.agents.server import AgentsServer
from controller.base.errors import HeadwayError, SlurmUnavailableError
from controller.profiles.racks import Racks, racks_of
from controller.profiles.store import ProfileStore
from controller.profiles.uplinks import links_of
from controller.slurm.configuration.topology import switches_of
from policies.serving.runtime.tasks.supervise import Tasks

_RETRY_S = 10.0
log = structlog.get_logger(__name__)


@asynccontextmanager
async def load_topology(
    set_topology: Callable[[Racks], None],
    agents: AgentsServer | None,
    topology: Callable[[], Awaitable[str]],
    tasks: Tasks | None = None,
) -> AsyncIterator[None]:
    """Read the topology as soon as Slurm answers, and give it to the controller and the store, within the context.

    `topology` returns what `scontrol show topology` prints.
    Without a readable topology all nodes are in one rack, and only jobs on common nodes are neighbours.
    """
    async with (tasks or Tasks()).running("switches", lambda: _load(set_topology, agents, topology), may_end=True):
        yield


async def _load(
    set_topology: Callable[[Racks], None], agents: AgentsServer | None, topology: Callable[[], Awaitable[str]]
) -> None:
    while True:
        try:
            shown = await topology()
            switches = await asyncio.to_thread(switches_of, shown) if shown.strip() else []
            break
        except SlurmUnavailableError:
            await asyncio.sleep(_RETRY_S)
        except (HeadwayError, OSError) as error:
            log.warning("switches_not_known", problem=str(error))
            return
    if not switches:
        return
    racks = racks_of(switches)
    log.info("racks_known", racks=len(set(racks.leaf.values())), with_speed=len(racks.uplink_gbyte_s))
    set_topology(racks)
    if agents is None:
        return

    def use(store: ProfileStore) -> None:
        store.use_links(links_of(switches))

    await agents.use_store(use)
