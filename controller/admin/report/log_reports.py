"""Sends jobs the part of their report that only the controller knows, for the end of their own logs (HEADWAY_REPORT=1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from controller.admin.refusal import CallRefused
from controller.admin.report.log_lines import log_lines
from controller.admin.report.reports import Reports
from controller.admin.viewer import Viewer
from controller.agents.commands import CommandSender
from controller.profiles.windows import RunKey
from controller.slurm.model.job import Phase, SlurmJob
from protos.headway.v1 import agent_pb2

log = structlog.get_logger(__name__)

EVERY_S = 60.0
"""Time between two reports to one job: at its end, the job has one that is hardly older."""
PAUSE_S = 1.0
"""Time between two reports to any jobs, which bounds the work: with many jobs, each gets its report less often."""
_MOST_JOBS = 1000


class _Agents(CommandSender, Protocol):
    """The server of agents."""

    @property
    def listeners(self) -> list[Callable[[str, agent_pb2.AgentReport], None]]:
        """Functions that are called with every stored report."""


@dataclass(slots=True)
class _Wish:
    """A run that wants a report."""

    node: str
    """Node of the process that writes it."""
    job: agent_pb2.JobName
    due_s: float
    """Monotonic time of its next report."""


class LogReports:
    """Invariant: a report goes to the node whose agent has asked for it, if Slurm says that the job has that node.

    Nothing waits for a report, and none is repeated: one that is lost is followed by the next.
    """

    def __init__(self, agents: _Agents, monotonic: Callable[[], float]) -> None:
        """`monotonic` returns seconds of a clock that is never set."""
        self._agents = agents
        self._monotonic = monotonic
        self._wishes: dict[RunKey, _Wish] = {}
        """Bound: `_MOST_JOBS`."""
        agents.listeners.append(self.on_report)

    def on_report(self, node: str, report: agent_pb2.AgentReport) -> None:
        """Note the jobs that want a report, and forget those that have left their node."""
        match report.WhichOneof("kind"):
            case "job" if report.job.report_wanted:
                self._note(node, report.job.job)
            case "job":
                self._forget(node, report.job.job)
            case "ended":
                self._forget(node, report.ended.job)

    def _note(self, node: str, job: agent_pb2.JobName) -> None:
        wish = self._wishes.get(_key(job))
        if wish is not None:
            wish.node = node
        elif len(self._wishes) < _MOST_JOBS:
            name = agent_pb2.JobName()
            name.CopyFrom(job)  # a part of a message keeps all of it
            self._wishes[_key(job)] = _Wish(node, name, self._monotonic())

    def _forget(self, node: str, job: agent_pb2.JobName) -> None:
        wish = self._wishes.get(_key(job))
        if wish is not None and wish.node == node:
            del self._wishes[_key(job)]

    async def run(self, viewer: Viewer, reports: Reports) -> None:
        """Send reports as they are due, until cancelled."""
        while True:
            await self.send_next(viewer, reports)
            await asyncio.sleep(PAUSE_S)

    async def send_next(self, viewer: Viewer, reports: Reports) -> None:
        """Send the report that has been due for longest, if any is."""
        now_s = self._monotonic()
        key = min(self._wishes, key=lambda each: self._wishes[each].due_s, default=None)
        if key is None or self._wishes[key].due_s > now_s:
            return
        wish = self._wishes[key]
        wish.due_s = now_s + EVERY_S
        job = _job_of(viewer, key)
        # It has ended, Slurm does not show this run yet (its agent asks again), or an agent asks for the job of another node.
        if job is None or wish.node not in {share.node for share in job.allocated}:
            self._wishes.pop(key, None)
            return
        try:
            found = await reports.report(job.key.job_id, job.user, private=True)
        except CallRefused as error:
            log.debug("no_report_for_log", job=job.key.job_id, problem=str(error))
            return
        lines = agent_pb2.ReportLines(lines=log_lines(found))
        self._agents.send_command(wish.node, agent_pb2.AgentCommand(id="report", job=wish.job, report=lines))


def _job_of(viewer: Viewer, key: RunKey) -> SlurmJob | None:
    """Return the job of that run, while it runs."""
    view = viewer.view()
    job = None if view is None else view.find(view.called(key.job_id))
    if job is None or (job.raw_id, job.restarts) != (key.job_id, key.restart):
        return None
    return job if job.phase is Phase.RUNNING else None


def _key(job: agent_pb2.JobName) -> RunKey:
    return RunKey(job.job_id, job.restart)
