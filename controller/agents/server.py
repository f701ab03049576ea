"""The controller's end of the agents' streams: a gRPC service on an address of its own.

A report is acknowledged when the store has it. Who is there, since when, and what it last measured is kept by node. Whatever one
agent sends, or fails to read, the others do not feel: each has its own bounds, and all share one queue to the store that
holds them back when the store is slow.
"""

# ruff: noqa: ARG002, N802 - gRPC gives the methods their names and arguments

from __future__ import annotations

import asyncio
import resource
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import structlog

from controller.agents.addresses import AgentAddresses
from controller.agents.admission import Admission, Admitted, RefusedError
from controller.agents.claims import link_bits_per_s
from controller.agents.connections import Connections, End
from controller.agents.gate import QUIET_CONNECTIONS, Gate, Refusals
from controller.agents.report_screen import Allocated, ReportScreen
from controller.agents.stream import AgentStream
from controller.base.errors import ConfigurationError
from controller.profiles.sightings import Arrival
from controller.profiles.store import ProfileStore, ProfileStoreError
from controller.profiles.windows import SlurmRun
from nodeagent.errors import AgentError
from nodeagent.uplink.endpoint import Endpoint, parse_endpoint, require_local
from nodeagent.uplink.munge import CredentialCodec
from nodeagent.uplink.stream import MAX_MESSAGE_BYTES
from policies.errors import ListenError
from policies.serving.runtime.listen import make_way, remove, umask
from policies.serving.runtime.single_thread import Worker
from policies.serving.runtime.supervise import Tasks
from policies.serving.runtime.token_bucket import TokenBucket
from protos.headway.v1 import agent_pb2, agent_pb2_grpc

if TYPE_CHECKING:
    from controller.agents.stream import Context

log = structlog.get_logger(__name__)

_SPARE_CONNECTIONS = 4096
"""Connections beyond those of agents that are let in: of streams that end while their node dials anew, of who is refused, and of
who says nothing, until these are cut off."""
_CALM_FILES = 512
"""With so many open files beside agents' nobody can have taken so many places that they are scarce."""
_SPARE_FILES = 512
"""Files that the rest of the controller may have open."""
_BATCH = 512
_GATHER_S = 0.05
"""What arrives within this time is written, and acknowledged, at once."""
_MAX_WAITING = 10_000
"""Reports of all agents that wait to be stored."""
_WORK_OUT_EVERY_S = 5.0
_PRUNE_EVERY_S = 600.0
_STORE_AGAIN_S = 1.0
_FORGET_S = 86400.0
"""For so long a node that is gone is remembered."""
_GRACE_S = 0.5

Listener = Callable[[str, agent_pb2.AgentReport], None]
"""Told of every report once, when it is stored; in the event loop, so it must not wait, and must not raise."""
Greeter = Callable[[str], None]
"""Told of every node whose stream begins, likewise."""


@dataclass(frozen=True, slots=True)
class AgentsSettings:
    """How agents are served."""

    address: str
    """host:port, or unix:///path (mode 0600)."""
    uids: frozenset[int] = frozenset({0})
    """Users that may be agents: root, and SlurmUser."""
    certificate: Path | None = None
    """PEM file of the certificate chain for TLS; None: no TLS."""
    private_key: Path | None = None
    """PEM file of its key."""
    max_nodes: int = 4096
    """Agents that may be connected."""
    max_opening: int = 256
    """Calls that may be between their beginning and their hello,"""
    max_opening_a_host: int = 16
    """and those of one machine among them."""
    max_connections_a_host: int = 32
    """Connections of one machine that carry no agent."""
    hello_timeout_s: float = 10.0
    beat_s: float = 8.0
    """The last acknowledgement is said again after so long without one."""
    silence_s: float = 30.0
    """An agent that says nothing for so long is given up."""
    rate_per_s: float = 200.0
    """Messages of one agent that are read for long; more wait."""
    burst: int = 2000
    report_interval_s: float = 5.0
    """What agents are told: how often to report,"""
    profile_steps: int = 20
    """and for how many steps a job is profiled at its start."""


@dataclass(slots=True)
class NodeStatus:
    """What is known of one node's agent."""

    node: str
    connected: bool
    since_s: float
    """Since when it is connected, or not."""
    last_seen_s: float
    version: str
    boot_id: str
    run_id: str
    clock_behind_s: float
    """What the node's clock lacks to the controller's, as of its newest report; before it, of its hello (with the dialling)."""
    streams: int = 0
    reports: int = 0
    """Stored since the controller started."""
    dropped: int = 0
    """Given up by this run of the agent for want of room, as it says."""
    topology: agent_pb2.NodeTopology = field(default_factory=agent_pb2.NodeTopology)
    telemetry: agent_pb2.NodeTelemetry | None = None
    """The newest."""


