"""`headway doctor`: everything that can be wrong with an installation, each with the mend.

What is looked at is gathered first (`look`); what it means is told by pure functions of that (`doctor_rules`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from controller.doctor_agents import look_at_agents
from controller.doctor_host import RealHost
from controller.doctor_rules import Finding, Level, PolicySeen, Seen, SlurmSeen, findings
from controller.errors import SlurmError
from controller.lease import read_lease
from policies.errors import PolicyError

if TYPE_CHECKING:
    from controller.config import ControllerSettings
    from controller.slurm.client import SlurmClient

__all__ = ["Finding", "Level", "checks", "look"]

_POLICY_DEADLINE_S = 2.0

AskPolicy = Callable[[str], Awaitable[PolicySeen]]


def checks(settings: ControllerSettings) -> list[Finding]:
    """Look at this machine, its Slurm and the policy server, and tell what is right and wrong. Never raises on what it finds."""
    from controller.slurm.select import command_line_client

    client = None if settings.slurm_client == "embedded" else command_line_client(settings)
    host = RealHost()
    seen = asyncio.run(look(settings, client, ask_policy, time.time()))
    return findings(settings, seen, host)


async def look(settings: ControllerSettings, client: SlurmClient | None, ask: AskPolicy, now_s: float) -> Seen:
    """Ask Slurm, the policy server and, where there are agents, the controller, all at once.

    Without a client there is no Slurm to look at.
    """
    slurm, policy, agents = await asyncio.gather(
        _ask_slurm(client), ask(settings.policy_address), look_at_agents(settings)
    )
    return Seen(slurm=slurm, policy=policy, lease=read_lease(settings.lease_path), now_s=now_s, agents=agents)


async def _ask_slurm(client: SlurmClient | None) -> SlurmSeen | None:
    if client is None:
        return None
    try:
        facts = await client.facts()
        snapshot = await client.snapshot()
    except SlurmError as error:
        return SlurmSeen(problem=str(error))
    return SlurmSeen(facts=facts, partitions=snapshot.partitions, nodes=snapshot.nodes)


async def ask_policy(address: str) -> PolicySeen:
    """Health and description of the policy server there."""
    from policies.client import PolicyClient

    try:
        async with PolicyClient(address) as client:
            spec = await client.describe(_POLICY_DEADLINE_S)
            return PolicySeen(spec=spec, healthy=await client.healthy(_POLICY_DEADLINE_S))
    except PolicyError as error:
        return PolicySeen(problem=str(error))
