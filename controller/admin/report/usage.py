"""GPU time of users, and waits of their jobs: of ended jobs by the journal, of the others by the last cycle."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.admin.explain.cycle_view import CycleView
from controller.admin.protocol import Reason
from controller.admin.refusal import CallRefused
from controller.admin.viewer import Viewer
from controller.base.apart import apart
from controller.base.job_sizes import SIZES, quantile, size_class
from controller.cycle.changes import allocated_gpus, uncounted_run_s
from controller.observe.role import Role
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.usage import EndedUse, EndedWaits, read_ended_use, read_ended_waits
from protos.headway.v1 import admin_pb2

USAGE_S = 7 * 86_400.0
"""Time up to now over which GPU time is counted, seconds."""
_FRESH_S = 60.0
"""Age up to which the sums of the journal are used again, seconds."""
_MOST_READS = 3
_WAITING = frozenset({Role.WAITING, Role.YIELDED, Role.INELIGIBLE})
_RUNNING = frozenset({Role.RUNNING, Role.STARTING})


@dataclass(frozen=True, slots=True)
class _Ended:
    """Ended jobs of the journal by user: their GPU time, and their waits."""

    use: Mapping[str, EndedUse]
    waits: Mapping[str, EndedWaits]


def _read_ended(journal: Path, since_s: float) -> _Ended:
    return _Ended(read_ended_use(journal, since_s), read_ended_waits(journal, since_s))


class UsageReports:
    """Usage of all users. Invariant: the journal is read at most once a minute, and once after each cycle in which jobs have ended,
    and not in the event loop's thread.
    """

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._ended: tuple[float, float, _Ended] | None = None
        """When the journal was read, from when on it counted, and its ended jobs."""
        self._counted: frozenset[JobKey] = frozenset()
        """Ended jobs, as of the last cycle before that. Bound: the jobs of one snapshot."""
        self._reading = asyncio.Lock()

    async def usage(self, user: str, *, private: bool) -> admin_pb2.Usage:
        """Return the usage of all users; if it is private, that of this user. Raises CallRefused."""
        async with self._reading:
            view, since_s, ended = await self._read_with_view()
        message = admin_pb2.Usage(since_s=since_s, all_users=not private)
        found = _present(view, self._viewer.controller.clock.now() - since_s)
        for name, use in ended.use.items():
            row = found.setdefault(name, admin_pb2.UserUsage(user=name))
            row.jobs_ended = use.jobs
            row.gpu_hours += use.gpu_s / 3600.0
        for name, factor in self._fair_shares().items():
            if name in found:
                found[name].fair_share = factor
        message.waits.extend(_size_waits(of for name, of in ended.waits.items() if not private or name == user))
        rows = [row for name, row in found.items() if not private or name == user]
        message.users.extend(sorted(rows, key=lambda row: (-row.gpu_hours, row.user)))
        return message

    async def _read_with_view(self) -> tuple[CycleView, float, _Ended]:
        """Return the last cycle, and the ended jobs of the journal, with each job that has ended by then."""
        for _ in range(_MOST_READS):  # a cycle may end during a reading
            view = self._viewer.require_view()
            ended = _ended_jobs(view)
            if not ended <= self._counted:
                self._ended = None
            use = await self._read()
            self._counted = ended
            if self._viewer.require_view().result is view.result:
                break
        return view, *use

    async def _read(self) -> tuple[float, _Ended]:
        controller = self._viewer.controller
        now_s = controller.clock.now()
        if self._ended is None or not 0 <= now_s - self._ended[0] <= _FRESH_S:
            since_s = now_s - USAGE_S
            try:
                ended = await asyncio.to_thread(_read_ended, controller.journal.path, since_s)
            except sqlite3.Error as error:
                raise CallRefused(
                    Reason.JOURNAL_FAILED, f"{controller.journal.path} cannot be read: {error}"
                ) from error
            self._ended = now_s, since_s, ended
        return self._ended[1:]

    def _fair_shares(self) -> Mapping[str, float]:
        """Return the largest fair-share factor of each user; empty where Slurm's priority does not use any."""
        priorities = self._viewer.controller.knowledge.priorities
        found: dict[str, float] = {}
        for (_, user, _), factor in {} if priorities is None else priorities.shares.fair_share.items():
            found[user] = max(factor, found.get(user, 0.0))
        return found


def _size_waits(users: Iterable[EndedWaits]) -> Iterator[admin_pb2.SizeWaits]:
    """Yield the waits by size, the smallest first; none for a size without jobs."""
    found: dict[int, list[float]] = defaultdict(list)
    for user in users:
        for gpus, wait_s in zip(user.gpus, user.past_waits_s, strict=True):
            found[size_class(gpus)].append(wait_s)
    for at in sorted(found):
        most, waits_s = SIZES[at] if at < len(SIZES) else 0, found[at]
        yield admin_pb2.SizeWaits(
            most_gpus=most, jobs=len(waits_s), p50_s=quantile(waits_s, 0.5) or 0.0, p95_s=quantile(waits_s, 0.95) or 0.0
        )


def _present(view: CycleView, longest_s: float) -> dict[str, admin_pb2.UserUsage]:
    """Return the use of jobs that have not ended, by user.

    None of them counts more than its GPUs, on average, for `longest_s` seconds.
    """
    found: dict[str, admin_pb2.UserUsage] = {}
    for job, standing in view.jobs():
        with apart("usage", job.key.job_id):
            num_gpus = view.num_gpus(job)
            service_s, gpu_s = _attained(view, job)
            if service_s > longest_s:
                gpu_s *= longest_s / service_s
            user = found.setdefault(job.user, admin_pb2.UserUsage(user=job.user))
            user.gpu_hours += gpu_s / 3600.0
            if standing.role in _RUNNING:
                user.jobs_running += 1
                user.gpus_running += num_gpus
            elif standing.role in _WAITING:
                user.jobs_waiting += 1
                user.gpus_waiting += num_gpus
    return found


def _attained(view: CycleView, job: SlurmJob) -> tuple[float, float]:
    """Return the run time of all runs so far, and the same times their GPUs, both in seconds."""
    row = view.rows.get(job.key)
    if row is not None:
        return float(view.state.jobs.service_s[row]), float(view.state.jobs.attained_gpu_s[row])
    # The policy does not see it, such as a job that was requeued and is held by its user.
    served = view.ledger.served.get(job.key)
    run_s = uncounted_run_s(job, served, view.state.time_s) if job.phase.occupies_nodes else 0.0
    service_s, gpu_s = (0.0, 0.0) if served is None else (served.service_s, served.gpu_s)
    return service_s + run_s, gpu_s + run_s * allocated_gpus(job)


def _ended_jobs(view: CycleView) -> frozenset[JobKey]:
    return frozenset(job.key for job in view.result.observation.jobs.values() if job.phase is Phase.ENDED)
