"""Answers of the Admin service that are prepared once for all callers."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator

from controller.admin.explain.advice_text import advice_messages
from controller.admin.explain.cycle_view import CycleView
from controller.admin.messages import agents_status, cluster, queue_entries, slurm_calls, status
from controller.admin.metrics.metered_client import MeteredClient
from controller.admin.profile_messages import Running, now
from controller.admin.protocol import Reason
from controller.admin.refusal import CallRefused
from controller.agents.profile_requests import ProfileRequests
from controller.base.audit import AuditLog
from controller.contention.measurement import Measurement
from controller.contention.service import ContentionService
from controller.cycle.view.controller_view import ControllerView
from controller.forecast.estimate import Starts, no_starts
from controller.profiles.current import ContentionByRun
from controller.slurm.model.cluster import is_asleep
from policies.serving.runtime.version import VERSION
from protos.headway.v1 import admin_pb2

_JOB_ID = re.compile(r"[0-9]{1,18}(_[0-9]{1,18})?")
_LINES_AT_ONCE = 100


class Viewer:
    """The controller as both sockets of the Admin service see it.

    Invariant: slow answers are computed once per cycle for all callers, and never block the event loop for long.
    """

    def __init__(
        self,
        controller: ControllerView,
        measurement: Measurement | None = None,
        contention: ContentionService | None = None,
        audit: AuditLog | None = None,
        profiling: ProfileRequests | None = None,
        starts: Starts = no_starts,
    ) -> None:
        """Without agents nothing is measured, nor profiled at request; without `contention` there is no advice, without `audit` no
        record of requests, and without `starts` no job has an estimate of its start."""
        self.controller = controller
        self.measurement = measurement
        self.contention = contention
        self.audit = audit
        self.profiling = profiling
        self.starts = starts
        self.watchers: Counter[int | None] = Counter()
        """Number of WatchEvents calls by uid. Bound: the calls under way."""
        self._view: CycleView | None = None
        self._cluster = admin_pb2.Status()
        self._queue: tuple[CycleView, admin_pb2.Queue] | None = None
        self._making = asyncio.Lock()

    def view(self) -> CycleView | None:
        """Return the view of the last good cycle; None before the first."""
        last = self.controller.last
        if last is not None and (self._view is None or self._view.result is not last):
            self._view = CycleView(last, self.controller.ledger, self.controller.settings.partitions)
            self._cluster = cluster(self._view, self.controller.knowledge.racks.of)
        return self._view

    def require_view(self) -> CycleView:
        """Return the view of the last good cycle. Raises CallRefused before the first."""
        view = self.view()
        if view is None:
            raise self.not_ready()
        return view

    def not_ready(self) -> CallRefused:
        """Return the refusal of a call before the first good cycle."""
        problem = self.controller.health.last_error or "Slurm has not answered yet; try again in a moment"
        return CallRefused(Reason.NOT_READY, f"the controller is running, but has not read the cluster yet: {problem}")

    def check_id(self, job_id: str) -> None:
        """Raise CallRefused if the text is no job id."""
        if not _JOB_ID.fullmatch(job_id):
            text = f"{job_id[:40]!r} is not a job id; give an id such as 123 or 123_4"
            raise CallRefused(Reason.INVALID_JOB_ID, text)

    def status(self) -> admin_pb2.Status:
        """Return the status; without jobs and nodes before the first cycle."""
        self.view()
        message = status(self.controller, VERSION)
        message.MergeFrom(self._cluster)
        client = self.controller.client
        message.slurm_calls.extend(slurm_calls(client.calls()) if isinstance(client, MeteredClient) else ())
        message.troubles.extend(
            filter(None, (self.controller.events.trouble, self.audit.trouble if self.audit else ""))
        )
        message.advice.extend(advice_messages(self.contention))
        names = [node.name for node in self._cluster.nodes if not is_asleep(node.state)]
        message.agents.CopyFrom(agents_status(self.measurement, names, self.controller.clock.now()))
        return message

    def running(self, known: ContentionByRun) -> Running:
        """Return the messages of the runs with a known throughput."""
        view = self.view()
        if view is None:
            return {}
        return {run: now(view.called(run.job_id), found, view.beside(found)) for run, found in known.items()}

    def _entries(self, view: CycleView) -> Iterator[admin_pb2.QueueEntry]:
        return queue_entries(view, self.controller.clock.now(), self.starts, self.controller.preemptions.steps_done)

    async def queue(self, view: CycleView) -> admin_pb2.Queue:
        """Return the queue. It is composed a hundred lines at a time, because ten thousand at once would delay decisions."""
        async with self._making:
            if self._queue is None or self._queue[0] is not view:
                message = admin_pb2.Queue()
                for number, entry in enumerate(self._entries(view), start=1):
                    message.entries.append(entry)
                    if number % _LINES_AT_ONCE == 0:
                        await asyncio.sleep(0)
                self._queue = view, message
            return self._queue[1]
