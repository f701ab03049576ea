"""Connections to the agents' port that carry no agent: no machine can use up the connections of the others.

gRPC limits the connections of all machines together, and counts calls only after they begin. So the process examines its own
open connections. When a machine has too many of them without an agent, it closes the oldest.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import stat
from collections import defaultdict
from collections.abc import Callable, Collection
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
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for file in _files():
            connection = self._connection(file)
            if connection is not None and connection[1] not in agents:
                inode, end = connection
                found[end[0]].append((inode, file))
        cut = {}
        for host, connections in found.items():
            # The inodes of sockets rise, and the newest connection may be an agent that is just connecting.
            oldest = sorted(connections)[: max(0, len(connections) - self._most_a_host)]
            done = sum(_cut(file, inode) for inode, file in oldest)
            if done:
                cut[host] = done
        return cut

    def _connection(self, file: int) -> tuple[int, End] | None:
        """Return the inode and the remote address of that file; None if it is no connection to our port.

        The file is not duplicated, and stays open: a duplicate of whatever has the number by then would have to be closed, and
        with it the process would lose its locks on that file, such as those of SQLite.
        """
        with suppress(OSError):  # closed meanwhile, or not connected
            inode = _socket_inode(file)
            if inode is None:
                return None
            borrowed = socket.socket(fileno=file)
            try:
                if borrowed.family in {socket.AF_INET, socket.AF_INET6} and borrowed.getsockname()[1] == self._port:
                    host, port = borrowed.getpeername()[:2]
                    return (inode, (_plain(host), port)) if _socket_inode(file) == inode else None
            finally:
                borrowed.detach()
        return None


def _cut(file: int, inode: int) -> bool:
    """Close that connection, if the file is still the socket that was examined. gRPC then frees it.

    The duplicate that this needs belongs to no other object, and is closed exactly once.
    """
    with suppress(OSError):
        if _socket_inode(file) != inode:
            return False
        duplicate = os.dup(file)
        try:
            # Another file may have got the number before it was duplicated.
            if _socket_inode(duplicate) != inode:
                return False
            borrowed = socket.socket(fileno=duplicate)
            try:
                borrowed.shutdown(socket.SHUT_RDWR)
            finally:
                borrowed.detach()
            return True
        finally:
            os.close(duplicate)
    return False


def _socket_inode(file: int) -> int | None:
    """Return the inode of an open socket, which no other has; None if the file is something else. Raises OSError."""
    found = os.fstat(file)
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else None


def _files() -> list[int]:
    """Return the numbers of this process's open files."""
    with os.scandir(_FILES) as found:
        return [int(each.name) for each in found]


def _plain(host: str) -> str:
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(address if mapped is None else mapped)
