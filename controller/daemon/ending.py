"""The end of the controller: the present cycle may complete, and one that takes too long is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

WITHIN_S = 15.0
"""Longest time in which the present cycle may complete. systemd kills the controller after TimeoutStopSec, 30 s."""

log = structlog.get_logger(__name__)


class Ending:
    """A request to end, and the limit on how long the present cycle may still take.

    A cycle has as many commands as jobs change, and each may take as long as a hanging slurmctld lets it. Cutting it off is
    harmless: the journal knows the step that was under way, and the next controller records its outcome.
    """

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self._limit: asyncio.Timeout | None = None

    def request(self) -> None:
        """End soon. Later requests change nothing."""
        if not self.requested.is_set():
            self.requested.set()
            self._begin()

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Run a body that ends by itself soon after a request; cancel it where it takes too long after one."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._limit = limit
                if self.requested.is_set():
                    self._begin()
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            log.warning("cycle_cut_off", after_s=WITHIN_S)
        finally:
            self._limit = None

    def _begin(self) -> None:
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + WITHIN_S)
