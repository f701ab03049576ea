"""Metrics of single jobs that Slurm's own exporter lacks: wait so far and its reason, estimate of the start, measured slowdown."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.admin.explain.wait_reason import reason_of
from controller.admin.metrics.current_view import CurrentView
from controller.base.apart import apart
from controller.base.private_data import JOBS, is_private
from controller.cycle.view.controller_view import ControllerView
from controller.forecast.estimate import Starts, no_starts
from controller.observe.role import Role, Standing
from controller.slurm.model.job import SlurmJob

_Waiting = tuple[SlurmJob, Standing, float]
"""A job, its role, and its wait so far in seconds."""
_Slowed = tuple[SlurmJob, float]


class JobMetrics(Collector):
    """Series with the label `job_id`, Slurm's id as users know it. Runs in the exporter's thread, and changes nothing.

    Invariant: at most `metrics_jobs` waiting jobs have series, one wait and three times each, and as many running ones, one
    slowdown each. Where jobs are private there are none: every user of this machine can read the metrics.
    """

    def __init__(self, controller: ControllerView, current: CurrentView, starts: Starts = no_starts) -> None:
        self._controller = controller
        self._current = current
        self._starts = starts

    def collect(self) -> Iterable[Metric]:
        """Return the values at the time of the scrape; families without series where there is nothing to show."""
        shown = self._jobs()
        waiting, running = shown or ([], [])
        most = self._controller.settings.metrics_jobs
        longest = heapq.nlargest(most, waiting, key=lambda each: (each[1].role is Role.WAITING, each[2]))
        slowest = heapq.nlargest(most, running, key=lambda each: each[1])
        yield _waits(longest)
        yield self._estimates(longest)
        yield _slowdowns(slowest)
        left_out = GaugeMetricFamily(
            "headway_jobs_without_series",
            "Waiting jobs, and running ones with a measured slowdown, beyond metrics_jobs: they have no series of their own; "
            "absent where no job may have any",
        )
        if shown is not None:
            left_out.add_metric([], len(waiting) - len(longest) + len(running) - len(slowest))
        yield left_out

    def _jobs(self) -> tuple[list[_Waiting], list[_Slowed]] | None:
        """Return the jobs that wait, and the running ones whose slowdown is measured; None if jobs are private, or not known."""
        controller = self._controller
        view = self._current.get()
        facts = controller.facts
        hidden = bool(controller.settings.admin_group) or is_private(None if facts is None else facts.settings, JOBS)
        if view is None or hidden:
            return None
        now_s = controller.clock.now()
        waiting: list[_Waiting] = []
        running: list[_Slowed] = []
        for job, found in view.jobs():
            with apart("/metrics", job.key.job_id):
                if reason_of(found):
                    waiting.append((job, found, view.wait_s(job, now_s)))
                elif (measured := view.contention(job)) is not None and measured.sensitivity is not None:
                    running.append((job, measured.value))
        return waiting, running

    def _estimates(self, jobs: Sequence[_Waiting]) -> Metric:
        family = GaugeMetricFamily(
            "headway_job_start_forecast_timestamp_seconds",
            "Estimate of the start of a waiting job, Unix time: the range in which 8 of 10 starts lie, and its median",
            labels=["job_id", "bound"],
        )
        for job, _, _ in jobs:
            with apart("/metrics", job.key.job_id):
                for bound, time_s in self._range(job):
                    family.add_metric([job.key.job_id, bound], time_s)
        return family

    def _range(self, job: SlurmJob) -> Iterator[tuple[str, float]]:
        estimate = self._starts(job.key)
        if estimate is None:
            return
        yield "earliest", estimate.earliest_s
        yield "median", estimate.median_s
        if estimate.latest_s:
            yield "latest", estimate.latest_s


def _partition(job: SlurmJob) -> str:
    """Return the partitions that the job asked for, in one order whatever that of the user; one from its start on."""
    return ",".join(sorted(job.partition.split(",")))


def _waits(jobs: Sequence[_Waiting]) -> Metric:
    family = GaugeMetricFamily(
        "headway_job_wait_seconds",
        "Wait of a job so far, and what it waits for",
        labels=["job_id", "partition", "reason"],
    )
    for job, found, wait_s in jobs:
        with apart("/metrics", job.key.job_id):
            family.add_metric([job.key.job_id, _partition(job), reason_of(found)], wait_s)
    return family


def _slowdowns(jobs: Sequence[_Slowed]) -> Metric:
    family = GaugeMetricFamily(
        "headway_job_slowdown_ratio",
        "How many times longer the steps of a running job take than they would alone",
        labels=["job_id", "partition"],
    )
    for job, value in jobs:
        with apart("/metrics", job.key.job_id):
            family.add_metric([job.key.job_id, _partition(job)], value)
    return family
