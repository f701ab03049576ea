"""Connections to the agents' port that carry no agent: no machine can use up the connections of the others.

gRPC limits the connections of all machines together, and counts calls only after they begin. So the process examines its own
open connections. When a machine has too many of them without an agent, it closes the oldest.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import structlog

log = structlog.get_logger(__name__)

_EXAMINE_EVERY_S = 0.25
_FILES = Path("/proc/self/fd")

End = tuple[str, int]
"""IP address, IPv4 in its short form, and port."""


def end_of(peer: str) -> End | None:
    """Return the remote address of a call from gRPC's `peer`, such as "ipv4:10.0.0.1:40112"; None for a Unix socket."""
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in {"ipv4", "ipv6"} or not port.isdecimal():
        return None
    return _plain(host.strip("[]")), int(port)


class Connections:
    """Invariant: after `close_excess`, no machine has more than `most_a_host` connections to that port without an agent."""

    def __init__(self, port: int, most_a_host: int, calm: int, agents: Callable[[], Collection[End]]) -> None:
        """`agents` gives the remote addresses that carry an agent. With at most `calm` open files nothing is examined."""
        self._port = port
        self._most_a_host = most_a_host
        self._calm = calm
        self._agents = agents
        self.cut = 0
        """Connections that were closed since the start."""

    async def watch(self) -> None:
        """Examine connections until cancelled; in detail only while there are many."""
        while True:
            await asyncio.sleep(_EXAMINE_EVERY_S)
            agents = frozenset(self._agents())
            if len(_files()) - len(agents) <= self._calm:
                continue
            cut = await asyncio.to_thread(self.close_excess, agents)
            if cut:
                self.cut += sum(cut.values())
                log.warning("connections_cut_off", hosts=cut, most_a_host=self._most_a_host)

    def close_excess(self, agents: Collection[End]) -> dict[str, int]:
        """Close excess connections. Returns the number of closed connections of each machine."""
        found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for name in _files():
            for number, end in self._ends(name):
                if end not in agents:
                    found[end[0]].append((number, name))
        cut = {}
        for host, connections in found.items():
            # Socket numbers rise, and the newest connection may be an agent that is just connecting.
            oldest = sorted(connections)[: -self._most_a_host]
            done = sum(self._cut(name, number) for number, name in oldest)
            if done:
                cut[host] = done
        return cut

    def _ends(self, name: str) -> Iterator[tuple[int, End]]:
        """Yield the socket number and the remote address of that file, if it is a connection to our port."""
        with suppress(OSError):  # closed meanwhile, not a socket, or not connected
            if not str((_FILES / name).readlink()).startswith("socket:"):
                return
            with socket.socket(fileno=os.dup(int(name))) as held:
                if held.family in {socket.AF_INET, socket.AF_INET6} and held.getsockname()[1] == self._port:
                    host, port = held.getpeername()[:2]
                    yield os.fstat(held.fileno()).st_ino, (_plain(host), port)

    def _cut(self, name: str, number: int) -> bool:
        """Close that connection, if the file is still the socket that was examined. gRPC then frees it."""
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as held:
            if os.fstat(held.fileno()).st_ino == number:
                held.shutdown(socket.SHUT_RDWR)
                return True
        return False


def _files() -> list[str]:
    """Return the numbers of this process's open files."""
    with os.scandir(_FILES) as found:
        return [each.name for each in found]


def _plain(host: str) -> str:
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(address if mapped is None else mapped)
