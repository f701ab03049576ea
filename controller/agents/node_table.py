"""The connected agents, and the state of each node's agent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import grpc
import structlog

from controller.agents.entry.admission import RefusedError
from controller.agents.entry.connections import End
from controller.agents.stream import AgentStream
from controller.profiles.sightings import Arrival
from protos.headway.v1 import agent_pb2

log = structlog.get_logger(__name__)

_FORGET_S = 86400.0
"""A node whose agent has been gone for this time is removed from the table."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """State of one node's agent. Invariant: it never changes; a later state is another object."""

    node: str
    connected: bool
    since_s: float
    """Unix time since which the agent is connected, or since which it is not."""
    version: str
    boot_id: str
    run_id: str
    clock_behind_s: float
    """Seconds by which the node's clock is behind the controller's, from the newest report. Before the first report it comes from
    the hello, and includes the time that it took to connect."""
    streams: int = 0
    """Number of streams that this node has opened since the controller started."""
    reports: int = 0
    """Number of reports stored since the controller started."""
    dropped: int = 0
    """Number of reports that this run of the agent has dropped because its queue was full, as the agent reports."""
    topology: agent_pb2.NodeTopology = field(default_factory=agent_pb2.NodeTopology)
    telemetry: agent_pb2.NodeTelemetry | None = None
    """The newest telemetry; None before the first."""


class NodeTable:
    """Invariant: at most one stream for each node."""

    def __init__(self, max_nodes: int, now: Callable[[], float] = time.time) -> None:
        """`now`: Unix time, seconds; `forget` has to be called with times of the same clock."""
        self._max_nodes = max_nodes
        self._now = now
        self._streams: dict[str, AgentStream] = {}
        """Open streams, at most `max_nodes`. Bound: `max_nodes`."""
        self._nodes: dict[str, NodeStatus] = {}
        """Nodes of Slurm whose agents are connected, or have been within a day (`forget`).
        Bound: the names that Slurm has had for nodes within a day."""
        self._changes = 0
        """Number of changes of `_nodes`."""
        self._copied: tuple[int, Mapping[str, NodeStatus]] = (0, MappingProxyType({}))
        """Copy of `_nodes` for callers, and the number of changes that it certainly has."""

    @property
    def nodes(self) -> Mapping[str, NodeStatus]:
        """Every node whose agent was connected recently: a copy that does not change, so that callers may wait between two looks.

        Without a change in between, all callers get the same copy: a cycle asks once for each job. The exporter's thread calls it
        too.
        """
        changes, copied = self._copied
        if changes != self._changes:
            changes = self._changes  # read before the copy: a change during the copy leads to another one
            copied = MappingProxyType(self._nodes.copy())
            self._copied = changes, copied
        return copied

    def stream_of(self, node: str) -> AgentStream | None:
        """Return the open stream of a node; None when there is none."""
        return self._streams.get(node)

    def streams(self) -> list[AgentStream]:
        """Return all open streams."""
        return list(self._streams.values())

    def ends(self) -> set[End]:
        """Return the remote addresses of the connections that carry an agent."""
        return {stream.other_end for stream in self._streams.values() if stream.other_end is not None}

    def check_room(self, node: str) -> None:
        """Raise RefusedError while as many other agents are connected as may be."""
        if node not in self._streams and len(self._streams) >= self._max_nodes:
            raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._max_nodes} agents are connected")

    def enter(self, stream: AgentStream, hello: agent_pb2.AgentHello) -> None:
        """Make this the stream of its node; an earlier stream of the node is closed. Raises RefusedError."""
        before = self._streams.get(stream.node)
        if before is not None:
            if before.called_s >= stream.called_s:
                raise RefusedError(grpc.StatusCode.ABORTED, f"a later stream of {stream.node} is open")
            before.end(grpc.StatusCode.ABORTED, f"{stream.node} has opened a newer stream")
        self.check_room(stream.node)
        self._streams[stream.node] = stream
        known = self._nodes.get(stream.node)
        self._set(
            NodeStatus(
                node=stream.node,
                connected=True,
                since_s=self._now(),
                version=hello.agent_version,
                boot_id=hello.boot_id,
                run_id=hello.run_id,
                clock_behind_s=stream.offset_s,
                streams=1 if known is None else known.streams + 1,
                reports=0 if known is None else known.reports,
                topology=hello.topology,
                telemetry=None if known is None else known.telemetry,
            )
        )
        log.info("agent_connected", node=stream.node, version=hello.agent_version, again=known is not None)

    def leave(self, stream: AgentStream) -> None:
        """Remove a stream that has ended."""
        if self._streams.get(stream.node) is not stream:
            return  # a later stream of the node has taken its place
        del self._streams[stream.node]
        self._set(replace(self._nodes[stream.node], connected=False, since_s=self._now()))
        log.info("agent_gone", node=stream.node)

    def note_report(self, arrival: Arrival) -> None:
        """Update the node's state from a report that was stored."""
        status = self._nodes.get(arrival.node)
        if status is None:
            return
        changes: dict[str, Any] = {"reports": status.reports + 1}
        if arrival.run_id == status.run_id and arrival.report.WhichOneof("kind") is not None:
            changes["dropped"] = arrival.report.dropped
            if arrival.made_s is not None:
                changes["clock_behind_s"] = arrival.made_s - arrival.report.time_s
        if arrival.report.WhichOneof("kind") == "telemetry":
            changes["telemetry"] = arrival.report.telemetry
        self._set(replace(status, **changes))

    def forget(self, now_s: float) -> None:
        """Remove the nodes whose agents have been gone for a day."""
        for node in list(self._gone(now_s)):
            del self._nodes[node]
            self._changes += 1

    def _set(self, status: NodeStatus) -> None:
        self._nodes[status.node] = status
        self._changes += 1

    def _gone(self, now_s: float) -> Iterator[str]:
        for node, status in self._nodes.items():
            if not status.connected and now_s - status.since_s > _FORGET_S:
                yield node
