"""`headway doctor`: check an installation for everything that can be wrong, with the repair of each.

`look` gathers the observations first; pure functions in `rules` draw the conclusions.

"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from controller.base.errors import ConfigurationError, SlurmError
from controller.base.lease import read_lease
from controller.cli.doctor.agents import look_at_agents
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
        return True  # the client reports what is wrong there
    return True


AskPolicy = Callable[[str], Awaitable[PolicySeen]]


def checks(settings: ControllerSettings) -> list[Finding]:
    """Check this machine, its Slurm and the policy server, and return all findings. Never raises on what it finds."""
    from controller.slurm.select import command_line_client

    client = None if settings.slurm_client == "embedded" else command_line_client(settings)
    lease = read_lease(settings.lease_path)
    try:
        trusted = trusted_users(settings, lease.controller_uid if lease is not None else 0)
    except ConfigurationError as error:
        return [Finding("settings", Level.ERROR, str(error))]
    seen = asyncio.run(look(settings, client, partial(ask_policy, trusted=trusted), time.time()))
    return findings(settings, seen, RealHost())


async def look(settings: ControllerSettings, client: SlurmClient | None, ask: AskPolicy, now_s: float) -> Seen:
    """Ask Slurm, the policy server and, where there are agents, the controller, all at once.

    Without a client there is no Slurm to look at.
    """
    slurm, policy, agents, troubles = await asyncio.gather(
        _ask_slurm(client),
        ask(settings.policy_address),
        look_at_agents(settings),
        asyncio.to_thread(ask_troubles, settings),
    )
    lease = read_lease(settings.lease_path)
    return Seen(slurm=slurm, policy=policy, lease=lease, now_s=now_s, agents=agents, troubles=troubles)


async def _ask_slurm(client: SlurmClient | None) -> SlurmSeen | None:
    if client is None:
        return None
    try:
        facts = await client.facts()
        snapshot = await client.snapshot()
    except SlurmError as error:
        return SlurmSeen(problem=str(error))
    return SlurmSeen(facts=facts, partitions=snapshot.partitions, nodes=snapshot.nodes)


def ask_troubles(settings: ControllerSettings) -> tuple[str, ...]:
    """Return the failing background tasks of the controller; none when it does not answer, which the check of the lease reports."""
    from controller.cli.client import AdminClient, AskError, sockets

    for path in sockets(settings.runtime_dir):
        try:
            with AdminClient(path) as client:
                return tuple(client.status().troubles)
        except AskError:
            continue
    return ()


async def ask_policy(address: str, trusted: TrustedUsers | None = None) -> PolicySeen:
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
