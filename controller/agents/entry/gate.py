"""Before anybody is known: how many calls may wait to be let in, by whom, and what is said of those that are not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import grpc
import structlog

from controller.agents.entry.admission import RefusedError

log = structlog.get_logger(__name__)

_LOG_EVERY_S = 60.0
_MAX_LOGGED = 1024
"""Peers and reasons that are remembered: who has so many addresses fills no memory, and only then more of the log."""

QUIET_CONNECTIONS = (
    ("grpc.server_handshake_timeout_ms", 10_000),  # a connection that never becomes HTTP/2
    ("grpc.max_connection_idle_ms", 5_000),  # one without a call
    ("grpc.max_concurrent_streams", 16),  # an agent has one
    ("grpc.keepalive_time_ms", 60_000),  # one whose other end is gone without a word
    ("grpc.keepalive_timeout_ms", 20_000),
)
"""gRPC's options by which a connection that carries no agent is closed, and its place is free."""


def host_of(peer: str) -> str:
    """The machine at the other end of a call, by gRPC's word for it: "ipv4:10.0.0.1:40112"; empty: this one's own socket."""
    kind, _, rest = peer.partition(":")
    return unquote(rest).rpartition(":")[0] if kind in {"ipv4", "ipv6"} else ""


class Gate:
    """Invariant: never more than `most` calls are between their beginning and their hello, `most_a_host` of one machine.

    So a machine that holds calls open without saying who it is takes its own places, and keeps out no agent elsewhere.
    """

    def __init__(self, most: int, most_a_host: int) -> None:
        self._most = most
        self._most_a_host = most_a_host
        self._opening: Counter[str] = Counter()

    @contextmanager
    def opening(self, peer: str) -> Iterator[None]:
        """A call that is at its beginning within. Raises RefusedError."""
        host = host_of(peer)
        if host and self._opening[host] >= self._most_a_host:
            raise _too_many(f"too many calls of {host} at once")
        if self._opening.total() >= self._most:
            raise _too_many("too many agents dial at once")
        self._opening[host] += 1
        try:
            yield
        finally:
            self._opening[host] -= 1
            if not self._opening[host]:
                del self._opening[host]


def _too_many(what: str) -> RefusedError:
    return RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{what}; dial again")


@dataclass(slots=True)
class _Told:
    at_s: float
    since: int = 0
    """Refusals that were not logged since then."""


class Refusals:
    """Counts all, and logs one a minute of each machine and cause: whoever is refused a thousand times a second fills no disk."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.counted: Counter[str] = Counter()
        """By gRPC's word for why."""
        self._monotonic = monotonic
        self._told: dict[tuple[str, str], _Told] = {}

    def note(self, peer: str, error: RefusedError) -> None:
        """A stream was refused, or ended for a cause."""
        self.counted[error.code.name] += 1
        key, now_s = (host_of(peer), error.code.name), self._monotonic()
        told = self._told.pop(key, None)
        if told is not None and now_s - told.at_s < _LOG_EVERY_S:
            told.since += 1
        else:
            unlogged = 0 if told is None else told.since
            log.info("agent_refused", peer=peer, code=error.code.name, reason=str(error), unlogged=unlogged)
            told = _Told(now_s)
        self._told[key] = told
        while len(self._told) > _MAX_LOGGED:
            del self._told[next(iter(self._told))]  # who was refused longest ago
