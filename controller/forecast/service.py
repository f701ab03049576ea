"""Estimates of starts beside the cycles: hands the newest state to the forecasting process, and keeps its answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from controller.base.clock import Clock
from controller.base.errors import HeadwayError
from controller.cycle.view.controller_view import ControllerView
from controller.cycle.view.result import CycleResult
from controller.forecast.changeover import Changeovers
from controller.forecast.estimate import StartEstimate
from controller.forecast.process import Forecaster, ForecastProcess
from controller.forecast.request import Answer, Request
from controller.slurm.model.job import JobKey, Phase
from controller.state.decided_by import DecidedBy
from controller.state.journal_rows import encode_key

log = structlog.get_logger(__name__)

CPU_S = 0.45
"""CPU time after which a forecast begins no further sample, seconds; Python's start included."""
_SOONEST_S = 10.0
"""Shortest time between two forecasts, seconds: when a job waits that the last one did not know."""
_SHARE = 20.0
"""A forecast begins at the earliest after so many times the time that the last one took."""
_STALE_S = 600.0
"""Age from which on an estimate is not shown, seconds."""
TRACKS_FILE = "start-estimates.json"


class StartForecasts:
    """The newest estimates. Invariant: `of` never waits; the cycles and the services only look up what is there."""

    def __init__(self, forecaster: Forecaster, clock: Clock, journal: Path, tracks: Path) -> None:
        """`tracks`: file in which the process keeps earlier ranges."""
        self._forecaster, self._clock = forecaster, clock
        self._journal, self._tracks = journal, tracks
        self.changeovers = Changeovers()
        self._estimates: Mapping[JobKey, StartEstimate] = {}
        """Bound: the jobs that waited at the last forecast."""
        self._known: frozenset[JobKey] = frozenset()
        """Jobs that waited at the last forecast."""
        self.answered_s = 0.0
        """Time of the state of the newest estimates, seconds since the Unix epoch; 0: there are none yet."""
        self.held = 0
        self.missed = 0
        """Numbers of ranges whose jobs started within and outside them, as the forecasting process counts them."""
        self._made_s = -math.inf
        self._took_s = 0.0
        self._problem = ""

    def of(self, key: JobKey) -> StartEstimate | None:
        """Return the estimate of a waiting job; None: there is none, or it is too old."""
        found = self._estimates.get(key)
        return found if found is not None and self._clock.now() - found.made_s <= _STALE_S else None

    def due(self, result: CycleResult, every_s: float) -> bool:
        """Return whether a forecast may begin: at most every `every_s`, or earlier when a job waits that has none yet."""
        state = result.observation.state
        if not len(state.pending):
            return False
        since_s = self._clock.monotonic() - self._made_s
        if since_s >= every_s:
            return True
        new = any(result.observation.rows[row].key not in self._known for row in state.pending.tolist())
        return new and since_s >= min(max(_SOONEST_S, _SHARE * self._took_s), every_s)

    async def make(self, result: CycleResult, policy: str) -> None:
        """Make the estimates of that cycle's waiting jobs. A failure leaves the last ones, and is logged once."""
        begin_s = self._clock.monotonic()
        self._made_s = begin_s
        rows = result.observation.rows
        self._known = frozenset(rows[row].key for row in result.observation.state.pending.tolist())
        try:
            found = await self._forecaster.answer(self._request(result, policy).encode())
        except HeadwayError as error:
            if str(error) != self._problem:
                log.warning("no_start_estimates", problem=str(error))
            self._problem = str(error)
            return
        finally:
            self._took_s = self._clock.monotonic() - begin_s
        self._problem = ""
        self._estimates = _estimates(result, found)
        self.answered_s = result.observation.state.time_s
        self.held, self.missed = found.held, found.missed

    def _request(self, result: CycleResult, policy: str) -> Request:
        observation = result.observation
        rows = observation.rows
        return Request(
            state=observation.state,
            policy=policy,
            journal=str(self._journal),
            tracks=str(self._tracks),
            keys=[encode_key(job.key) for job in rows],
            users=[job.user for job in rows],
            names=[job.name for job in rows],
            limits_s=[job.time_limit_s for job in rows],
            ending=[row for row, job in enumerate(rows) if job.phase is Phase.COMPLETING],
            order=_order(result),
            cpu_s=CPU_S,
            free_s=self.changeovers.free_s,
            start_s=self.changeovers.start_s,
        )


def _estimates(result: CycleResult, found: Answer) -> dict[JobKey, StartEstimate]:
    rows, now_s = result.observation.rows, result.observation.state.time_s
    return {
        rows[one.row].key: StartEstimate(
            earliest_s=now_s + one.earliest_s,
            median_s=now_s + one.median_s,
            latest_s=0.0 if one.latest_s is None else now_s + one.latest_s,
            held=one.held,
            known=one.known,
            stand_in=found.stand_in,
            made_s=now_s,
        )
        for one in found.waits
        if 0 <= one.row < len(rows)
    }


@asynccontextmanager
async def forecast_starts(
    controller: ControllerView, forecaster: Forecaster | None = None, look_every_s: float = 1.0
) -> AsyncIterator[StartForecasts]:
    """Make estimates within the context, as long as the settings want any."""
    settings = controller.settings
    forecasts = StartForecasts(
        forecaster or ForecastProcess(), controller.clock, settings.journal_path, settings.state_dir / TRACKS_FILE
    )

    controller.listeners.append(forecasts.changeovers.on_cycle)

    async def run() -> None:
        while True:
            result, every_s = controller.last, controller.settings.start_estimates_every_s
            if result is not None and every_s > 0 and forecasts.due(result, every_s):
                await forecasts.make(result, _deciding(controller, result))
            await asyncio.sleep(look_every_s)

    async with controller.tasks.running("start-estimates", run):
        yield forecasts


def _deciding(controller: ControllerView, result: CycleResult) -> str:
    """Return the name of the policy that decides."""
    if result.decided is not None:
        return DecidedBy.parse(result.decided.policy).policy
    spec = controller.decider.spec
    return controller.decider.fallback_name if spec is None else spec.name


def _order(result: CycleResult) -> list[int]:
    """Return the rows of waiting jobs in the policy's order, those that it starts now first; empty without a decision."""
    if result.decided is None:
        return []
    plan = result.decided.plan
    return [*(start.row for start in plan.starts), *plan.queue]
