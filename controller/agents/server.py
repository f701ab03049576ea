"""The controller's end of the agents' streams: a gRPC service on an address of its own.

A report is acknowledged when the store has it. No agent can disturb the others, whatever it sends or fails to read: each has
limits of its own, and all share one queue to the store, which makes them wait when the store is slow.
"""

# ruff: noqa: ARG002, N802 - gRPC gives the methods their names and arguments

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import structlog

from controller.agents.entry.addresses import AgentAddresses
from controller.agents.entry.admission import Admission, Admitted, RefusedError
from controller.agents.entry.connections import Connections
from controller.agents.entry.dial_rate import DialRate
from controller.agents.entry.gate import QUIET_CONNECTIONS, Gate, Refusals, host_of
from controller.agents.node_table import NodeStatus, NodeTable
from controller.agents.reports.report_screen import Allocated, ReportScreen
from controller.agents.reports.storage import ReportStorage
from controller.agents.settings import AgentsSettings
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
from policies.serving.runtime.listen import end, make_way, remove, umask
from policies.serving.runtime.strict_requests import StrictRequests
from policies.serving.runtime.tasks.supervise import Tasks, cancelled_by_others
from policies.serving.runtime.tasks.token_bucket import TokenBucket
from policies.serving.runtime.version import VERSION
from protos.headway.v1 import agent_pb2, agent_pb2_grpc

if TYPE_CHECKING:
    from controller.agents.stream import Context

log = structlog.get_logger(__name__)

_SPARE_CONNECTIONS = 4096
"""Connections that are accepted beyond one for each agent: old streams of nodes that connect again, callers that are refused, and
callers that send nothing, until they are closed."""
_CALM_FILES = 512
"""While fewer files than this are open beside those of agents, connections cannot be scarce, and are not examined."""
_SPARE_FILES = 512
"""Files that the rest of the controller may have open."""
_GRACE_S = 0.5

Listener = Callable[[str, agent_pb2.AgentReport], None]
"""Called once for every report, when it is stored. It runs in the event loop, so it must neither wait nor raise."""
ConnectListener = Callable[[str], None]
"""Called with every node whose stream begins, under the same rules."""


