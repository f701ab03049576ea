"""Metrics of the waits of jobs, from their submission to their first start, by size."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

from controller.admin.explain.cycle_view import CycleView
from controller.base.apart import apart
from controller.base.job_sizes import SIZES, size_class
from controller.cycle.view.controller_view import ControllerView
from controller.cycle.view.result import CycleResult

_MORE = "more"
"""Label of jobs that are larger than the last of SIZES."""
_SECONDS = (
    10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 57_600.0, 86_400.0, 172_800.0, 604_800.0,
)  # fmt: skip


class WaitMetrics:
    """Counts the waits that have ended. Invariant: each job counts once, at the first start that this controller sees.

    A job that has started before the controller has is left out, because an earlier controller may have counted it. So is one that
    ran already when a reload added its partition.
    """

    def __init__(self, controller: ControllerView, registry: CollectorRegistry) -> None:
        self._controller = controller
        self._waits = Histogram(
            "headway_wait_seconds", "Time from the submission of jobs to their first start, by their size", ["gpus"],
            registry=registry, buckets=_SECONDS,
        )  # fmt: skip
        for size in (*map(str, SIZES), _MORE):
            self._waits.labels(size)
        self._first = True

    def on_cycle(self, result: CycleResult) -> None:
        """Count the jobs that have started since the cycle before."""
        changes = result.changes
        # At the first cycle the time of the start decides: a job may have started between the controller and its first reading.
        present = set() if self._first else {job.key for job in changes.present}
        self._first = False
        started = [job for job in (*changes.started, *changes.unseen) if not job.restarts and job.key not in present]
        if not started:
            return
        view = CycleView(result, self._controller.ledger, self._controller.settings.partitions)
        for job in started:
            with apart("/metrics", job.key.job_id):
                start_s, gpus = job.start_time_s, view.num_gpus(job)
                if gpus and start_s is not None and start_s >= int(self._controller.health.started_s):
                    self._waits.labels(size_of(gpus)).observe(view.wait_s(job, start_s))


def size_of(gpus: int) -> str:
    """Return the label of a job with that number of GPUs."""
    at = size_class(gpus)
    return str(SIZES[at]) if at < len(SIZES) else _MORE
