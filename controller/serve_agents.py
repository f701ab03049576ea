"""Agents beside the controller: served where the settings say so; and the store is told whom Slurm runs where."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Protocol

import structlog

from controller.agents import AgentsServer, AgentsSettings
from controller.config import ControllerSettings
from controller.contention import jobs_by_node, runs_now
from controller.cycle import CycleResult
from controller.errors import ConfigurationError
from controller.profile_store import ProfileStore, ProfileStoreError, StoreSettings
from nodeagent.endpoint import open_seal, parse_endpoint
from nodeagent.errors import AgentError

_PRESENT_EVERY_S = 10.0
_PRESENT_A_WINDOW = 3
"""Slurm's word is noted so often in every window, at least."""
_LATE_REPORTS = 3
"""A window is worked out when the reports of so many intervals after it have had time to come."""
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
    counted = StoreSettings(window_s=settings.agents_window_s, lag_s=_LATE_REPORTS * settings.agents_report_interval_s)
    with closing(ProfileStore(settings.profiles_path, counted)) as store:
        served = AgentsSettings(
            address=settings.agents_address,
            uids=frozenset({0, os.getuid()}),
            certificate=settings.agents_certificate,
            private_key=settings.agents_private_key,
            report_interval_s=settings.agents_report_interval_s,
            profile_steps=settings.agents_profile_steps,
        )
        server = AgentsServer(served, store, seal, knows=lambda node: _is_node(controller, node))
        await server.start()
        task = asyncio.create_task(_note_present(controller, server), name="agents-present")
        try:
            yield server
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await server.stop()


def _is_node(controller: Watched, name: str) -> bool:
    """Whether Slurm has such a node; before it was asked, everybody may be one."""
    last = controller.last
    return last is None or any(node.name == name for node in last.observation.snapshot.nodes)


async def _note_present(controller: Watched, server: AgentsServer) -> None:
    """Slurm knows of jobs that report nothing; without it they would not be anybody's neighbours."""
    pause_s = min(_PRESENT_EVERY_S, controller.settings.agents_window_s / _PRESENT_A_WINDOW)
    while True:
        await asyncio.sleep(pause_s)
        if controller.last is None:
            continue
        snapshot, now_s = controller.last.observation.snapshot, time.time()
        try:
            await server.note_present(now_s, jobs_by_node(snapshot), runs_now(snapshot))
        except ProfileStoreError as error:
            log.error("present_not_noted", problem=str(error))
