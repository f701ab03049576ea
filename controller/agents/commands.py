"""Commands to agents that are said again until they are answered: a stream may break, and an agent may start anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from protos.headway.v1 import agent_pb2


class CommandSender(Protocol):
    """The way to agents: controller.agents.server.AgentsServer."""

    def send_command(self, node: str, command: agent_pb2.AgentCommand) -> bool:
        """Send a command; False: the node is not connected, or too many commands wait."""


class PendingCommand:
    """One command to the agents of some nodes. Invariant: of each node the first answer counts."""

    def __init__(
        self, id_: str, nodes: Iterable[str], make: Callable[[], agent_pb2.AgentCommand], until: float
    ) -> None:
        """`make` gives the command as it is to be said now; it is given up at `until`."""
        self.id = id_
        self.nodes = frozenset(nodes)
        self.answers: dict[str, agent_pb2.CommandAnswer] = {}
        self.delivered: set[str] = set()
        """Nodes to whose present stream it was given."""
        self.reconnected: set[str] = set()
        """Nodes whose stream began after the command was first given: perhaps a new run of the agent."""
        self.until = until
        self._make = make

    @property
    def open(self) -> frozenset[str]:
        """Nodes that have not answered."""
        return self.nodes - self.answers.keys()

    def send(self, sender: CommandSender) -> None:
        """To those who have neither heard nor answered it."""
        for node in self.open - self.delivered:
            if sender.send_command(node, self._command()):
                self.delivered.add(node)

    def _command(self) -> agent_pb2.AgentCommand:
        command = self._make()
        command.id = self.id
        return command


class AgentCommands:
    """Invariant: a command goes to every stream of a node that it is for, until that node has answered or it is given up."""

    def __init__(self, sender: CommandSender) -> None:
        self._sender = sender
        self._open: dict[str, PendingCommand] = {}

    def send(self, pending: PendingCommand) -> PendingCommand:
        """Say it, and keep saying it."""
        self._open[pending.id] = pending
        pending.send(self._sender)
        return pending

    def drop(self, pending: PendingCommand) -> None:
        """Answers no longer matter."""
        self._open.pop(pending.id, None)

    def on_connected(self, node: str) -> None:
        """A stream of that node has begun: what was said on the one before may be lost."""
        for pending in self._open.values():
            if node in pending.open:
                pending.reconnected.add(node)
                pending.delivered.discard(node)
                pending.send(self._sender)

    def on_answer(self, node: str, answer: agent_pb2.CommandAnswer) -> bool:
        """Whether somebody waited for it."""
        pending = self._open.get(answer.id)
        if pending is None or node not in pending.open:
            return False
        pending.answers[node] = answer
        if not pending.open:
            del self._open[pending.id]
        return True

    def repeat(self, now: float) -> None:
        """Say again what could not be said, and give up what is too late."""
        for pending in list(self._open.values()):
            if now >= pending.until:
                del self._open[pending.id]
            else:
                pending.send(self._sender)
