"""Outcomes of jobs, from which policies learn, and their report to the policy server beside the cycles."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from controller.base.apart import apart
from controller.state.journal import RunRecord
from policies.api import Outcome
from policies.errors import PolicyFault

_MOST = 10_000
_BATCH = 200
"""Maximum number of outcomes of one report, so that a server that is slow to learn gets on within its deadline."""
_LONGEST_S = 60.0
"""Longest pause before the next attempt, seconds; the first is one second, and each is twice as long as the one before."""
_REFUSALS = 3
"""Number of refusals in a row after which an outcome that was reported alone is dropped: it may be the reason."""
_REFUSED = frozenset({PolicyFault.FAILED, PolicyFault.INVALID_REPLY, PolicyFault.TOO_LARGE})
"""Faults of a server that has answered; after any other one it may not have received the report."""


class Learner(Protocol):
    """Receiver of outcomes: it passes them on to the policy server."""

    async def learn(self, outcomes: Sequence[Outcome]) -> PolicyFault | None:
        """Report how jobs ended. Returns the server's fault; None: it has received them all. Does not raise for faults."""


class OutcomeQueue:
    """Outcomes that have not been reported to the policy yet, in the order in which jobs ended.

    Invariants: at most `_MOST`; beyond that the oldest are dropped. An outcome leaves the queue when the policy server has received
    it, or has refused it `_REFUSALS` times, so it may be reported twice. `lost` counts those that were dropped.
    """

    def __init__(
        self,
        lost: Callable[[int], object] = lambda _: None,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._waiting: deque[Outcome] = deque(maxlen=_MOST)
        self._news = asyncio.Event()
        self._lost = lost
        self._pause = pause

    def add(self, runs: Iterable[RunRecord]) -> None:
        """Add jobs that have ended."""
        for run in runs:
            if len(self._waiting) == _MOST:
                self._lost(1)
            with apart("outcomes for Learn", run.key.job_id):
                self._waiting.append(_outcome(run))
        if self._waiting:
            self._news.set()

    async def report_to(self, learner: Learner) -> None:
        """Report all outcomes to the policy, until cancelled; after a failure they are reported again."""
        failures = refusals = 0  # in a row
        alone = 0  # so many outcomes are reported one by one, because the server has refused several at once
        while True:
            await self._news.wait()
            outcomes = self._take(1 if alone else _BATCH)
            fault: PolicyFault | None = PolicyFault.UNREACHABLE
            try:
                fault = await learner.learn(outcomes)
            finally:
                failures, refusals = _in_a_row(failures, refusals, fault)
                if fault is not None and refusals >= _REFUSALS and len(outcomes) == 1:
                    self._lost(1)
                    refusals = 0
                elif fault is not None:
                    self._put_back(outcomes)
            if fault is None:
                alone = max(0, alone - 1)
                continue
            if fault in _REFUSED:
                alone = max(alone, len(outcomes))
            await self._pause(min(_LONGEST_S, 2.0 ** min(failures - 1, 10)))

    def _take(self, most: int) -> list[Outcome]:
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        if not self._waiting:
            self._news.clear()
        return taken

    def _put_back(self, outcomes: Sequence[Outcome]) -> None:
        # A full queue would drop the newest ones instead.
        kept = outcomes[max(0, len(outcomes) - (_MOST - len(self._waiting))) :]
        if len(kept) < len(outcomes):
            self._lost(len(outcomes) - len(kept))
        self._waiting.extendleft(reversed(kept))
        self._news.set()


def _in_a_row(failures: int, refusals: int, fault: PolicyFault | None) -> tuple[int, int]:
    """Return the numbers of failures and of refusals in a row after one more report."""
    if fault is None:
        return 0, 0
    return failures + 1, refusals + 1 if fault in _REFUSED else 0


def _outcome(run: RunRecord) -> Outcome:
    return Outcome(
        job_id=run.key.job_id,
        user=run.user,
        job_name=run.name,
        submit_time_s=run.key.submit_time_s,
        start_time_s=run.end_time_s if run.start_time_s is None else run.start_time_s,
        finish_time_s=run.end_time_s,
        num_gpus=run.num_gpus,
        num_nodes=run.num_nodes,
        service_s=run.service_s,
        final_state=run.state,
    )
