"""GPU time of users: of ended jobs by the journal, of the others by the last cycle."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping

from controller.admin.explain.cycle_view import CycleView
from controller.admin.protocol import Reason
from controller.admin.refusal import CallRefused
from controller.admin.viewer import Viewer
from controller.observe.role import Role
from controller.state.usage import EndedUse, read_ended_use
from protos.headway.v1 import admin_pb2

USAGE_S = 7 * 86_400.0
"""Time up to now over which GPU time is counted, seconds."""
_FRESH_S = 60.0
"""Age up to which the sums of the journal are used again, seconds."""
_WAITING = frozenset({Role.WAITING, Role.YIELDED, Role.INELIGIBLE})
_RUNNING = frozenset({Role.RUNNING, Role.STARTING})


class UsageReports:
    """Usage of all users. Invariant: the journal is read at most once a minute, and not in the event loop's thread."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._ended: tuple[float, float, Mapping[str, EndedUse]] | None = None
        """When the journal was read, from when on it counted, and the use of ended jobs."""
        self._reading = asyncio.Lock()

    async def usage(self, user: str, *, private: bool) -> admin_pb2.Usage:
        """Return the usage of all users; if it is private, that of this user. Raises CallRefused."""
        view = self._viewer.require_view()
        async with self._reading:
            since_s, ended = await self._read()
        message = admin_pb2.Usage(since_s=since_s, all_users=not private)
        found = _present(view, self._viewer.controller.clock.now() - since_s)
        for name, use in ended.items():
            row = found.setdefault(name, admin_pb2.UserUsage(user=name))
            row.jobs_ended = use.jobs
            row.gpu_hours += use.gpu_s / 3600.0
        for name, factor in self._fair_shares().items():
            if name in found:
                found[name].fair_share = factor
        rows = [row for name, row in found.items() if not private or name == user]
        message.users.extend(sorted(rows, key=lambda row: (-row.gpu_hours, row.user)))
        return message

    async def _read(self) -> tuple[float, Mapping[str, EndedUse]]:
        controller = self._viewer.controller
        now_s = controller.clock.now()
        if self._ended is None or not 0 <= now_s - self._ended[0] <= _FRESH_S:
            since_s = now_s - USAGE_S
            try:
                ended = await asyncio.to_thread(read_ended_use, controller.journal.path, since_s)
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


def _present(view: CycleView, longest_s: float) -> dict[str, admin_pb2.UserUsage]:
    """Return the use of jobs that have not ended, by user; none of them counts more than its GPUs for `longest_s` seconds."""
    found: dict[str, admin_pb2.UserUsage] = {}
    attained_gpu_s = view.state.jobs.attained_gpu_s
    for job, standing in view.jobs():
        row, num_gpus = view.rows.get(job.key), view.num_gpus(job)
        gpu_s = 0.0 if row is None else min(float(attained_gpu_s[row]), num_gpus * longest_s)
        user = found.setdefault(job.user, admin_pb2.UserUsage(user=job.user))
        user.gpu_hours += gpu_s / 3600.0
        if standing.role in _RUNNING:
            user.jobs_running += 1
            user.gpus_running += num_gpus
        elif standing.role in _WAITING:
            user.jobs_waiting += 1
            user.gpus_waiting += num_gpus
    return found
