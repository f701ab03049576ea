"""Slurm as a process of a story uses it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from controller.base.turn import Turn
from tests.campaign.world.orders import Orders
from tests.campaign.world.processes import in_flight

if TYPE_CHECKING:
    from tests.campaign.world.cluster import Cluster

_RETURN_S = 0.003
"""Time of an answer from slurmctld: a process that is killed meanwhile never receives it."""
_READING = frozenset({"close", "facts", "topology", "shares", "snapshot", "unregistered", "read"})


class StoryClient:
    """The Slurm client of one process: every answer takes a moment, and the model is informed before each change.

    It checks the process's turn before each change, as the clients of a real Slurm do before each command. A request
    that has been sent goes on while the process stands still.
    """

    def __init__(self, cluster: Cluster, turn: Turn) -> None:
        self._turn = turn
        self._orders = Orders(cluster)
        self._client = cluster.slurm.client

    def __getattr__(self, name: str) -> Any:
        verb: Callable[..., Any] = getattr(self._client, name)
        if not inspect.iscoroutinefunction(verb):
            return verb

        async def call(*arguments: Any, **options: Any) -> Any:
            if name not in _READING:
                self._turn.check()
            before = getattr(self._orders, f"before_{name}", None)
            if before is not None:
                before(*arguments)
            answer = await in_flight(verb(*arguments, **options))
            await asyncio.sleep(_RETURN_S)
            return answer

        return call