class AgentsServer(agent_pb2_grpc.AgentsServicer):
    """Serves agents: admits their calls, and connects each stream with the table of nodes and the storage of reports."""

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
        self._endpoint = _endpoint(settings, trusted=seal is not None)
        self.listeners: list[Listener] = [listener]
        """Bound: the controller's own parts."""
        self.on_connect: list[ConnectListener] = []
        """Bound: the controller's own parts."""
        self._admission = Admission(seal, settings.uids, knows, max_nodes=settings.max_nodes)
        self._gate = Gate(settings.max_opening, settings.max_opening_a_host)
        self._dial_rate = DialRate()
        self._refusals = Refusals()
        self._addresses = addresses
        self._table = NodeTable(settings.max_nodes)
        self._screen = ReportScreen(allocated)
        self._storage = ReportStorage(store, self._screen)
        self.reports = 0
        """Reports stored since the start."""
        self.left_out: Mapping[str, int] = self._screen.counted
        """Reports that were not used since the start, by reason."""
        self.refused: Mapping[str, int] = self._refusals.counted
        """Streams that were refused or ended for an error since the start, by gRPC's name of the status."""
        self._server = grpc.aio.server(interceptors=(StrictRequests(),), options=_options(settings))
        self._tasks = Tasks() if tasks is None else tasks
        self._failed = self._tasks.counting("agent-calls")
        self._running = AsyncExitStack()
        self._listens = False
        self.address = settings.address
        """Address on which it listens; after `start` with the port that it got."""

    @property
    def nodes(self) -> Mapping[str, NodeStatus]:
        """Every node whose agent was connected recently."""
        return self._table.nodes

    def send_command(self, node: str, command: agent_pb2.AgentCommand) -> bool:
        """Send a command. False when the node is not connected or too many commands wait; the answer comes as a report."""
        stream = self._table.stream_of(node)
        return stream is not None and stream.send(agent_pb2.ControllerBody(command=command))

    async def use_store(self, work: Callable[[ProfileStore], Any]) -> Any:
        """Run `work` on the store, in the store's own thread."""
        return await self._storage.use(work)

    async def note_present(
        self, time_s: float, jobs_by_node: Mapping[str, Iterable[int]], runs: Iterable[SlurmRun]
    ) -> None:
        """Store the jobs that Slurm runs on each node; see ProfileStore. Raises ProfileStoreError."""
        await self._storage.note_present(time_s, jobs_by_node, runs)

    # --- life

    async def start(self) -> None:
        """Listen. Raises ConfigurationError."""
        _allow_files(self._settings.max_nodes + _SPARE_CONNECTIONS + _SPARE_FILES)
        agent_pb2_grpc.add_AgentsServicer_to_server(self, self._server)
        self.address = str(self._listen())
        self._listens = True
        await self._server.start()
        await self._running.enter_async_context(self._tasks.running("agents-store", self._storage.store_reports))
        windows = partial(self._storage.compute_windows_regularly, self._table.forget)
        await self._running.enter_async_context(self._tasks.running("agents-windows", windows))
        port = parse_endpoint(self.address).port
        if port:
            self._connections = Connections(port, self._settings.max_connections_a_host, _CALM_FILES, self._table.ends)
            await self._running.enter_async_context(self._tasks.running("agents-connections", self._connections.watch))
        log.info("agents_served", address=self.address)

    async def stop(self) -> None:
        """End all streams. Agents send reports that were not acknowledged again, to the next controller."""
        async with AsyncExitStack() as last:  # every step runs, even when an earlier one fails or is cancelled
            if self._listens and self._endpoint.path is not None:  # otherwise the socket may be another controller's
                last.callback(remove, self._endpoint.path)
            last.push_async_callback(self._storage.close)
            last.push_async_callback(self._running.aclose)
            for stream in self._table.streams():
                stream.end(grpc.StatusCode.UNAVAILABLE, "the controller is ending")
            await end(self._server, _GRACE_S)

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
        """Serve one agent until its stream ends. Errors that are neither refusals nor lost connections are defects: counted."""
        try:
            await self._serve(context)
        except RefusedError as error:
            if error.code is not grpc.StatusCode.OK:
                self._refusals.note(context.peer(), error)
                await context.abort(error.code, str(error))
        except grpc.aio.BaseError as error:  # the connection broke during a write
            log.info("agent_cut_off", peer=context.peer(), reason=str(error))
        except asyncio.CancelledError as error:
            if not cancelled_by_others():
                raise
            self._failed(error)
            # gRPC takes it for the end of the call, and sends the agent no status.
            problem = "the controller cancelled an operation of this stream; connect again"
            await context.abort(grpc.StatusCode.UNAVAILABLE, problem)
        except Exception as error:
            self._failed(error)
            raise  # gRPC logs it, and answers UNKNOWN; the agent connects again

    async def _serve(self, context: Context) -> None:
        admitted = await self._admitted(context)
        hello = admitted.hello
        own_address = self._addresses is not None and await self._addresses.is_of(hello.node, context.peer())
        self._table.check_room(hello.node)
        self._dial_rate.take(hello.node)
        try:
            highest = await self._storage.highest(hello)
        except ProfileStoreError as error:
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        offset_s = time.time() - hello.time_s
        bucket = TokenBucket(self._settings.rate_per_s, self._settings.burst, time.monotonic())
        stream = AgentStream(admitted, context, offset_s, bucket)
        # Last, as calls that are refused leave none.
        self._admission.remember(admitted, host_of(context.peer()), own_address=own_address)
        self._table.enter(stream, hello)
        try:  # from here on the node counts as connected until `leave`
            for listener in self.on_connect:
                listener(stream.node)
            await self._storage.note_node(hello)
            await stream.run(self._welcome(highest), self._forward, self._settings.beat_s, self._settings.silence_s)
        finally:
            self._table.leave(stream)

    async def _admitted(self, context: Context) -> Admitted:
        """Return the agent that makes this call. Raises RefusedError."""
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

    def _welcome(self, acknowledged: int) -> agent_pb2.AgentWelcome:
        settings = agent_pb2.AgentSettings(
            report_interval_s=self._settings.report_interval_s, profile_steps=self._settings.profile_steps
        )
        return agent_pb2.AgentWelcome(
            acknowledged=acknowledged,
            controller_version=VERSION,
            time_s=time.time(),
            settings=settings,
        )

    async def _forward(self, stream: AgentStream, arrival: Arrival) -> None:
        def stored(fresh: bool) -> None:
            stream.stored(arrival.report.number)
            if fresh:
                self._call_listeners(arrival)

        await self._storage.put(arrival, stored)

    def _call_listeners(self, arrival: Arrival) -> None:
        self.reports += 1
        self._table.note_report(arrival)
        for listener in self.listeners:
            try:
                listener(arrival.node, arrival.report)
            except Exception as error:  # noqa: BLE001 - a bug there must not keep reports from being acknowledged
                self._screen.listener_failed(arrival.node, error)


def _endpoint(settings: AgentsSettings, *, trusted: bool) -> Endpoint:
    """Return where to listen. `trusted`: agents give credentials. Raises ConfigurationError."""
    try:
        endpoint = parse_endpoint(settings.address)
        if not trusted:
            require_local(endpoint)
    except AgentError as error:
        raise ConfigurationError(f"agents_address: {error}") from error
    if (settings.certificate is None) != (settings.private_key is None):
        raise ConfigurationError("TLS needs both a certificate and its private key; give both, or none")
    return endpoint


def _options(settings: AgentsSettings) -> tuple[tuple[str, int], ...]:
    return (
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_metadata_size", 32 << 10),
        ("grpc.max_allowed_incoming_connections", settings.max_nodes + _SPARE_CONNECTIONS),
        *QUIET_CONNECTIONS,
    )


def _allow_files(count: int) -> None:
    """Raise this process's limit of open files: every connection is one, and the usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < count:
        log.warning("few_open_files", allowed=hard, wanted=count, mend="raise LimitNOFILE of the service")
