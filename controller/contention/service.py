"""Applies the contention threshold to the agents' measurements after each cycle, and makes or advises the moves that follow.

Its state is in memory only: after a restart, a job must be slow for the full time again before it is moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from controller.base.apart import apart
from controller.base.errors import HeadwayError
from controller.contention.rehearsal import Rehearsals
from controller.contention.relocation import Relocations
from controller.contention.threshold import Advice, Case, SlowRuns, judge_case, still_slow
from controller.cycle.view.controller_view import ControllerView
from controller.cycle.view.result import CycleResult
from controller.observe.role import Role
from controller.preempt.budget import BY_ITSELF, all_off, reach_s
from controller.profiles.store import ProfileStore
from controller.profiles.windows import Links, RunKey, own_nodes
from controller.state.preemption import Cause, Stage
from policies.serving.runtime.tasks.supervise import Tasks

log = structlog.get_logger(__name__)


class StoreAccess(Protocol):
    """Access to the store of profiles, as the agents' server gives it."""

    async def use_store(self, work: Callable[[ProfileStore], Any]) -> Any:
        """Run `work` on the store, in the store's own thread."""


@dataclass(frozen=True, slots=True)
class StandingAdvice:
    """Advice that is valid now, and the time since which it is."""

    advice: Advice
    since_s: float


class ContentionService:
    """Judges the running jobs after each cycle. Invariant: `advice` and `stays` are replaced, never changed, and share no run."""

    def __init__(self, controller: ControllerView, window_s: float, agents: StoreAccess | None = None) -> None:
        """`window_s`: length of the measured windows. Without agents, jobs share nodes only."""
        self.advice: Mapping[RunKey, StandingAdvice] = {}
        """Advised moves, the most urgent first. Bound: the running jobs."""
        self.stays: Mapping[RunKey, str] = {}
        """Runs that should move but cannot now, and why. Bound: the running jobs."""
        self._controller = controller
        self._window_s = window_s
        self._agents = agents
        self._slow: SlowRuns = {}
        """Runs that are slow now, and since when. Bound: the running jobs."""
        self._result: CycleResult | None = None
        self._news = asyncio.Event()
        self._rehearsals = Rehearsals()

    def on_cycle(self, result: CycleResult) -> None:
        """Note the result of a good cycle."""
        self._result = result
        self._news.set()

    async def run(self) -> None:
        """Judge after each cycle until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._result is None:
                continue
            try:
                await self.judge(self._result)
            except Exception:  # a bug must neither leave stale advice nor end the task
                self.advice, self.stays = {}, {}
                log.exception("contention_not_judged")

    async def judge(self, result: CycleResult) -> None:
        """Judge the measurements of one cycle, and begin the moves that are automatic."""
        settings, measured = self._controller.settings, result.observation.measured
        now_s = self._controller.clock.now()
        self._clear_constraints(result, now_s)
        self._slow = still_slow(self._slow, measured, settings, now_s, self._window_s)
        sustained = any(slow.lasted_s >= settings.contention_sustained_s for slow in self._slow.values())
        if all_off(settings) or not sustained:  # slow runs are kept, because a reload may turn this on
            self.advice, self.stays = {}, {}
            return
        links = own_nodes if self._agents is None else await self._agents.use_store(lambda store: store.links)
        case = self._case(result, now_s, links)
        judged = judge_case(case, self._slow, self.advice.keys())
        stays = dict(judged.stays)
        kept: list[Advice] = []
        at_s = self._controller.clock.monotonic()
        self._rehearsals.begin(judged.advice, at_s)
        for advice in judged.advice:
            decider = self._controller.decider
            with apart("advice to move jobs", advice.job.key.job_id):
                why_not = await self._rehearsals.why_not(decider, result, advice, case.relocations, at_s)
                if why_not := why_not or self._done(advice):
                    stays[advice.run] = why_not
                else:
                    kept.append(advice)
        self._keep(kept, now_s)
        self.stays = stays

    def _case(self, result: CycleResult, now_s: float, links: Links) -> Case:
        controller, preemptions = self._controller, self._controller.preemptions
        history = {item.number: item for item in preemptions.since(now_s - reach_s(controller.settings))}
        history |= {item.number: item for item in preemptions.open.values()}
        order = () if result.decided is None else result.decided.plan.queue
        return Case(
            settings=controller.settings,
            observation=result.observation,
            relocations=Relocations(
                result.observation, controller.ledger.originals, order, preemptions.silent(result.observation.snapshot)
            ),
            history=tuple(history.values()),
            preemptibility=preemptions.preemptibility,
            now_s=now_s,
            links=links,
        )

    def _done(self, advice: Advice) -> str:
        """Begin the move, if its mode is automatic. Returns why it cannot be begun; empty otherwise."""
        if advice.mode != "automatic":
            return ""
        try:
            self._controller.preemptions.begin(advice.job, Cause.THRESHOLD, advice.why, advice.place.constraint)
        except HeadwayError as error:
            log.warning("not_preempted", job=advice.job.key.job_id, problem=str(error))
            return str(error)
        return ""

    def _clear_constraints(self, result: CycleResult, now_s: float) -> None:
        """Clear the constraints of jobs that were stopped for a move, and whose new nodes are occupied."""
        controller = self._controller
        late = {
            row.raw_id
            for row in controller.preemptions.open.values()
            if row.cause in BY_ITSELF
            and row.stage is Stage.STOPPED
            and row.stopped_s is not None
            and now_s - row.stopped_s > controller.settings.preemption_within_s
        }
        if not late:
            return
        waiting = [job for job in result.observation.with_role(Role.WAITING) if job.raw_id in late]
        for job in waiting:
            if controller.ledger.clear_constraint(job.key):
                controller.journal.save_jobs(controller.ledger, [job.key])
                controller.events.add("preempt", job.key.job_id, "may go anywhere again: its new nodes are occupied")

    def _keep(self, kept: list[Advice], now_s: float) -> None:
        """Replace the advice, and announce new advice."""
        before = self.advice
        self.advice = {
            item.run: StandingAdvice(item, before[item.run].since_s if item.run in before else now_s) for item in kept
        }
        for item in kept:
            if item.run not in before and item.mode == "advise":
                where = f"to {','.join(item.place.nodes)}"
                self._controller.events.add("advice", item.job.key.job_id, f"should be moved {where}: {item.why}")


@asynccontextmanager
async def judge_contention(
    controller: ControllerView, window_s: float, agents: StoreAccess | None = None, tasks: Tasks | None = None
) -> AsyncIterator[ContentionService]:
    """Apply the threshold after the controller's cycles within the context; `window_s` is the length of the measured windows."""
    settings = controller.settings
    if agents is None and {settings.preemption, *settings.preemption_partitions.values()} != {"off"}:
        log.warning(
            "contention_not_measured",
            mend="set agents_address: without agents there are no measurements for the threshold",
        )
    contention = ContentionService(controller, window_s, agents)
    controller.listeners.append(contention.on_cycle)
    try:
        async with (tasks or Tasks()).running("threshold", contention.run):
            yield contention
    finally:
        controller.listeners.remove(contention.on_cycle)