class AgentsServer(agent_pb2_grpc.AgentsServicer):
    """Serves agents. Invariant: at most one stream by node, and the store is touched by one thread alone."""

    def __init__(
        self,
        settings: AgentsSettings,
        store: ProfileStore,
        seal: CredentialCodec | None,
        listener: Listener = lambda _node, _report: None,
        knows: Callable[[str], bool] = lambda _: True,
        allocated: Allocated | None = None,
        tasks: Tasks | None = None,
        addresses: AgentAddresses | None = None,
    ) -> None:
        """Without `seal` only Unix sockets and loopback addresses are served. Raises ConfigurationError."""
        self._settings = settings
        try:
            self._endpoint = parse_endpoint(settings.address)
            if seal is None:
                require_local(self._endpoint)
        except AgentError as error:
            raise ConfigurationError(f"agents_address: {error}") from error
        if (settings.certificate is None) != (settings.private_key is None):
            raise ConfigurationError("TLS needs both a certificate and its private key; give both, or none")
        self._store = store
        self.listeners: list[Listener] = [listener]
        self.greeters: list[Greeter] = []
        self._admission = Admission(seal, settings.uids, knows)
        self._worker = Worker("profile-store")
        self._arrivals: asyncio.Queue[tuple[AgentStream, Arrival]] = asyncio.Queue(_MAX_WAITING)
        self._streams: dict[str, AgentStream] = {}
        self._nodes: dict[str, NodeStatus] = {}
        self._gate = Gate(settings.max_opening, settings.max_opening_a_host)
        self._refusals = Refusals()
        self._addresses = addresses
        self._screen = ReportScreen(allocated)
        self.reports = 0
        """Stored since the start."""
        self.left_out: Mapping[str, int] = self._screen.counted
        """Reports that were not used, since the start: by reason."""
        self.refused: Mapping[str, int] = self._refusals.counted
        """Streams that were refused, or ended for a cause, since the start: by gRPC's word for why."""
        self._server = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_metadata_size", 32 << 10),
                ("grpc.max_allowed_incoming_connections", settings.max_nodes + _SPARE_CONNECTIONS),
                *QUIET_CONNECTIONS,
            )
        )
        self._tasks = Tasks() if tasks is None else tasks
        self._running = AsyncExitStack()
        self._batch: list[tuple[AgentStream, Arrival]] = []
        """What is about to be stored."""
        self.address = settings.address
        """Where it listens; after `start` with the port that it got."""

    @property
    def nodes(self) -> Mapping[str, NodeStatus]:
        """Every node that was heard of lately."""
        for node, stream in self._streams.items():
            self._nodes[node].last_seen_s = stream.last_seen_s
        return self._nodes

    def tell(self, node: str, command: agent_pb2.AgentCommand) -> bool:
        """Send a command; False: the node is not connected, or too many commands wait. The answer comes as a report."""
        stream = self._streams.get(node)
        return stream is not None and stream.tell(agent_pb2.ControllerBody(command=command))

    async def use_store(self, work: Callable[[ProfileStore], Any]) -> Any:
        """Do something with the store, in the thread that it belongs to."""
        return await self._worker.run(lambda: work(self._store))

    async def note_present(
        self, time_s: float, jobs_by_node: Mapping[str, Iterable[int]], runs: Iterable[SlurmRun]
    ) -> None:
        """What Slurm has running where; see ProfileStore. Raises ProfileStoreError."""
        await self._worker.run(partial(self._store.note_present, time_s, jobs_by_node, runs))

    # --- life

    async def start(self) -> None:
        """Listen. Raises ConfigurationError."""
        _allow_files(self._settings.max_nodes + _SPARE_CONNECTIONS + _SPARE_FILES)
        agent_pb2_grpc.add_AgentsServicer_to_server(self, self._server)
        self.address = str(self._listen())
        await self._server.start()
        await self._running.enter_async_context(self._tasks.running("agents-store", self._storing))
        await self._running.enter_async_context(self._tasks.running("agents-windows", self._working_out))
        port = parse_endpoint(self.address).port
        if port:
            self._connections = Connections(port, self._settings.max_connections_a_host, _CALM_FILES, self._ends)
            await self._running.enter_async_context(self._tasks.running("agents-connections", self._connections.watch))
        log.info("agents_served", address=self.address)

    async def stop(self) -> None:
        """End all streams; what has not been acknowledged comes again to whoever serves next."""
        for stream in list(self._streams.values()):
            stream.end(grpc.StatusCode.UNAVAILABLE, "the controller is ending")
        await self._server.stop(_GRACE_S)
        await self._running.aclose()
        await self._worker.run(lambda: None)  # what was begun is written
        self._worker.end()
        if self._endpoint.path is not None:
            remove(self._endpoint.path)

    def _listen(self) -> Endpoint:
        try:
            if self._endpoint.path is not None:
                make_way(self._endpoint.path)
                with umask(0o177):
                    self._server.add_insecure_port(self._endpoint.target)
                return self._endpoint
            credentials = self._credentials()
            if credentials is None:
                port = self._server.add_insecure_port(self._endpoint.target)
            else:
                port = self._server.add_secure_port(self._endpoint.target, credentials)
        except (ListenError, RuntimeError, OSError) as error:
            raise ConfigurationError(
                f"agents_address: cannot listen on {self._endpoint}: {error}; give another address"
            ) from error
        return Endpoint(host=self._endpoint.host, port=port)

    def _credentials(self) -> grpc.ServerCredentials | None:
        chain, key = self._settings.certificate, self._settings.private_key
        if chain is None or key is None:
            return None
        return grpc.ssl_server_credentials([(key.read_bytes(), chain.read_bytes())])

    # --- streams

    async def Connect(self, request_iterator: object, context: Context) -> None:  # type: ignore[override]
        """One agent, for as long as it stays."""
        try:
            await self._serve(context)
        except RefusedError as error:
            if error.code is not grpc.StatusCode.OK:
                self._refusals.note(context.peer(), error)
                await context.abort(error.code, str(error))
        except grpc.aio.BaseError as error:  # the connection broke while something was written
            log.info("agent_cut_off", peer=context.peer(), reason=str(error))

    async def _serve(self, context: Context) -> None:
        admitted = await self._admitted(context)
        hello = admitted.hello
        highest = await self._worker.run(lambda: self._store.highest(hello.node, hello.run_id))
        offset_s = time.time() - hello.time_s
        bucket = TokenBucket(self._settings.rate_per_s, self._settings.burst, time.monotonic())
        stream = AgentStream(admitted, context, offset_s, bucket)
        self._enter(stream, hello)
        try:  # from here on the node counts as connected, whatever comes
            for greet in self.greeters:
                greet(stream.node)
            await self._note_node(hello)
            await stream.run(self._welcome(highest), self._hand_on, self._settings.beat_s, self._settings.silence_s)
        finally:
            self._leave(stream)

    async def _admitted(self, context: Context) -> Admitted:
        """Let it in, or raise RefusedError."""
        with self._gate.opening(context.peer()):
            try:
                async with asyncio.timeout(self._settings.hello_timeout_s):
                    ticket = await self._admission.ticket(context.invocation_metadata() or ())
                    first = await context.read()
            except TimeoutError:
                raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, "no hello in time") from None
        if not isinstance(first, agent_pb2.AgentMessage):
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a hello")
        admitted = self._admission.admit(ticket, first)
        if self._addresses is not None and (
            problem := await self._addresses.problem(admitted.hello.node, context.peer())
        ):
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, f"{problem}; see agents_addresses")
        return admitted

    def _enter(self, stream: AgentStream, hello: agent_pb2.AgentHello) -> None:
        """The node's one stream from now on. Raises RefusedError."""
        before = self._streams.get(stream.node)
        if before is not None:
            if before.said_s >= stream.said_s:
                raise RefusedError(grpc.StatusCode.ABORTED, f"a later stream of {stream.node} is open")
            before.end(grpc.StatusCode.ABORTED, f"{stream.node} has dialled anew")
        elif len(self._streams) >= self._settings.max_nodes:
            raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._settings.max_nodes} agents are connected")
        self._streams[stream.node] = stream
        known = self._nodes.get(stream.node)
        self._nodes[stream.node] = NodeStatus(
            node=stream.node,
            connected=True,
            since_s=time.time(),
            last_seen_s=time.time(),
            version=hello.agent_version,
            boot_id=hello.boot_id,
            run_id=hello.run_id,
            clock_behind_s=stream.offset_s,
            streams=1 if known is None else known.streams + 1,
            reports=0 if known is None else known.reports,
            topology=hello.topology,
            telemetry=None if known is None else known.telemetry,
        )
        log.info("agent_connected", node=stream.node, version=hello.agent_version, again=known is not None)

    def _ends(self) -> set[End]:
        """Other ends of the connections that carry an agent."""
        return {stream.other_end for stream in self._streams.values() if stream.other_end is not None}

    def _leave(self, stream: AgentStream) -> None:
        if self._streams.get(stream.node) is not stream:
            return  # a later stream of the node has taken its place
        del self._streams[stream.node]
        status = self._nodes[stream.node]
        status.connected, status.since_s, status.last_seen_s = False, time.time(), stream.last_seen_s
        log.info("agent_gone", node=stream.node)

    def _welcome(self, acknowledged: int) -> agent_pb2.AgentWelcome:
        settings = agent_pb2.AgentSettings(
            report_interval_s=self._settings.report_interval_s, profile_steps=self._settings.profile_steps
        )
        return agent_pb2.AgentWelcome(
            acknowledged=acknowledged,
            controller_version=version("headway-scheduler"),
            time_s=time.time(),
            settings=settings,
        )

    async def _note_node(self, hello: agent_pb2.AgentHello) -> None:
        rate = link_bits_per_s(hello.topology)
        with suppress(ProfileStoreError):  # it is told again at the next hello
            await self._worker.run(lambda: self._store.note_node(hello.node, rate))

    # --- the store

    async def _hand_on(self, stream: AgentStream, arrival: Arrival) -> None:
        self._screen.screen(arrival)
        await self._arrivals.put((stream, arrival))

    async def _storing(self) -> None:
        """Store what arrives, as much at once as there is; until that goes well nothing is acknowledged, and little more read."""
        while True:
            batch = self._batch  # not empty after a failure: what came is not lost by it
            if not batch:
                batch.append(await self._arrivals.get())
                await asyncio.sleep(_GATHER_S)
            while len(batch) < _BATCH and not self._arrivals.empty():
                batch.append(self._arrivals.get_nowait())
            new = await self._stored([arrival for _, arrival in batch])
            self._batch = []
            for (stream, arrival), fresh in zip(batch, new, strict=True):
                stream.stored(arrival.report.number)
                if fresh:
                    self._tell_listener(arrival)

    async def _stored(self, arrivals: list[Arrival]) -> list[bool]:
        """Which of them were new; not before they are in the store."""
        while True:
            try:
                return await self._worker.run(partial(self._store.take, arrivals))
            except ProfileStoreError as error:
                log.error("reports_not_stored", problem=str(error))
                await asyncio.sleep(_STORE_AGAIN_S)
            except Exception as error:  # noqa: BLE001 - one report must not keep the others out, nor come again for ever
                if len(arrivals) == 1:
                    self._screen.not_stored(arrivals[0].node, error)
                    return [False]
                return [fresh for arrival in arrivals for fresh in await self._stored([arrival])]

    def _tell_listener(self, arrival: Arrival) -> None:
        self.reports += 1
        status = self._nodes.get(arrival.node)
        if status is not None:
            status.reports += 1
            if arrival.run_id == status.run_id and arrival.report.WhichOneof("kind") is not None:
                status.dropped = arrival.report.dropped
                if arrival.made_s is not None:
                    status.clock_behind_s = arrival.made_s - arrival.report.time_s
            if arrival.report.WhichOneof("kind") == "telemetry":
                status.telemetry = arrival.report.telemetry
        for listener in self.listeners:
            try:
                listener(arrival.node, arrival.report)
            except Exception as error:  # noqa: BLE001 - a bug there must not keep reports from being acknowledged
                self._screen.not_heard(arrival.node, error)

    async def _working_out(self) -> None:
        pruned_s = 0.0
        while True:
            await asyncio.sleep(_WORK_OUT_EVERY_S)
            now_s = time.time()
            try:
                await self._worker.run(partial(self._store.work_out, now_s))
                if time.monotonic() - pruned_s > _PRUNE_EVERY_S:
                    await self._worker.run(partial(self._store.prune, now_s))
                    pruned_s = time.monotonic()
                    self._forget(now_s)
            except (ProfileStoreError, sqlite3.Error) as error:  # the next time may go better
                log.error("profiles_not_worked_out", problem=str(error))

    def _forget(self, now_s: float) -> None:
        for node in [node for node, status in self._nodes.items() if not status.connected]:
            if now_s - self._nodes[node].since_s > _FORGET_S:
                del self._nodes[node]


def _allow_files(count: int) -> None:
    """Every connection is an open file, and the usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < count:
        log.warning("few_open_files", allowed=hard, wanted=count, mend="raise LimitNOFILE of the service")
