"""The agents' service as a part of the controller, and the task that stores Slurm's jobs in the store of profiles."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing

import structlog

from controller.agents.entry.addresses import AgentAddresses
from controller.agents.reports.allocations import Allocations
from controller.agents.server import AgentsServer
from controller.agents.settings import AgentsSettings
from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError
from controller.profiles.current import jobs_by_node, runs_now
from controller.profiles.store import ProfileStore, ProfileStoreError, StoreSettings
from controller.slurm.model.cluster import SlurmSnapshot
from nodeagent.errors import AgentError
from nodeagent.uplink.endpoint import open_credential_codec, parse_endpoint
from nodeagent.uplink.munge import CredentialCodec
from policies.serving.runtime.tasks.supervise import Tasks

_PRESENT_EVERY_S = 10.0
_PRESENT_A_WINDOW = 3
"""Minimum number of times in every window that Slurm's jobs are stored."""
_LATE_REPORTS = 3
"""A window is computed after this many report intervals, when late reports have arrived."""
log = structlog.get_logger(__name__)


Newest = Callable[[], SlurmSnapshot | None]
"""Returns the newest snapshot of Slurm; None before the first."""


@asynccontextmanager
async def serve_agents(
    settings: ControllerSettings, newest: Newest, tasks: Tasks | None = None
) -> AsyncIterator[AgentsServer | None]:
    """Serve agents within the context; yields None when no address is set. Raises ConfigurationError and ProfileStoreError."""
    tasks = tasks or Tasks()
    if not settings.agents_address:
        yield None
        return
    codec = _credential_codec(settings)
    interval_s = settings.agents_report_interval_s
    counted = StoreSettings(
        window_s=settings.agents_window_s, lag_s=_LATE_REPORTS * interval_s, report_interval_s=interval_s
    )
    with closing(ProfileStore(settings.profiles_path, counted)) as store:
        server = AgentsServer(
            _server_settings(settings),
            store,
            codec,
            knows=lambda node: _is_node(newest(), node),
            allocated=Allocations(newest),
            tasks=tasks,
            addresses=AgentAddresses(lambda: _node_addresses(newest()), settings.agents_addresses),
        )
        try:
            await server.start()
            async with tasks.running("agents-present", lambda: _note_present(settings, newest, server)):
                yield server
        finally:
            await server.stop()


def _credential_codec(settings: ControllerSettings) -> CredentialCodec | None:
    """Return the codec that checks the agents' credentials; None where they need none.

    Raises ConfigurationError for an address that cannot be served.
    """
    try:
        return open_credential_codec(
            parse_endpoint(settings.agents_address), settings.agents_munge, settings.munge_socket
        )
    except AgentError as error:
        raise ConfigurationError(f"agents_address: {error}") from error


def _server_settings(settings: ControllerSettings) -> AgentsSettings:
    return AgentsSettings(
        address=settings.agents_address,
        uids=frozenset({0, os.getuid()}),
        certificate=settings.agents_certificate,
        private_key=settings.agents_private_key,
        max_nodes=settings.agents_most,
        report_interval_s=settings.agents_report_interval_s,
        profile_steps=settings.agents_profile_steps,
    )


def _is_node(snapshot: SlurmSnapshot | None, name: str) -> bool:
    """Return whether Slurm has such a node; True before the first snapshot."""
    return snapshot is None or any(node.name == name for node in snapshot.nodes)


def _node_addresses(snapshot: SlurmSnapshot | None) -> dict[str, str]:
    """Return Slurm's NodeAddr of each node; empty before the first snapshot."""
    return {} if snapshot is None else {node.name: node.address for node in snapshot.nodes}


async def _note_present(settings: ControllerSettings, newest: Newest, server: AgentsServer) -> None:
    """Store the jobs that Slurm runs: jobs that report nothing would otherwise be missing among the neighbours."""
    pause_s = min(_PRESENT_EVERY_S, settings.agents_window_s / _PRESENT_A_WINDOW)
    while True:
        await asyncio.sleep(pause_s)
        snapshot, now_s = newest(), time.time()
        if snapshot is None:
            continue
        try:
            await server.note_present(now_s, jobs_by_node(snapshot), runs_now(snapshot))
        except ProfileStoreError as error:
            log.error("present_not_noted", problem=str(error))
