"""Notifications from the results of cycles and from the stages of preemptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.base.text import without_job_ids
from controller.cycle.view.controller_view import ControllerView
from controller.cycle.view.result import CycleResult
from controller.notify.message import JobEvent, Notification
from controller.slurm.client import JobKey, SlurmJob
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
        self._stops: dict[str, int] = {}
        """Job id → number of the preemption that was notified last. Bound: `_MOST_STOPPED`."""
        self._nodes_before: dict[str, frozenset[str]] = {}
        """Job id → nodes of the run that was stopped, until the job runs again. Bound: `_MOST_STOPPED`."""
        self._waiting: dict[str, Preemption] = {}
        """Job id → preemption to notify when a good cycle shows the job. Bound: `_MOST_STOPPED`."""
        for row in controller.preemptions.open.values():
            if row.stopped_s is not None:
                self._remember(row)

    def on_cycle(self, result: CycleResult) -> None:
        """Send what has changed since the last good cycle: a listener of the controller."""
        changes, time_s = result.changes, result.observation.snapshot.time_s
        self._send_waiting(result)
        present = {_run(job) for job in changes.present}
        events = [(job, False) for job in changes.started if _run(job) not in present]
        events += [(job, False) for job in changes.unseen] + [(job, True) for job in changes.ended]
        # The events of one job in their order: cycles that broke off may have left several of its runs.
        for job, has_ended in sorted(events, key=lambda event: (event[0].restarts, event[1])):
            if not has_ended:
                self._notify(self._start_of(job), job, time_s)
                continue
            self._notify(JobEvent.ENDED, job, time_s)
            self._stops.pop(job.key.job_id, None)
            self._nodes_before.pop(job.key.job_id, None)

    def on_preemption(self, row: Preemption) -> None:
        """Send that a job was stopped: a listener of the preemption manager."""
        if row.stage is Stage.CALLED_OFF:  # it runs on, so a later start is none after this preemption
            self._nodes_before.pop(row.job_id, None)
            self._waiting.pop(row.job_id, None)
            return
        if row.stopped_s is None or self._stops.get(row.job_id) == row.number:
            return
        self._remember(row)
        if row.stage is Stage.STARTED:  # it was stopped and started between two snapshots
            self._nodes_before[row.job_id] = frozenset(row.nodes)
        last = self._controller.last
        jobs = () if last is None else last.observation.snapshot.jobs
        job = next((job for job in jobs if job.key.job_id == row.job_id), None)
        if job is not None:
            self._notify_stop(job, row)
        else:  # it is so new that only cycles that broke off have shown it
            self._waiting[row.job_id] = row
            self._limit()

    def _send_waiting(self, result: CycleResult) -> None:
        if not self._waiting:
            return
        for job in result.observation.snapshot.jobs:
            if (row := self._waiting.pop(job.key.job_id, None)) is not None:
                self._notify_stop(job, row)
        self._waiting.clear()  # Slurm no longer knows the others

    def _notify_stop(self, job: SlurmJob, row: Preemption) -> None:
        self._notify(JobEvent.PREEMPTED, job, row.stopped_s or row.asked_s, without_job_ids(row.why))

    def _remember(self, row: Preemption) -> None:
        self._stops[row.job_id] = row.number
        if row.stage is Stage.STOPPED:
            self._nodes_before[row.job_id] = frozenset(row.nodes)
        self._limit()

    def _limit(self) -> None:
        known: dict[str, Any]
        for known in (self._stops, self._nodes_before, self._waiting):
            while len(known) > _MOST_STOPPED:  # jobs that have left Slurm while no cycle succeeded
                known.pop(next(iter(known)))

    def _start_of(self, job: SlurmJob) -> JobEvent:
        before = self._nodes_before.pop(job.key.job_id, None)
        if job.restarts == 0:
            return JobEvent.STARTED
        moved = before is not None and before != {share.node for share in job.allocated}
        return JobEvent.MOVED if moved else JobEvent.RESUMED

    def _notify(self, event: JobEvent, job: SlurmJob, time_s: float, detail: str = "") -> None:
        facts = self._controller.facts
        self._send(Notification(event, time_s, "" if facts is None else facts.cluster_name, job, detail))


def _run(job: SlurmJob) -> tuple[JobKey, int]:
    return job.key, job.restarts
