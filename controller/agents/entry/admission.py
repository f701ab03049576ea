"""Admission of agents: checks the credential, the uid and the hello of a call."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import grpc
import structlog
from google.protobuf.message import DecodeError

from controller.agents.reports.claims import MAX_TIME_S, topology_out_of_bounds
from controller.base.errors import HeadwayError
from nodeagent.uplink.munge import CredentialCodec, MungeError
from nodeagent.uplink.session import (
    A_NODE,
    MAX_REMEMBERED,
    METADATA_KEY,
    METHOD,
    Direction,
    ReplayCache,
    SessionError,
    SessionFault,
    Ticket,
    Verifier,
    check_hello,
    check_ticket,
)
from protos.headway.v1 import agent_pb2

log = structlog.get_logger(__name__)

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RUN_ID = re.compile(r"[0-9a-f]{16,64}")
_SHORT = re.compile(r"[\x20-\x7e]{0,64}")

Metadata = Iterable[tuple[str, str | bytes]]


class RefusedError(HeadwayError):
    """The stream is refused or ends: gRPC status and reason for the agent."""

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Admitted:
    """An agent that was admitted."""

    hello: agent_pb2.AgentHello
    key: bytes | None
    """Key that signs the stream; None: over a Unix socket or a loopback address without credentials."""
    verifier: Verifier
    called_s: float
    """Time of the call by the agent's clock, at most the time of its arrival: of two streams of one node the later one stays."""
    ticket: Ticket | None = None
    """Content of the credential, which is not remembered yet."""


class Admission:
    """Checks calls. Invariant: with a seal, every admitted call has a fresh credential of an admitted uid, used once.

    A call that is refused leaves no credential behind: otherwise agents that dial in vain would use up the memory.
    """

    def __init__(
        self,
        seal: CredentialCodec | None,
        uids: frozenset[int],
        knows: Callable[[str], bool] = lambda _: True,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        max_nodes: int = 0,
    ) -> None:
        """`uids`: users who may run agents. `knows` returns whether there is a node of that name."""
        self._seal = seal
        self._uids = uids
        self._knows = knows
        self._now = now
        self._monotonic = monotonic
        self._replays = ReplayCache(limit=max(MAX_REMEMBERED, A_NODE * max_nodes))

    async def ticket(self, metadata: Metadata) -> Ticket | None:
        """Return the credential of a call, checked without its hello; None where none are used. Raises RefusedError."""
        if self._seal is None:
            return None
        credentials = [value for key, value in metadata if key == METADATA_KEY]
        if len(credentials) != 1 or not isinstance(credentials[0], str):
            raise RefusedError(
                grpc.StatusCode.UNAUTHENTICATED,
                f"the call needs one {METADATA_KEY}; set munge to automatic or required in the agent's settings",
            )
        try:
            credential = await self._seal.decode(credentials[0])
            ticket = Ticket.unpack(credential.payload)
            check_ticket(ticket, self._now())
            if credential.uid not in self._uids:
                raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, f"uid {credential.uid} may not be an agent")
            self._replays.check(ticket, self._monotonic())
        except SessionError as error:
            raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, str(error)) from error
        except MungeError as error:
            raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, str(error)) from error
        return ticket

    def admit(self, ticket: Ticket | None, first: agent_pb2.AgentMessage) -> Admitted:
        """Admit a call by its first message. Raises RefusedError."""
        key = None if ticket is None else ticket.key
        verifier = Verifier(key, Direction.FROM_AGENT)
        try:
            verifier.take(first.number, first.body, first.mac)
            if ticket is not None:
                check_hello(ticket, first.body)
        except SessionError as error:
            raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, str(error)) from error
        hello = _hello(first.body)
        if not self._knows(hello.node):
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, f"there is no node {hello.node}; check node_name")
        # A node whose clock is ahead must not count as the newest connection until ours has caught up.
        called_s = min(hello.time_s if ticket is None else ticket.time_s, self._now())
        return Admitted(hello, key, verifier, called_s, ticket)

    def remember(self, admitted: Admitted, machine: str, *, own_address: bool) -> None:
        """Let the credential open no other stream. Raises RefusedError if it has opened one, or too many are remembered.

        `machine`: the address that calls; empty = this machine. `own_address`: Slurm has it as that of the agent's node.
        """
        if admitted.ticket is None:
            return
        try:
            node = "" if own_address else admitted.hello.node
            self._replays.take(admitted.ticket, self._monotonic(), machine, node)
        except SessionError as error:
            full = error.fault is SessionFault.TOO_MANY
            raise RefusedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED if full else grpc.StatusCode.UNAUTHENTICATED, str(error)
            ) from error


def _hello(body: bytes) -> agent_pb2.AgentHello:
    try:
        hello = agent_pb2.AgentBody.FromString(body).hello
    except DecodeError as error:
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the first message is not an AgentBody") from error
    fit = _NODE.fullmatch(hello.node) and _RUN_ID.fullmatch(hello.run_id)
    if not fit or not _SHORT.fullmatch(hello.boot_id) or not _SHORT.fullmatch(hello.agent_version):
        raise RefusedError(
            grpc.StatusCode.INVALID_ARGUMENT, f"the hello has no valid node, run_id, boot_id or version for {METHOD}"
        )
    if not 0 <= hello.time_s <= MAX_TIME_S:  # also refuses NaN
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the hello's time_s is not a time")
    if wrong := topology_out_of_bounds(hello.topology):  # it is kept for as long as the node is known
        log.warning("topology_left_out", node=hello.node, problem=f"{wrong} is out of bounds")
        hello.ClearField("topology")
    return hello
