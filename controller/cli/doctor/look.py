"""`headway doctor`: checks an installation, and returns each problem with its remedy.

`look` gathers the observations first; pure functions in `rules` draw the conclusions.

"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from controller.base.errors import ConfigurationError, SlurmError
from controller.base.lease import read_lease
from controller.cli.client import standby_for
from controller.cli.doctor.agents import query_agents
from controller.cli.doctor.host import RealHost
from controller.cli.doctor.rules import findings
from controller.cli.doctor.seen import PolicySeen, Seen, SlurmSeen
from controller.daemon.policy_users import trusted_users
from policies.errors import PolicyError
from policies.serving.peers import TrustedUsers
from policies.serving.runtime.address import parse_address
from policies.serving.runtime.finding import Finding, Level

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.slurm.client import SlurmClient
    from protos.headway.v1 import admin_pb2

__all__ = ["Finding", "Level", "checks", "look"]

_POLICY_DEADLINE_S = 2.0


def _may_open(address: str) -> bool:
    """Return whether this user has the right to connect to the policy server."""
    if not address.startswith("unix:"):
        return True
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            probe.connect(str(parse_address(address).path))
    except PermissionError:
        return False
    except (OSError, PolicyError):
        return True  # the client reports the problem
    return True


QueryPolicy = Callable[[str], Awaitable[PolicySeen]]


def checks(settings: ControllerSettings) -> list[Finding]:
    """Check this machine, its Slurm and the policy server, and return all findings. No finding raises an exception."""
    from controller.slurm.select import command_line_client

    client = None if settings.slurm_client == "embedded" else command_line_client(settings)
    lease = read_lease(settings.lease_path)
    try:
        trusted = trusted_users(settings, lease.controller_uid if lease is not None else 0)
    except ConfigurationError as error:
        return [Finding("settings", Level.ERROR, str(error))]
    seen = asyncio.run(look(settings, client, partial(query_policy, trusted=trusted), time.time()))
    return findings(settings, seen, RealHost())


async def look(settings: ControllerSettings, client: SlurmClient | None, query: QueryPolicy, now_s: float) -> Seen:
    """Query Slurm, the policy server and, where there are agents, the controller, all at once.

    Without a client there is no Slurm to check.
    """
    slurm, policy, agents, running = await asyncio.gather(
        _query_slurm(client),
        query(settings.policy_address),
        query_agents(settings),
        asyncio.to_thread(query_controller, settings),
    )
    lease = read_lease(settings.lease_path)
    standby = standby_for(settings.runtime_dir)
    seen = Seen(slurm=slurm, policy=policy, lease=lease, now_s=now_s, agents=agents, standby=standby)
    if running is None:
        return seen
    status, answered_s = running
    return replace(
        seen,
        troubles=tuple(status.troubles),
        left_out=tuple((one.part, one.errors) for one in status.left_out),
        version=status.version,
        started_s=answered_s - status.uptime_s,
    )


async def _query_slurm(client: SlurmClient | None) -> SlurmSeen | None:
    if client is None:
        return None
    try:
        facts = await client.facts()
        snapshot = await client.snapshot()
    except SlurmError as error:
        return SlurmSeen(problem=str(error))
    return SlurmSeen(facts=facts, partitions=snapshot.partitions, nodes=snapshot.nodes)


def query_controller(settings: ControllerSettings) -> tuple[admin_pb2.Status, float] | None:
    """Return the controller's status and the time of the answer, seconds since the Unix epoch.

    Returns None when the controller does not answer, which the check of the lease reports. The other queries may take long, so a
    time before or after them would not fit the uptime in the answer.
    """
    from controller.cli.client import AdminClient, CallError, sockets

    for path in sockets(settings.runtime_dir):
        try:
            with AdminClient(path) as client:
                return client.status(), time.time()
        except CallError:
            continue
    return None


async def query_policy(address: str, trusted: TrustedUsers | None = None) -> PolicySeen:
    """Return health and description of the policy server, if its process belongs to a trusted user (None: any user)."""
    from policies.serving.client import PolicyClient

    if not _may_open(address):
        return PolicySeen(may_look=False)
    try:
        async with PolicyClient(address, trusted) as client:
            spec = await client.describe(_POLICY_DEADLINE_S)
            return PolicySeen(spec=spec, healthy=await client.healthy(_POLICY_DEADLINE_S))
    except PolicyError as error:
        return PolicySeen(problem=str(error))
