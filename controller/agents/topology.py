"""Reads Slurm's tree of switches once: policies receive the racks, the store of profiles the links that jobs share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from controller.agents.server import AgentsServer
from controller.base.errors import HeadwayError, SlurmUnavailableError
from controller.profiles.racks import ONE_RACK, Racks, racks_of
from controller.profiles.store import ProfileStore
from controller.profiles.uplinks import links_of
from controller.profiles.windows import Links, own_nodes
from controller.slurm.configuration.topology import switches_of
from policies.serving.runtime.tasks.backoff import Backoff, Retries
from policies.serving.runtime.tasks.supervise import Tasks

_AWAY_S = 10.0
"""Pause while Slurm does not answer, seconds."""
_PAUSES = Backoff(first_s=10.0, longest_s=600.0)
"""Pauses after answers that are not understood: the next may be, or the site mends its topology."""
log = structlog.get_logger(__name__)


@asynccontextmanager
async def load_topology(
    set_topology: Callable[[Racks], None],
    agents: AgentsServer | None,
    topology: Callable[[], Awaitable[str]],
    tasks: Tasks | None = None,
) -> AsyncIterator[None]:
    """Read the topology as soon as Slurm answers, and give it to the controller and the store, within the context.

    `topology` returns what `scontrol show topology` prints. It is asked again until its answer is understood.
    Until then all nodes are in one rack, and only jobs on common nodes are neighbours.
    """
    async with (tasks or Tasks()).running("switches", lambda: _load(set_topology, agents, topology), may_end=True):
        yield


async def _load(
    set_topology: Callable[[Racks], None], agents: AgentsServer | None, topology: Callable[[], Awaitable[str]]
) -> None:
    racks, links = await _understood(topology)
    set_topology(racks)
    if not racks.leaf:
        return
    log.info("racks_known", racks=len(set(racks.leaf.values())), with_speed=len(racks.uplink_gbyte_s))
    if agents is None:
        return

    def use(store: ProfileStore) -> None:
        store.use_links(links)

    await agents.use_store(use)


async def _understood(topology: Callable[[], Awaitable[str]]) -> tuple[Racks, Links]:
    """Return Slurm's racks and links, as soon as an answer is understood. A problem is logged once while it stays the same.

    Where Slurm shows no switches, all nodes are in one rack.
    """
    retries, problem = Retries(_PAUSES), ""
    while True:
        try:
            shown = await topology()
            if not shown.strip():
                return ONE_RACK, own_nodes
            switches = await asyncio.to_thread(switches_of, shown)
            return racks_of(switches), links_of(switches)
        except SlurmUnavailableError:
            await asyncio.sleep(_AWAY_S)
        except (HeadwayError, OSError) as error:
            if str(error) != problem:
                problem = str(error)
                log.warning("switches_not_known", problem=problem)
            await asyncio.sleep(retries.next_s())
