"""Storing of reports: one queue of all agents, one thread that writes, and the regular work on the store."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from controller.agents.reports.claims import link_bits_per_s
from controller.agents.reports.report_screen import ReportScreen
from controller.base.clock import Clock, RealClock
from controller.profiles.sightings import Arrival
from controller.profiles.store import ProfileStore, ProfileStoreError
from controller.profiles.windows import SlurmRun
from policies.serving.runtime.tasks.single_thread import Worker
from protos.headway.v1 import agent_pb2

log = structlog.get_logger(__name__)

_BATCH = 512
_GATHER_S = 0.05
"""Reports that arrive within this time are written in one transaction, and acknowledged together."""
_MAX_WAITING = 10_000
"""Reports of all agents that wait to be stored."""
_COMPUTE_EVERY_S = 5.0
_COMPUTE_A_WINDOW = 6
"""Number of times in a long window that finished windows are looked for."""
_PRUNE_EVERY_S = 600.0
_STORE_AGAIN_S = 1.0

OnStored = Callable[[bool], None]
"""Called when a report is in the store; the argument says whether it is new, rather than sent again."""


class ReportStorage:
    """Invariant: one thread alone uses the store, and `OnStored` is called only after a report was written.

    When the store is slow, the queue fills, and every stream waits: no report is dropped here.
    """

    def __init__(
        self, store: ProfileStore, screen: ReportScreen, clock: Clock | None = None, worker: Worker | None = None
    ) -> None:
        """`worker`: the thread that alone uses the store; without it one is started."""
        self._store = store
        self._screen = screen
        self._clock: Clock = RealClock() if clock is None else clock
        self._worker = Worker("profile-store") if worker is None else worker
        self._arrivals: asyncio.Queue[tuple[Arrival, OnStored]] = asyncio.Queue(_MAX_WAITING)
        self._batch: list[tuple[Arrival, OnStored]] = []
        """Reports that are about to be stored, at most `_BATCH`. Bound: `_BATCH`."""
        self._problem = ""
        """Reason why the last write failed; empty = it did not."""

    async def use(self, work: Callable[[ProfileStore], Any]) -> Any:
        """Run `work` on the store, in the store's own thread."""
        return await self._worker.run(lambda: work(self._store))

    async def put(self, arrival: Arrival, on_stored: OnStored) -> None:
        """Check a report and queue it; waits while the queue is full."""
        self._screen.screen(arrival)
        await self._arrivals.put((arrival, on_stored))

    async def highest(self, hello: agent_pb2.AgentHello) -> int:
        """Return the highest stored number of a report of this run of the agent; 0 when there is none."""
        return int(await self._worker.run(lambda: self._store.highest(hello.node, hello.run_id)))

    async def note_node(self, hello: agent_pb2.AgentHello) -> None:
        """Store the speed of the node's network interfaces."""
        rate, now_s = link_bits_per_s(hello.topology), self._clock.now()
        with suppress(ProfileStoreError):  # the next hello has it again
            await self._worker.run(lambda: self._store.note_node(hello.node, rate, hello.run_id, now_s))

    async def note_present(
        self, time_s: float, jobs_by_node: Mapping[str, Iterable[int]], runs: Iterable[SlurmRun]
    ) -> None:
        """Store the jobs that Slurm runs on each node; see ProfileStore. Raises ProfileStoreError."""
        await self._worker.run(partial(self._store.note_present, time_s, jobs_by_node, runs))

    async def close(self) -> None:
        """Wait until all writes are done, and end the thread."""
        try:
            await self._worker.run(lambda: None)
        finally:
            self._worker.end()

    async def store_reports(self) -> None:
        """Store reports until cancelled, as many at once as have arrived. Nothing is acknowledged while storing fails."""
        while True:
            batch = self._batch  # not empty after a failure, so that no report is lost
            if not batch:
                batch.append(await self._arrivals.get())
                await asyncio.sleep(_GATHER_S)
            while len(batch) < _BATCH and not self._arrivals.empty():
                batch.append(self._arrivals.get_nowait())
            new = await self._stored([arrival for arrival, _ in batch])
            self._batch = []
            for (_, on_stored), fresh in zip(batch, new, strict=True):
                on_stored(fresh)

    async def _stored(self, arrivals: list[Arrival]) -> list[bool]:
        """Return for each report whether it was new, as soon as all of them are in the store."""
        while True:
            try:
                new, left_out = await self._worker.run(partial(self._take, arrivals))
            except ProfileStoreError as error:
                self._note_problem(str(error))
                await asyncio.sleep(_STORE_AGAIN_S)
                continue
            except Exception as error:  # noqa: BLE001 - one report must not block the others, nor be sent again for ever
                if len(arrivals) == 1:
                    self._screen.not_stored(arrivals[0].node, error)
                    return [False]
                return [fresh for arrival in arrivals for fresh in await self._stored([arrival])]
            self._note_problem("")
            for node, number in left_out.items():
                self._screen.over_limit(node, number)
            return new

    def _note_problem(self, problem: str) -> None:
        """Log a problem once, although each second has it anew, and the end of it."""
        if problem and problem != self._problem:
            log.error("reports_not_stored", problem=problem)
        elif self._problem and not problem:
            log.info("reports_stored_again")
        self._problem = problem

    def _take(self, arrivals: list[Arrival]) -> tuple[list[bool], Mapping[str, int]]:
        """Store reports in the store's thread. Returns for each whether it was new, and by node how many were over the limits."""
        return self._store.take(arrivals), self._store.left_out()

    async def compute_windows_regularly(self, on_pruned: Callable[[float], None]) -> None:
        """Compute the throughputs of finished windows until cancelled, and drop old rows from time to time."""
        pruned_s = -math.inf
        while True:
            await self._clock.sleep(max(_COMPUTE_EVERY_S, self._store.settings.window_s / _COMPUTE_A_WINDOW))
            now_s = self._clock.now()
            await self._regularly("windows_not_computed", partial(self._store.compute_windows, now_s))
            # Also while no window can be computed: the disk may be full of what this drops.
            if self._clock.monotonic() - pruned_s > _PRUNE_EVERY_S and await self._regularly(
                "old_rows_not_dropped", partial(self._store.prune, now_s)
            ):
                pruned_s = self._clock.monotonic()
                on_pruned(now_s)

    async def _regularly(self, failed: str, work: Callable[[], Any]) -> bool:
        """Do regular work on the store. Return False after an error of the store: the next attempt may succeed."""
        try:
            await self._worker.run(work)
        except (ProfileStoreError, sqlite3.Error) as error:
            log.error(failed, problem=str(error))
            return False
        return True
