"""Requests a new profile of a running job when other jobs have come to its nodes and links, or have left them.

Agents profile a job when it starts. The part of a step in which it waits for communication depends on its neighbours, so that
profile says little about it beside others.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog

from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.contention.measurement import Measurement
from controller.profiles.current import Contention, run_of
from controller.profiles.windows import RunKey
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import Phase, SlurmJob
from policies.serving.runtime.tasks.supervise import Tasks
from protos.headway.v1 import agent_pb2

log = structlog.get_logger(__name__)

HOUR_S = 3600.0
LOOK_EVERY_S = 5.0
"""Minimum interval between two requests, for all jobs together, seconds."""


class Profiling(Protocol):
    """Requests to agents, as `controller.agents.profile_requests.ProfileRequests` sends them."""

    async def request(self, nodes: Iterable[str], job: agent_pb2.JobName, steps: int) -> Mapping[str, str]:
        """Request a profile of the next steps. Returns the problem by node; empty: its ranks have the request."""


@dataclass(frozen=True, slots=True)
class Due:
    """A run whose neighbours are others than at its last profile."""

    run: RunKey
    beside: frozenset[int]
    """Numbers of its present neighbours."""


class Neighbours:
    """Neighbours of each run at its last profile and now. Invariant: within an hour at most `most` requests count for a job.

    A run's neighbours are those of its newest window: these stayed the same for the whole window.
    """

    def __init__(self) -> None:
        self._profiled: dict[RunKey, frozenset[int]] = {}
        """Neighbours of each run when it was profiled. Bound: the present runs."""
        self._now: dict[RunKey, frozenset[int]] = {}
        """Present neighbours of each run. Bound: the present runs."""
        self._requests: dict[int, deque[float]] = defaultdict(deque)
        """Times of the newest requests, by job. Bound: the requests of the last hour."""

    def see(self, found: Contention) -> None:
        """Note the neighbours of a run's newest window. Those of its first window count as those of its first profile."""
        beside = frozenset(other.run.job_id for other in found.window.neighbours)
        self._profiled.setdefault(found.window.run, beside)
        self._now[found.window.run] = beside

    def keep_only(self, present: Iterable[RunKey], now_s: float) -> None:
        """Forget all runs but these, and requests that no longer count."""
        runs = set(present)
        self._profiled = {run: beside for run, beside in self._profiled.items() if run in runs}
        self._now = {run: beside for run, beside in self._now.items() if run in runs}
        for job_id, times in list(self._requests.items()):
            while times and now_s - times[0] >= HOUR_S:
                times.popleft()
            if not times:
                del self._requests[job_id]

    def due(self, most: int) -> Due | None:
        """Return the run that has waited longest for a request among those with new neighbours and requests left; None: none."""
        open_ = [
            run
            for run, beside in self._now.items()
            if beside != self._profiled[run] and len(self._requests.get(run.job_id, ())) < most
        ]
        if not open_:
            return None
        run = min(open_, key=lambda run: (max(self._requests.get(run.job_id, ()), default=0.0), run))
        return Due(run, self._now[run])

    def requested(self, due: Due, now_s: float, *, accepted: bool) -> None:
        """Count a request. One that no agent could pass on is tried again as long as the job has requests left."""
        self._requests[due.run.job_id].append(now_s)
        if accepted:
            self._profiled[due.run] = due.beside


class Reprofiling:
    """Sends the requests, one after the other."""

    def __init__(
        self,
        settings: Callable[[], ControllerSettings],
        newest_snapshot: Callable[[], SlurmSnapshot | None],
        profiling: Profiling,
        clock: Clock,
    ) -> None:
        """`settings` returns the present ones, `newest_snapshot` the last one of Slurm."""
        self._settings, self._newest = settings, newest_snapshot
        self._profiling, self._clock = profiling, clock
        self.neighbours = Neighbours()

    async def run(self, every_s: float) -> None:
        """Look for jobs with new neighbours until cancelled."""
        while True:
            await self._clock.sleep(every_s)
            try:
                await self.look()
            except Exception:  # a bug costs profiles, and must not end the task
                log.exception("neighbours_not_profiled")

    async def look(self) -> None:
        """Send the next request that is due and allowed, if there is one."""
        snapshot, settings = self._newest(), self._settings()
        if snapshot is None:
            return
        jobs = {run: job for job in snapshot.jobs if job.phase is Phase.RUNNING and (run := run_of(job)) is not None}
        self.neighbours.keep_only(jobs, self._clock.monotonic())
        if not settings.agents_profile_steps:
            return
        due = self.neighbours.due(settings.agents_profiles_per_hour)
        if due is not None:
            await self._request(due, jobs[due.run], settings.agents_profile_steps)

    async def _request(self, due: Due, job: SlurmJob, steps: int) -> None:
        name = agent_pb2.JobName(job_id=due.run.job_id, restart=due.run.restart)
        answers = await self._profiling.request([share.node for share in job.allocated], name, steps)
        nodes = [node for node, problem in answers.items() if not problem]
        self.neighbours.requested(due, self._clock.monotonic(), accepted=bool(nodes))
        if nodes:
            log.info("profile_requested", job=job.key.job_id, nodes=nodes, beside=sorted(due.beside))
        else:
            problems = [f"{node}: {problem}" for node, problem in answers.items()]
            log.info("profile_not_requested", job=job.key.job_id, problems=problems[:5])


@asynccontextmanager
async def profile_beside_others(
    settings: Callable[[], ControllerSettings],
    newest_snapshot: Callable[[], SlurmSnapshot | None],
    measurement: Measurement | None,
    profiling: Profiling | None,
    clock: Clock,
    tasks: Tasks | None = None,
    every_s: float = LOOK_EVERY_S,
) -> AsyncIterator[None]:
    """Request profiles of jobs with new neighbours within the context; without agents none."""
    if measurement is None or profiling is None:
        yield
        return
    again = Reprofiling(settings, newest_snapshot, profiling, clock)
    measurement.listeners.append(again.neighbours.see)
    try:
        async with (tasks or Tasks()).running("profiles", lambda: again.run(every_s)):
            yield
    finally:
        measurement.listeners.remove(again.neighbours.see)
