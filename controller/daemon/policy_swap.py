"""Changes of the policy: swaps by `headway policy use`, and policy servers that were restarted with another policy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from controller.base.events import EventLog
from controller.cycle.decision.decider import Decider
from controller.cycle.decision.server import PolicyEndpoint
from policies.api import PolicySpec
from policies.model import ClusterState

log = structlog.get_logger(__name__)


class PolicySwap:
    """Swaps the policy server. Invariant: one swap at a time, and an event for every change of the policy."""

    def __init__(self, decider: Decider, connect: Callable[[str], PolicyEndpoint], events: EventLog) -> None:
        """`connect` makes an endpoint from an address."""
        self._decider = decider
        self._connect = connect
        self._events = events
        self._swapping = asyncio.Lock()
        self._policy: tuple[str, str] | None = None
        """Address and name of the policy that was last known to decide."""

    async def use(self, address: str, state: ClusterState | None) -> PolicySpec:
        """Swap the policy server after a dry run on `state`. Raises PolicyUnavailableError, and keeps the old one, if it fails."""
        async with self._swapping:
            spec = await self._decider.use(self._connect(address), state)
            self._policy = (self._decider.address, spec.name)
        self._events.add("policy", "", f"{spec.name} at {address} decides from now on")
        return spec

    def note(self) -> None:
        """Report another policy at the same address: the server was restarted with another policy."""
        spec = self._decider.spec
        if spec is None or (self._decider.address, spec.name) == self._policy:
            return
        before, self._policy = self._policy, (self._decider.address, spec.name)
        if before is not None and before[0] == self._decider.address:
            log.warning("policy_changed", address=self._decider.address, before=before[1], now=spec.name)
            self._events.add(
                "policy", "", f"{spec.name} decides now at {self._decider.address}, in place of {before[1]}"
            )
