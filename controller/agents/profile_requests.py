"""Requests for a new profile of a running job, to the agents of its nodes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from controller.agents.commands import AgentCommands, CommandSender, PendingCommand
from protos.headway.v1 import agent_pb2

ANSWER_S = 3.0
"""Time in which the agents have to answer, in seconds. An agent answers when it has passed the request on to the ranks."""
MOST_STEPS = 1000
"""Maximum number of steps of a profile; agents refuse more."""


class _Agents(CommandSender, Protocol):
    """The server of agents."""

    @property
    def listeners(self) -> list[Callable[[str, agent_pb2.AgentReport], None]]:
        """Functions that are called with every stored report."""


class ProfileRequests:
    """Invariant: a request is sent once. What an agent does not receive in time is reported, and not sent later."""

    def __init__(self, agents: _Agents) -> None:
        self._commands = AgentCommands(agents)
        self._answered: dict[str, asyncio.Event] = {}
        """Set when a node has answered, by id of the request. Bound: the calls under way."""
        agents.listeners.append(self.on_report)

    async def request(
        self, nodes: Iterable[str], job: agent_pb2.JobName, steps: int, within_s: float = ANSWER_S
    ) -> Mapping[str, str]:
        """Request a profile of the job's next `steps` optimizer steps. Returns the problem by node; empty: its ranks have it."""

        def make() -> agent_pb2.AgentCommand:
            return agent_pb2.AgentCommand(job=job, profile=agent_pb2.ProfileRequest(steps=steps))

        id_ = f"profile-{secrets.token_hex(8)}"
        event = self._answered[id_] = asyncio.Event()
        pending = self._commands.send(PendingCommand(id_, nodes, make, until=0.0))
        try:
            async with asyncio.timeout(within_s):
                while pending.open & pending.delivered:
                    event.clear()
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            self._commands.drop(pending)
            del self._answered[id_]
        return {node: _problem(pending, node, within_s) for node in sorted(pending.nodes)}

    def on_report(self, node: str, report: agent_pb2.AgentReport) -> None:
        """Process an answer of an agent; other reports do not matter."""
        if report.WhichOneof("kind") == "answer" and self._commands.on_answer(node, report.answer):
            self._answered[report.answer.id].set()


def _problem(pending: PendingCommand, node: str, within_s: float) -> str:
    answer = pending.answers.get(node)
    if answer is not None:
        return "" if answer.accepted else answer.problem or "its agent gave no reason"
    if node not in pending.delivered:
        return "its agent is not connected"
    return f"its agent has not answered within {within_s:g} s"
