"""Computes the contention sensitivities of running jobs from the agents' reports, beside the controller's cycles.

It runs in a thread with its own reader of the store, so that neither a cycle nor the storage of reports waits for it. It works
in small pieces with pauses between them, because only one of Python's threads runs at a time.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from controller.agents.node_table import NodeStatus
from controller.base.apart import apart
from controller.base.config import ControllerSettings
from controller.observe.model_profiles import KnownModels
from controller.profiles.current import (
    FRESH_WINDOWS,
    NO_CONTENTION,
    Contention,
    ContentionByRun,
    contention,
    jobs_by_node,
    newest,
    present_runs,
)
from controller.profiles.ideal import measured_priors
from controller.profiles.racks import ONE_RACK, Racks
from controller.profiles.reader import CachingReader, ProfileReader, ProfileStoreError
from controller.profiles.sensitivity import Priors
from controller.profiles.windows import RunKey, Throughput
from controller.slurm.model.cluster import SlurmSnapshot
from policies.serving.runtime.tasks.single_thread import Worker
from policies.serving.runtime.tasks.supervise import Tasks

log = structlog.get_logger(__name__)

T = TypeVar("T")
Found = dict[RunKey, Throughput]

_UPDATE_EVERY_S = 2.0
_AT_ONCE = 5
"""Number of jobs that are computed at once: 10 to 50 ms."""
_PAUSES = 4.0
"""Length of the pause after each piece, as a multiple of the piece's time. Without pauses this thread
made a busy event loop take a third longer (measured). With 500 jobs it works for three of 30 s."""
_PRIORS_EVERY_S = 600.0
_NEW_MODELS_AFTER = 5.0
"""Number of windows after which models are read again, when a job trains a model that was not seen before, or not at its
locality."""
_MOST_WORDS = 200
_PRIORS_FROM = 3000
"""Number of the newest windows from which the spread of measurements is computed."""

Listener = Callable[[Contention], None]
"""Called with every computed sensitivity, in the event loop: it must neither wait nor raise."""


NewestSnapshot = Callable[[], SlurmSnapshot | None]
"""Returns the newest snapshot of Slurm; None before the first."""
Publish = Callable[[ContentionByRun, KnownModels | None], None]
"""Receives the contention of running jobs and the profiles of models, for the next snapshot of policies."""


class AgentsView(Protocol):
    """State of the agents' server."""

    @property
    def nodes(self) -> Mapping[str, NodeStatus]:
        """Every node whose agent was connected recently."""

    @property
    def reports(self) -> int:
        """Number of reports stored since the start."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Number of streams that were refused since the start, by gRPC's name of the status."""

    @property
    def left_out(self) -> Mapping[str, int]:
        """Reports that were not used since the start, by reason."""


