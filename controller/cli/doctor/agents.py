"""`headway doctor` on node agents: nodes without an agent, clocks that differ, and MUNGE on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controller.base.text import count, duration, listed
from policies.serving.runtime.finding import Finding, Level

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings

_NAMED = 8
"""Maximum number of nodes that a finding names."""
_REFUSED_S = 60.0
"""Maximum time difference of a credential, in seconds; above it the credential is refused."""


@dataclass(frozen=True, slots=True)
class AgentsSeen:
    """The controller's report on node agents, or the reason why it gives none."""

    silent: tuple[tuple[str, float], ...] = ()
    """Nodes whose agent is not connected, with the time since which it is not; 0: it never was."""
    skewed: tuple[tuple[str, float], ...] = ()
    """Nodes whose clock differs, and the seconds by which it is behind the controller's."""
    troubles: tuple[str, ...] = ()
    """A sentence for each background task of an agent that failed within the last hour."""
    nodes: int = 0
    """Number of managed nodes."""
    served: bool = True
    """True when the controller serves agents."""
    problem: str = ""
    munge: str = ""
    """Why this machine cannot make credentials; empty when it can, or needs none."""


async def query_agents(settings: ControllerSettings) -> AgentsSeen | None:
    """Query the controller, and test MUNGE where it is needed. Returns None when the settings have no agents_address."""
    if not settings.agents_address:
        return None
    munge, reported = await asyncio.gather(_munge(settings), asyncio.to_thread(_query, settings))
    return replace(reported, munge=munge)


async def _munge(settings: ControllerSettings) -> str:
    """Return why no credential can be made; empty when one can, or none is needed."""
    from nodeagent.errors import AgentError
    from nodeagent.uplink.endpoint import open_credential_codec, parse_endpoint

    try:
        seal = open_credential_codec(
            parse_endpoint(settings.agents_address), settings.agents_munge, settings.munge_socket
        )
        if seal is not None:
            await seal.encode(b"headway doctor")
    except AgentError as error:
        return str(error)
    return ""


def _query(settings: ControllerSettings) -> AgentsSeen:
    from controller.cli.client import AdminClient, CallError, sockets

    problem = ""
    for path in sockets(settings.runtime_dir):
        try:
            with AdminClient(path) as client:
                reported = client.status().agents
        except CallError as error:
            problem = str(error)
            continue
        return AgentsSeen(
            silent=tuple((node.name, node.since_s) for node in reported.silent),
            skewed=tuple((node.name, node.behind_s) for node in reported.skewed),
            troubles=tuple(reported.troubles),
            nodes=reported.nodes,
            served=reported.served,
        )
    return AgentsSeen(problem=problem)


def agent_findings(seen: AgentsSeen, now_s: float) -> Iterator[Finding]:
    """Yield the findings on agents."""
    if seen.munge:
        mend = "install and start munge here, or see agents_munge and munge_socket in controller.toml"
        yield Finding("agents-munge", Level.ERROR, f"agents cannot authenticate: {seen.munge}", mend)
    if seen.problem:
        yield Finding("agents", Level.SKIPPED, f"the controller does not report on agents: {seen.problem}")
        return
    if not seen.served:
        what = "agents_address is set, but the running controller serves no agents, because it was started before the change"
        yield Finding("agents", Level.ERROR, what, "systemctl restart headway-controller")
        return
    if seen.silent:
        never = "never connected"
        named = [
            f"{name} ({f'for {duration(now_s - since_s)}' if since_s else never})" for name, since_s in seen.silent
        ]
        without = f"{count(len(seen.silent), 'node')} of {seen.nodes} have no agent"
        what = f"{without}: {listed(named, _NAMED)}; nothing is measured there"
        mend = "on those nodes: systemctl status headway-agent; journalctl -u headway-agent"
        yield Finding("agents", Level.WARNING, what, mend)
    else:
        yield Finding("agents", Level.OK, f"agents of all {count(seen.nodes, 'node')} are connected")
    for trouble in seen.troubles[:_NAMED]:
        yield Finding("agents-tasks", Level.WARNING, trouble, "on that node: journalctl -u headway-agent")
    if seen.skewed:
        named = [f"{name} {-behind_s:+.1f} s" for name, behind_s in seen.skewed]
        far = max(abs(behind_s) for _, behind_s in seen.skewed) > _REFUSED_S / 2
        soon = f"; agents whose clock differs by {_REFUSED_S:g} s are refused" if far else ""
        what = f"clocks differ from this machine's: {listed(named, _NAMED)}{soon}"
        yield Finding("agents-clocks", Level.WARNING, what, "run chrony or another NTP client on all machines")
