"""Notifications from the results of cycles and from the stages of preemptions."""

from __future__ import annotations

from collections.abc import Callable

from controller.base.text import without_job_ids
from controller.cycle.view.controller_view import ControllerView
from controller.cycle.view.result import CycleResult
from controller.notify.message import JobEvent, Notification
from controller.slurm.client import SlurmJob
from controller.state.preemption import Preemption, Stage

_MOST_STOPPED = 10_000

Send = Callable[[Notification], None]


class NotificationSource:
    """Turns what the controller sees into notifications. Invariant: one preemption is one notification, at its stop.

    What happens while no controller runs is not notified: at its first cycle all running jobs are new to it.
    """

    def __init__(self, controller: ControllerView, send: Send) -> None:
        self._controller = controller
        self._send = send
        self._first = True
        self._stops: dict[str, int] = {}
        """Job id → number of the preemption that was notified last. Bound: `_MOST_STOPPED`."""
        self._nodes_before: dict[str, frozenset[str]] = {}
        """Job id → nodes of the run that was stopped, until the job runs again. Bound: `_MOST_STOPPED`."""
        for row in controller.preemptions.open.values():
            if row.stopped_s is not None:
                self._remember(row)

    def on_cycle(self, result: CycleResult) -> None:
        """Send what has changed since the cycle before: a listener of the controller."""
        first, self._first = self._first, False
        time_s = result.observation.snapshot.time_s
        for job in () if first else (*result.changes.started, *result.changes.unseen):
            self._notify(self._start_of(job), job, time_s)
        for job in result.changes.ended:
            self._notify(JobEvent.ENDED, job, time_s)
            self._stops.pop(job.key.job_id, None)
            self._nodes_before.pop(job.key.job_id, None)

    def on_preemption(self, row: Preemption) -> None:
        """Send that a job was stopped: a listener of the preemption manager."""
        if row.stopped_s is None or row.stage is Stage.CALLED_OFF or self._stops.get(row.job_id) == row.number:
            return
        self._remember(row)
        if row.stage is Stage.STARTED:  # it was stopped and started between two snapshots
            self._nodes_before[row.job_id] = frozenset(row.nodes)
        job = self._job(row.job_id)
        if job is not None:
            self._notify(JobEvent.PREEMPTED, job, row.stopped_s, without_job_ids(row.why))

    def _remember(self, row: Preemption) -> None:
        self._stops[row.job_id] = row.number
        if row.stage is Stage.STOPPED:
            self._nodes_before[row.job_id] = frozenset(row.nodes)
        for known in (self._stops, self._nodes_before):
            while len(known) > _MOST_STOPPED:  # jobs that have left Slurm while no cycle succeeded
                known.pop(next(iter(known)))

    def _start_of(self, job: SlurmJob) -> JobEvent:
        before = self._nodes_before.pop(job.key.job_id, None)
        if job.restarts == 0:
            return JobEvent.STARTED
        moved = before is not None and before != {share.node for share in job.allocated}
        return JobEvent.MOVED if moved else JobEvent.RESUMED

    def _job(self, job_id: str) -> SlurmJob | None:
        last = self._controller.last
        jobs = () if last is None else last.observation.snapshot.jobs
        return next((job for job in jobs if job.key.job_id == job_id), None)

    def _notify(self, event: JobEvent, job: SlurmJob, time_s: float, detail: str = "") -> None:
        facts = self._controller.facts
        self._send(Notification(event, time_s, "" if facts is None else facts.cluster_name, job, detail))
