"""Notifications from the results of cycles and from the stages of preemptions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from controller.base.apart import apart
from controller.base.text import without_job_ids
from controller.cycle.view.controller_view import ControllerView
from controller.cycle.view.result import CycleResult
from controller.notify.message import JobEvent, Notification
from controller.slurm.model.job import JobKey, SlurmJob
from controller.state.preemption import Preemption, Stage

_MOST_STOPPED = 10_000
_START: Final = 0
_STOP: Final = 1
_END: Final = 2
"""Order of the events of one run."""

Send = Callable[[Notification], None]


class NotificationSource:
    """Turns what the controller sees into notifications. Invariant: one preemption is one notification, at its stop, and after that
    of the start of the run that it has stopped.

    What happens while no controller runs is not notified: at its first cycle all running jobs are new to it.
    """

    def __init__(self, controller: ControllerView, send: Send) -> None:
        self._controller = controller
        self._send = send
        self._stops: dict[str, tuple[int, int]] = {}
        """Job id → number of the last preemption that has stopped it, and the restart count of that run. Bound: `_MOST_STOPPED`."""
        self._nodes_before: dict[str, tuple[int, frozenset[str]]] = {}
        """Job id → restart count and nodes of the run that was stopped, until a later run starts. Bound: `_MOST_STOPPED`."""
        self._waiting: dict[int, tuple[Preemption, SlurmJob | None]] = {}
        """Number of a preemption → its row, to notify at the next good cycle, and its job in the last one; None: that one did not
        show it. Bound: `_MOST_STOPPED`."""
        for row in controller.preemptions.open.values():
            if row.stopped_s is not None:
                self._stops[row.job_id] = row.number, row.restarts
                if row.stage is Stage.STOPPED:
                    self._nodes_before[row.job_id] = row.restarts, frozenset(row.nodes)
        self._limit()

    def on_cycle(self, result: CycleResult) -> None:
        """Send what has changed since the last good cycle: a listener of the controller."""
        changes, time_s = result.changes, result.observation.snapshot.time_s
        present = {_run(job) for job in changes.present}
        starts = [job for job in changes.started if _run(job) not in present] + list(changes.unseen)
        events = [(job.restarts, _START, partial(self._notify_start, job, time_s)) for job in starts]
        events += [
            (row.restarts, _STOP, partial(self._notify_stop, job, row)) for row, job in self._take_waiting(result)
        ]
        events += [(job.restarts, _END, partial(self._notify_end, job, time_s)) for job in changes.ended]
        # The events of one job in their order: cycles that broke off may have left several of its runs.
        for _, _, notify in sorted(events, key=lambda event: event[:2]):
            with apart("notifications", notify.args[0].key.job_id):
                notify()
        self._limit()

    def on_preemption(self, row: Preemption) -> None:
        """Send that a job was stopped, as soon as the start of its run was: a listener of the preemption manager."""
        if row.stage is Stage.CALLED_OFF:  # it runs on, so a later start is none after this preemption
            if row.job_id in self._nodes_before and self._nodes_before[row.job_id][0] == row.restarts:
                del self._nodes_before[row.job_id]
            self._waiting.pop(row.number, None)
            return
        stop = row.number, row.restarts
        if row.stopped_s is None or self._stops.get(row.job_id) == stop:
            return
        self._stops[row.job_id] = stop
        last = self._controller.last
        jobs = () if last is None else last.observation.snapshot.jobs
        job = next((job for job in jobs if job.key.job_id == row.job_id), None)
        if job is None or self._controller.has_unreported(row.job_id):
            self._waiting[row.number] = row, job
        else:
            self._notify_stop(job, row)
        self._limit()

    def close(self) -> None:
        """Send the stops that wait for a good cycle: there will be none, and the next controller takes them for sent."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for row, job in waiting:
            if job is not None:
                self._notify_stop(job, row)

    def _take_waiting(self, result: CycleResult) -> list[tuple[Preemption, SlurmJob]]:
        """Return the preemptions that wait, with their jobs: as they ran if that is known. One of an unknown job is left out."""
        if not self._waiting:
            return []
        changes, waiting = result.changes, list(self._waiting.values())
        self._waiting.clear()
        ran = {(job.key.job_id, job.restarts): job for job in changes.started}
        known = {job.key.job_id: job for job in (*changes.started, *changes.ended, *result.observation.snapshot.jobs)}
        jobs = [(row, ran.get((row.job_id, row.restarts)) or job or known.get(row.job_id)) for row, job in waiting]
        return [(row, job) for row, job in jobs if job is not None]

    def _notify_start(self, job: SlurmJob, time_s: float) -> None:
        self._notify(self._start_of(job), job, time_s)

    def _notify_stop(self, job: SlurmJob, row: Preemption) -> None:
        self._nodes_before[row.job_id] = row.restarts, frozenset(row.nodes)
        self._notify(JobEvent.PREEMPTED, job, row.stopped_s or row.asked_s, without_job_ids(row.why))

    def _notify_end(self, job: SlurmJob, time_s: float) -> None:
        self._notify(JobEvent.ENDED, job, time_s)
        stop = self._stops.get(job.key.job_id)
        if stop is not None and job.restarts >= stop[1]:
            del self._stops[job.key.job_id]
        before = self._nodes_before.get(job.key.job_id)
        if before is not None and job.restarts >= before[0]:
            del self._nodes_before[job.key.job_id]

    def _limit(self) -> None:
        memories: tuple[dict[Any, Any], ...] = (self._stops, self._nodes_before, self._waiting)
        for known in memories:
            while len(known) > _MOST_STOPPED:  # jobs that have left Slurm while no cycle succeeded
                known.pop(next(iter(known)))

    def _start_of(self, job: SlurmJob) -> JobEvent:
        if job.restarts == 0:
            return JobEvent.STARTED
        stopped, nodes = self._nodes_before.get(job.key.job_id, (job.restarts, frozenset[str]()))
        if job.restarts <= stopped:  # a run before the stop, or none was stopped
            return JobEvent.RESUMED
        del self._nodes_before[job.key.job_id]
        return JobEvent.RESUMED if nodes == {share.node for share in job.allocated} else JobEvent.MOVED

    def _notify(self, event: JobEvent, job: SlurmJob, time_s: float, detail: str = "") -> None:
        facts = self._controller.facts
        self._send(Notification(event, time_s, "" if facts is None else facts.cluster_name, job, detail))


def _run(job: SlurmJob) -> tuple[JobKey, int]:
    return job.key, job.restarts
