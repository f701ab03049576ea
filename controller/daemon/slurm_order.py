"""Reads what Slurm's priorities and its preemption depend on, again and again: settings, fair shares, QOS, associations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from controller.base.errors import SlurmError, SlurmReplyError
from controller.observe.slurm_order import PriorityFacts
from controller.slurm.client import SlurmFacts
from controller.slurm.model.shares import Shares
from controller.slurm.priorities.preemption import PreemptionRules
from controller.slurm.priorities.weights import weights_of
from policies.serving.runtime.tasks.supervise import Tasks

_EVERY_S = 60.0
"""Interval between two readings, seconds. Slurm itself computes shares anew every PriorityCalcPeriod, by default five minutes."""
_UNTIL_KNOWN_S = 1.0
"""Interval until Slurm's settings are known, seconds."""
log = structlog.get_logger(__name__)


class ReadShares(Protocol):
    """`SlurmClient.shares`."""

    def __call__(self, *, associations: bool) -> Awaitable[Shares]:
        """Return fair shares and QOS, and with `associations` the priorities of associations."""


@asynccontextmanager
async def read_slurm_order(
    facts: Callable[[], SlurmFacts | None],
    shares: ReadShares,
    use: Callable[[PriorityFacts | None], None],
    tasks: Tasks,
) -> AsyncIterator[None]:
    """Read the facts and give them to `use` within the context.

    While the shares cannot be read, the last ones count; before the first, priorities have no part for fair share and QOS. Where
    the settings are not understood, `use` is called with None.
    """
    order = _SlurmOrder(facts, shares, use)
    async with tasks.running("slurm-order", order.run):
        yield


class _SlurmOrder:
    def __init__(
        self,
        facts: Callable[[], SlurmFacts | None],
        shares: ReadShares,
        use: Callable[[PriorityFacts | None], None],
    ) -> None:
        self._facts = facts
        self._read_shares = shares
        self._use = use
        self._shares = Shares()
        self._problem = ""

    async def run(self) -> None:
        while True:
            facts = self._facts()
            if facts is not None:
                await self._read(facts)
            await asyncio.sleep(_UNTIL_KNOWN_S if facts is None else _EVERY_S)

    async def _read(self, facts: SlurmFacts) -> None:
        problem = ""
        try:
            weights, rules = weights_of(facts.settings), PreemptionRules.of(facts.settings, self._shares)
        except SlurmReplyError as error:
            self._complain(str(error))
            self._use(None)
            return
        associations = weights is not None and weights.association != 0.0
        factors = weights is not None and (weights.fairshare or weights.qos)
        if associations or factors or (rules is not None and rules.by_qos):
            try:
                self._shares = await self._read_shares(associations=associations)
            except SlurmError as error:
                problem = str(error)
        self._complain(problem)
        self._use(PriorityFacts(weights, self._shares, PreemptionRules.of(facts.settings, self._shares)))

    def _complain(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("slurm_order_not_known", problem=problem)
        self._problem = problem
