"""Agents beside the controller: served where the settings say so; and the store is told whom Slurm runs where."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Protocol

import structlog

from controller.agents import AgentsServer, AgentsSettings
from controller.config import ControllerSettings
from controller.cycle import CycleResult
from controller.errors import ConfigurationError
from controller.profile_store import ProfileStore, ProfileStoreError
from controller.slurm.client import SlurmSnapshot
from nodeagent.endpoint import open_seal, parse_endpoint
from nodeagent.errors import AgentError

_PRESENT_EVERY_S = 10.0
"""Several times a window."""
log = structlog.get_logger(__name__)


class Watched(Protocol):
    """What is asked of the controller."""

    settings: ControllerSettings

    @property
    def last(self) -> CycleResult | None:
        """The last good cycle."""


@asynccontextmanager
async def serve_agents(controller: Watched) -> AsyncIterator[AgentsServer | None]:
    """Serve within; None where no address is set. Raises ConfigurationError and ProfileStoreError."""
    settings = controller.settings
    if not settings.agents_address:
        yield None
        return
    try:
        seal = open_seal(parse_endpoint(settings.agents_address), settings.agents_munge, settings.munge_socket)
    except AgentError as error:
        raise ConfigurationError(f"agents_address: {error}") from error
    with closing(ProfileStore(settings.profiles_path)) as store:
        served = AgentsSettings(
            address=settings.agents_address,
            uids=frozenset({0, os.getuid()}),
            certificate=settings.agents_certificate,
            private_key=settings.agents_private_key,
        )
        server = AgentsServer(served, store, seal, knows=lambda node: _is_node(controller, node))
        await server.start()
        noting = asyncio.create_task(_note_present(controller, server), name="agents-present")
        try:
            yield server
        finally:
            noting.cancel()
            await asyncio.gather(noting, return_exceptions=True)
            await server.stop()


def _is_node(controller: Watched, name: str) -> bool:
    """Whether Slurm has such a node; before it was asked, everybody may be one."""
    last = controller.last
    return last is None or any(node.name == name for node in last.observation.snapshot.nodes)


async def _note_present(controller: Watched, server: AgentsServer) -> None:
    """Slurm knows of jobs that report nothing; without it they would not be anybody's neighbours."""
    while True:
        await asyncio.sleep(_PRESENT_EVERY_S)
        if controller.last is None:
            continue
        jobs, now_s = jobs_by_node(controller.last.observation.snapshot), time.time()
        try:
            await server.note_present(now_s, jobs)
        except ProfileStoreError as error:
            log.error("present_not_noted", problem=str(error))


def jobs_by_node(snapshot: SlurmSnapshot) -> dict[str, list[int]]:
    """Numeric ids of jobs that hold something of a node. Array tasks are left out: their own numbers are not in a snapshot."""
    found: dict[str, list[int]] = defaultdict(list)
    for job in snapshot.jobs:
        if job.phase.holds_nodes and job.key.job_id.isdigit():
            for share in job.allocated:
                found[share.node].append(int(job.key.job_id))
    return dict(found)
