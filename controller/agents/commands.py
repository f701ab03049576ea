"""Commands to agents, repeated until they are answered: a stream can break, and an agent can restart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from protos.headway.v1 import agent_pb2


class CommandSender(Protocol):
    """Sends commands to agents: controller.agents.server.AgentsServer."""

    def send_command(self, node: str, command: agent_pb2.AgentCommand) -> bool:
        """Send a command. Returns False when the node is not connected, or too many commands wait."""


class PendingCommand:
    """One command to the agents of some nodes. Invariant: the first answer of each node counts."""

    def __init__(
        self, id_: str, nodes: Iterable[str], make: Callable[[], agent_pb2.AgentCommand], until: float
    ) -> None:
        """`make` gives the command in its present form; after the time `until` it is no longer sent."""
        self.id = id_
        self.nodes = frozenset(nodes)
        self.answers: dict[str, agent_pb2.CommandAnswer] = {}
        """Bound: `nodes`."""
        self.delivered: set[str] = set()
        """Nodes to whose present stream it was sent. Bound: `nodes`."""
        self.reconnected: set[str] = set()
        """Nodes whose stream began after the command was first sent: the agent may have restarted. Bound: `nodes`."""
        self.until = until
        self._make = make

    @property
    def open(self) -> frozenset[str]:
        """Nodes that have not answered."""
        return self.nodes - self.answers.keys()

    def send(self, sender: CommandSender) -> None:
        """Send the command to the nodes that have neither received nor answered it."""
        for node in self.open - self.delivered:
            if sender.send_command(node, self._command()):
                self.delivered.add(node)

    def _command(self) -> agent_pb2.AgentCommand:
        command = self._make()
        command.id = self.id
        return command


class AgentCommands:
    """Invariant: a command is sent on every new stream of its nodes, until the node has answered or its time is over."""

    def __init__(self, sender: CommandSender) -> None:
        self._sender = sender
        self._open: dict[str, PendingCommand] = {}
        """By id. A command leaves it when it is answered, withdrawn or too old. Bound: preemptions and profiles under way."""

    def send(self, pending: PendingCommand) -> PendingCommand:
        """Send a command now and on every new stream."""
        self._open[pending.id] = pending
        pending.send(self._sender)
        return pending

    def drop(self, pending: PendingCommand) -> None:
        """Stop sending a command; its answers no longer matter."""
        self._open.pop(pending.id, None)

    def on_connected(self, node: str) -> None:
        """Handle a new stream of that node: commands on the stream before may be lost."""
        for pending in self._open.values():
            if node in pending.open:
                pending.reconnected.add(node)
                pending.delivered.discard(node)
                pending.send(self._sender)

    def on_answer(self, node: str, answer: agent_pb2.CommandAnswer) -> bool:
        """Record an answer. Returns False when no command waits for it."""
        pending = self._open.get(answer.id)
        if pending is None or node not in pending.open:
            return False
        pending.answers[node] = answer
        if not pending.open:
            del self._open[pending.id]
        return True

    def repeat(self, now: float) -> None:
        """Send the commands that could not be sent, and drop commands whose time is over."""
        for pending in list(self._open.values()):
            if now >= pending.until:
                del self._open[pending.id]
            else:
                pending.send(self._sender)
