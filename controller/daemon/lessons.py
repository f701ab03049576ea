"""Outcomes of jobs, from which policies learn, and their report to the policy server beside the cycles."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from controller.state.journal import RunRecord
from policies.api import Outcome

_MOST = 10_000


class Learner(Protocol):
    """Receiver of outcomes: it passes them on to the policy server."""

    async def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Report how jobs ended. Does not raise when the server is away."""


class OutcomeQueue:
    """Outcomes that have not been reported to the policy yet. Invariant: at most `_MOST`; beyond that the oldest are dropped."""

    def __init__(self) -> None:
        self._waiting: deque[Outcome] = deque(maxlen=_MOST)
        self._news = asyncio.Event()

    def add(self, runs: Iterable[RunRecord]) -> None:
        """Add jobs that have ended."""
        self._waiting.extend(_outcome(run) for run in runs)
        if self._waiting:
            self._news.set()

    async def report_to(self, learner: Learner) -> None:
        """Report all outcomes to the policy, until cancelled; jobs that end during one report are part of the next."""
        while True:
            await self._news.wait()
            self._news.clear()
            outcomes = list(self._waiting)
            self._waiting.clear()
            await learner.learn(outcomes)


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
