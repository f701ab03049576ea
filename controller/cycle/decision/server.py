"""A policy server as the controller uses it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from policies.api import Decision, Outcome, PolicySpec
from policies.model import ClusterState


class PolicyEndpoint(Protocol):
    """A policy server as the controller uses it. Errors are PolicyError."""

    address: str

    @property
    def connection(self) -> int:
        """Number of the newest connection; with another number, another process may answer."""

    @property
    def connected(self) -> bool:
        """True if that connection is open."""

    async def describe(self, deadline_s: float) -> PolicySpec:
        """Return the policy's description of itself."""

    async def healthy(self, deadline_s: float) -> bool:
        """Return whether the server says that it serves."""

    async def decide(self, state: ClusterState, deadline_s: float) -> Decision:
        """Return the allocation that the policy wants."""

    async def learn(self, outcomes: Iterable[Outcome]) -> int:
        """Report how jobs ended. Returns the number of outcomes that the policy has processed."""

    async def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True)
class Server:
    """A policy server with its description of itself. One value, so that a swap replaces both at once."""

    endpoint: PolicyEndpoint
    spec: PolicySpec | None = None
    """None before the first answer."""
    connection: int = 0
    """Number of the connection on which `spec` was received."""

    @property
    def known(self) -> bool:
        """True if `spec` is still valid: the same process answers."""
        return self.spec is not None and self.endpoint.connection == self.connection