class Measurement:
    """Contention of running jobs, and the state of the agents. Invariant: `known` is replaced, never changed."""

    def __init__(
        self, agents: AgentsView, path: Path, window_s: float, racks: Callable[[], Racks] = lambda: ONE_RACK
    ) -> None:
        """`path` is the store that the agents' server writes, `window_s` the length of its windows; `racks` returns what is known
        of the topology."""
        self.window_s = window_s
        self.known: ContentionByRun = NO_CONTENTION
        self.listeners: list[Listener] = []
        """Bound: the controller's own parts."""
        self.impaired: Mapping[int, str] = {}
        """Numbers of the jobs whose GPUs were throttled or failed within the newest windows, and the causes ("power,thermal").
        Bound: the jobs of these windows; replaced at each update."""
        self.connected = 0
        """Number of connected agents at the last update."""
        self.agents = agents
        self._path = path
        self._racks = racks
        self._priors = Priors()
        self.models: KnownModels | None = None
        """Models at the last update; None before the first."""
        self._priors_s: float | None = None
        self._models_s: float | None = None
        self._seen: object = None
        self._worker = Worker("profiles")

    async def read(self, work: Callable[[ProfileReader], T]) -> T:
        """Run a query that may take long on the store; one at a time. Raises ProfileStoreError."""
        return await self._worker.run(partial(self._read, work))

    def end(self) -> None:
        """End the thread for queries."""
        self._worker.end()

    def _read(self, work: Callable[[ProfileReader], T]) -> T:
        with closing(ProfileReader.open(self._path)) as store:
            try:
                return work(store)
            except (sqlite3.Error, ValueError, TypeError, LookupError) as error:  # or a damaged row
                raise ProfileStoreError(f"{self._path}: cannot be read: {error}; check the disk") from error

    async def run(self, newest_snapshot: NewestSnapshot, publish: Publish) -> None:
        """Update `known` at regular intervals until cancelled."""
        store = ProfileReader.open(self._path)
        worker = Worker("contention")
        try:
            while True:
                await asyncio.sleep(_UPDATE_EVERY_S)
                self.connected = sum(node.connected for node in self.agents.nodes.values())
                snapshot = newest_snapshot()
                if snapshot is None:
                    continue
                try:
                    store = await worker.run(partial(store.newest, self._path))
                    since_s = time.time() - FRESH_WINDOWS * self.window_s
                    self.impaired = await worker.run(partial(store.impaired, since_s))
                    await self.update(worker, store, snapshot)
                except sqlite3.Error as error:
                    self.known, self._seen = NO_CONTENTION, None
                    log.error("contention_not_computed", problem=str(error))
                except Exception:  # after a bug, snapshots must not keep stale values
                    self.known, self._seen = NO_CONTENTION, None
                    log.exception("contention_not_computed")
                publish(self.known, self.models)
        finally:
            worker.end(store.close)  # in that thread: closing during a read crashes SQLite

    async def update(self, worker: Worker, store: ProfileReader, snapshot: SlurmSnapshot) -> None:
        """Bring `known` up to date with the store."""
        found = await worker.run(partial(self._newest, store, snapshot, time.time()))
        if found is None:
            return
        if self._priors_s is None or time.monotonic() - self._priors_s > _PRIORS_EVERY_S:
            self._priors = await worker.run(partial(_priors, store))
            self._priors_s = time.monotonic() if found else None
            self._models_s = None
        if self._models_are_old(found.values()):
            self.models = await worker.run(partial(_models, store, self._racks()))
            self._models_s = time.monotonic() if found else None
        known = {run: self.known[run] for run, item in found.items() if self._has(run, item)}
        news = [run for run in found if run not in known]
        reader = CachingReader(store)
        for first in range(0, len(news), _AT_ONCE):
            piece = news[first : first + _AT_ONCE]
            begun_s = time.monotonic()
            fresh = await worker.run(partial(_contentions, reader, [found[run] for run in piece], self._priors))
            known.update(zip(piece, fresh, strict=True))
            self._notify(fresh)
            await asyncio.sleep((time.monotonic() - begun_s) * _PAUSES)
        self.known = known

    def _models_are_old(self, windows: Iterable[Throughput]) -> bool:
        models = self.models
        if models is None or self._models_s is None:
            return True
        if time.monotonic() - self._models_s < _NEW_MODELS_AFTER * self.window_s:
            return False
        return any(each.trained.signature and not models.has(each) for each in windows)

    def _newest(self, store: ProfileReader, snapshot: SlurmSnapshot, now_s: float) -> Found | None:
        """Return the windows that describe the present; None when nothing has changed since the last call."""
        present, runs = jobs_by_node(snapshot), present_runs(snapshot)
        seen = present, runs, store.newest_s(), now_s // self.window_s
        if seen == self._seen:
            return None
        self._seen = seen
        found = newest(store, now_s - FRESH_WINDOWS * self.window_s, present)
        # A job that was requeued may run on the same nodes, and its last run has ended all the same.
        return {run: item for run, item in found.items() if run in runs}

    def _has(self, run: RunKey, item: Throughput) -> bool:
        known = self.known.get(run)
        return known is not None and known.window == item

    def _notify(self, fresh: Iterable[Contention]) -> None:
        for item in fresh:
            for listener in self.listeners:
                with apart("listeners to contention", str(item.window.run.job_id)):
                    listener(item)


def _contentions(store: ProfileReader, windows: Sequence[Throughput], priors: Priors) -> list[Contention]:
    return [_contention(store, item, priors) for item in windows]


def _contention(store: ProfileReader, item: Throughput, priors: Priors) -> Contention:
    """Return the contention of one job; unknown when its numbers allow no result. Other jobs are not affected."""
    try:
        return contention(store, item, priors)
    except (ArithmeticError, ValueError) as error:
        log.error("job_not_computed", job=item.run.job_id, problem=f"{type(error).__name__}: {error}"[:_MOST_WORDS])
        return Contention(item, None)


def _priors(store: ProfileReader) -> Priors:
    try:
        return measured_priors(store, store.beginning_of_last(_PRIORS_FROM))
    except (ArithmeticError, ValueError) as error:
        log.error("priors_not_computed", problem=f"{type(error).__name__}: {error}"[:_MOST_WORDS])
        return Priors()


def _models(store: ProfileReader, racks: Racks) -> KnownModels:
    return KnownModels.of(store, store.beginning_of_last(_PRIORS_FROM), racks)


@asynccontextmanager
async def measure(
    newest_snapshot: NewestSnapshot,
    publish: Publish,
    agents: AgentsView | None,
    settings: ControllerSettings,
    window_s: float,
    tasks: Tasks | None = None,
    racks: Callable[[], Racks] = lambda: ONE_RACK,
) -> AsyncIterator[Measurement | None]:
    """Measure contention within the context, and publish each result; without agents nothing is measured."""
    if agents is None:
        yield None
        return
    measurement = Measurement(agents, settings.profiles_path, window_s, racks)
    try:
        async with (tasks or Tasks()).running("contention", lambda: measurement.run(newest_snapshot, publish)):
            yield measurement
    finally:
        measurement.end()
