"""Commands to agents that are said again until they are answered: a stream may break, and an agent may start anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from protos.headway.v1 import agent_pb2


class Line(Protocol):
    """The way to agents: controller.agents.server.AgentsServer."""

    def tell(self, node: str, command: agent_pb2.AgentCommand) -> bool:
        """Send a command; False: the node is not connected, or too many commands wait."""


class Asking:
    """One command to the agents of some nodes. Invariant: of each node the first answer counts."""

    def __init__(
        self, id_: str, nodes: Iterable[str], make: Callable[[], agent_pb2.AgentCommand], until: float
    ) -> None:
        """`make` gives the command as it is to be said now; it is given up at `until`."""
        self.id = id_
        self.nodes = frozenset(nodes)
        self.answers: dict[str, agent_pb2.CommandAnswer] = {}
        self.said: set[str] = set()
        """Nodes to whose present stream it was given."""
        self.came_back: set[str] = set()
        """Nodes whose stream began after the command was first given: perhaps a new run of the agent."""
        self.until = until
        self._make = make

    @property
    def open(self) -> frozenset[str]:
        """Nodes that have not answered."""
        return self.nodes - self.answers.keys()

    def say(self, line: Line) -> None:
        """To those who have neither heard nor answered it."""
        for node in self.open - self.said:
            if line.tell(node, self._command()):
                self.said.add(node)

    def _command(self) -> agent_pb2.AgentCommand:
        command = self._make()
        command.id = self.id
        return command


class AgentCommands:
    """Invariant: a command goes to every stream of a node that it is for, until that node has answered or it is given up."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._open: dict[str, Asking] = {}

    def ask(self, asking: Asking) -> Asking:
        """Say it, and keep saying it."""
        self._open[asking.id] = asking
        asking.say(self._line)
        return asking

    def drop(self, asking: Asking) -> None:
        """Answers no longer matter."""
        self._open.pop(asking.id, None)

    def on_connected(self, node: str) -> None:
        """A stream of that node has begun: what was said on the one before may be lost."""
        for asking in self._open.values():
            if node in asking.open:
                asking.came_back.add(node)
                asking.said.discard(node)
                asking.say(self._line)

    def on_answer(self, node: str, answer: agent_pb2.CommandAnswer) -> bool:
        """Whether somebody waited for it."""
        asking = self._open.get(answer.id)
        if asking is None or node not in asking.open:
            return False
        asking.answers[node] = answer
        if not asking.open:
            del self._open[asking.id]
        return True

    def repeat(self, now: float) -> None:
        """Say again what could not be said, and give up what is too late."""
        for asking in list(self._open.values()):
            if now >= asking.until:
                del self._open[asking.id]
            else:
                asking.say(self._line)
