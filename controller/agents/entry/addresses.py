"""Check that a stream comes from the node whose name it gives, by the addresses that Slurm knows.

Root on any node can make a valid credential and give any node's name. `automatic` refuses a caller with the address of another
node. It accepts an address of no node, because nodes have several interfaces and some sites translate addresses. `required`
accepts only the node's own address.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal

from controller.agents.entry.gate import host_of
from policies.serving.runtime.tasks.few_threads import BusyError, FewThreads
from policies.serving.runtime.tasks.task_groups import task_group

Check = Literal["required", "automatic", "off"]
_KEEP_S = 300.0
"""A name that was looked up is not looked up again for this time."""
_WITHIN_S = 5.0
_ALL_WITHIN_S = 8.0
_MOST_AT_ONCE = 2
"""Maximum number of look-ups at once."""


class AgentAddresses:
    """Invariant: callers on this machine pass, and with `automatic` a dead name service refuses no agent."""

    def __init__(
        self,
        nodes: Callable[[], Mapping[str, str]],
        check: Check = "automatic",
        look_up: Callable[[str], Iterable[str]] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`nodes`: Slurm's NodeAddr of each node. `look_up` returns the addresses of a host name, in a thread; raises OSError."""
        self._nodes = nodes
        self._check = check
        self._look_up = _look_up if look_up is None else look_up
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, frozenset[str]]] = {}
        """Names that were looked up, with time and addresses. Bound: twice the nodes: the next caller drops former names."""
        self._listed: dict[str, str] = {}
        """Nodes from which the following fields were made. Bound: the nodes."""
        self._node_at: dict[str, str] = {}
        """Node of each address in Slurm's own list. Bound: the nodes."""
        self._node_found_at: dict[str, str] = {}
        """Node of each address that was found by name. Bound: the addresses of the nodes."""
        self._named: dict[str, str] = {}
        """Nodes that Slurm knows by name. Bound: the nodes."""
        self._looked_up_s = -math.inf
        """Time at which the last look-up of all names began."""
        self._threads = FewThreads("addresses", _MOST_AT_ONCE, _WITHIN_S)

    async def problem(self, node: str, peer: str) -> str:
        """Return why the caller (gRPC's `peer`) may not be the agent of that node; empty when it may."""
        caller = _plain(host_of(peer).strip("[]"))
        nodes = self._nodes()
        if self._check == "off" or not caller or ip_address(caller).is_loopback or node not in nodes:
            return ""
        if len(self._known) > len(nodes):  # nodes have left the cluster, or have other names now
            names = set(nodes.values())
            self._known = {name: found for name, found in self._known.items() if name in names}
        own = await self._addresses_or_known(nodes[node])
        if caller in own:
            return ""
        if self._check == "required":
            known = f"{', '.join(sorted(own))}" if own else "not known"
            return f"the call comes from {caller}, and the address of {node} is {known}"
        try:
            async with asyncio.timeout(_ALL_WITHIN_S):
                owner = await self._owner(nodes, caller)
        except TimeoutError:
            return ""
        return f"the call comes from {caller}, which is the address of {owner}" if owner not in {"", node} else ""

    async def is_of(self, node: str, peer: str) -> bool:
        """Return whether the caller (gRPC's `peer`) has the address of that node, as far as Slurm and the name service say.

        With `off` nothing is looked up, and no caller has.
        """
        if self._check == "off":
            return False
        caller, name = _plain(host_of(peer).strip("[]")), self._nodes().get(node, "")
        return bool(caller) and caller in await self._addresses_or_known(name)

    async def _owner(self, nodes: Mapping[str, str], caller: str) -> str:
        """Return the node with this address; empty when none has it."""
        if nodes != self._listed:
            plain = {node: _plain(address) for node, address in nodes.items()}
            self._listed = dict(nodes)
            self._node_at = {address: node for node, address in plain.items() if address}
            self._named = {node: address for node, address in nodes.items() if address and not plain[node]}
            self._node_found_at = {}
            self._looked_up_s = -math.inf
        if caller in self._node_at:
            return self._node_at[caller]
        if self._named and self._monotonic() - self._looked_up_s >= _KEEP_S:
            begun_s, named = self._monotonic(), self._named
            names = iter(named.values())
            async with task_group() as group:
                for _ in range(_MOST_AT_ONCE):
                    group.create_task(self._find_all(names))
            known = {node: self._known.get(name, (begun_s, frozenset()))[1] for node, name in named.items()}
            found = {address: node for node, own in known.items() for address in own}
            if named is not self._named:  # the list of nodes has changed meanwhile
                return found.get(caller, "")
            self._node_found_at, self._looked_up_s = found, begun_s
        return self._node_found_at.get(caller, "")

    async def _find_all(self, names: Iterator[str]) -> None:
        """Look up the names that are not known yet; several calls share one iterator."""
        for name in names:
            await self._addresses(name)

    async def _addresses_or_known(self, name: str) -> frozenset[str]:
        """Return the addresses of a host name or address, without an answer those that it had; empty when none are known."""
        try:
            return await self._addresses(name)
        except BusyError:
            return self._known.get(name, (0.0, frozenset()))[1]

    async def _addresses(self, name: str) -> frozenset[str]:
        """Return the addresses of a host name or address; empty when they cannot be found.

        Raises BusyError when the look-up could not begin, which says nothing about the name.
        """
        plain = _plain(name)
        if plain or not name:
            return frozenset({plain} if plain else ())
        at_s, known = self._known.get(name, (-_KEEP_S, frozenset()))
        if self._monotonic() - at_s < _KEEP_S:
            return known
        found: frozenset[str] = frozenset()
        try:
            found = frozenset(map(_plain, await self._threads.run(partial(self._look_up, name))))
        except BusyError:
            raise
        except (OSError, UnicodeError):  # a time limit is an OSError too
            found = known
        self._known[name] = self._monotonic(), found
        return found


def _look_up(name: str) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


def _plain(address: str) -> str:
    """Return an address in its one normal form; empty when the text is not an address."""
    try:
        found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    return str(getattr(found, "ipv4_mapped", None) or found)
