"""Limits on calls that wait for admission, from one machine and in all; and the log of refusals."""

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
"""Peers and reasons that are remembered. A caller with very many addresses cannot fill the memory, only lengthen the log."""

QUIET_CONNECTIONS = (
    ("grpc.server_handshake_timeout_ms", 10_000),  # a connection that never becomes HTTP/2
    ("grpc.max_connection_idle_ms", 5_000),  # one without a call
    ("grpc.max_concurrent_streams", 16),  # an agent has one
    ("grpc.keepalive_time_ms", 60_000),  # one whose other end has disappeared
    # Also TCP_USER_TIMEOUT, which ends one to a machine that acknowledges nothing.
    ("grpc.keepalive_timeout_ms", 20_000),
    # Ends one to a process that stands still, while its machine acknowledges all. 60 s by default, and the longer one counts.
    ("grpc.http2.ping_timeout_ms", 20_000),
)
"""gRPC's options that close connections without an agent, so that their places become free."""


def host_of(peer: str) -> str:
    """Return the machine of a call from gRPC's `peer`, such as "ipv4:10.0.0.1:40112"; empty for this machine's own socket."""
    kind, _, rest = peer.partition(":")
    return unquote(rest).rpartition(":")[0] if kind in {"ipv4", "ipv6"} else ""


class Gate:
    """Invariant: at most `most` calls are between their beginning and their hello, at most `most_a_host` of one machine.

    So a machine that holds calls open without a hello uses up its own places, and refuses no agent on another machine.
    """

    def __init__(self, most: int, most_a_host: int) -> None:
        self._most = most
        self._most_a_host = most_a_host
        self._opening: Counter[str] = Counter()
        """Calls that are being admitted, by host. Bound: `most`."""

    @contextmanager
    def opening(self, peer: str) -> Iterator[None]:
        """Count a call as opening within the context. Raises RefusedError."""
        host = host_of(peer)
        if host and self._opening[host] >= self._most_a_host:
            raise _too_many(f"too many calls from {host} at once")
        if self._opening.total() >= self._most:
            raise _too_many("too many agents connect at once")
        self._opening[host] += 1
        try:
            yield
        finally:
            self._opening[host] -= 1
            if not self._opening[host]:
                del self._opening[host]


def _too_many(what: str) -> RefusedError:
    return RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{what}; connect again later")


@dataclass(slots=True)
class _Logged:
    at_s: float
    unlogged: int = 0
    """Refusals since then that were not logged."""


class Refusals:
    """Counts all refusals, and logs one a minute for each machine and cause, so that a caller cannot fill the disk."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.counted: Counter[str] = Counter()
        """Number of refusals by gRPC's name of the status. Bound: the statuses of gRPC."""
        self._monotonic = monotonic
        self._logged: dict[tuple[str, str], _Logged] = {}
        """Newest log lines. Bound: `_MAX_LOGGED`."""

    def note(self, peer: str, error: RefusedError) -> None:
        """Count a stream that was refused or ended for an error."""
        self.counted[error.code.name] += 1
        key, now_s = (host_of(peer), error.code.name), self._monotonic()
        logged = self._logged.pop(key, None)
        if logged is not None and now_s - logged.at_s < _LOG_EVERY_S:
            logged.unlogged += 1
        else:
            unlogged = 0 if logged is None else logged.unlogged
            log.info("agent_refused", peer=peer, code=error.code.name, reason=str(error), unlogged=unlogged)
            logged = _Logged(now_s)
        self._logged[key] = logged
        while len(self._logged) > _MAX_LOGGED:
            del self._logged[next(iter(self._logged))]  # the oldest refusal
