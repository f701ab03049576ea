"""Orders that Headway is about to send, for the model: some promises are about an order, and not about its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from controller.slurm.client import Pin
from controller.slurm.embedded.ctld.job import Job
from controller.slurm.model.job import JobKey, Phase
from tests.campaign.verdict.model import Expected, Promise

if TYPE_CHECKING:
    from tests.campaign.world.cluster import Cluster

_KEPT_OFF_S = 290.0
"""Seconds after a stop for which a job goes to no node without an agent."""

_NOTED_S = 60.0
"""Longest time between an order and its note."""


class Orders:
    """Hears of each call of one process before it is made: `before_VERB` gets the arguments of the verb."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._read_at_s = 0.0
        """When the last snapshot was begun."""
        self._clock_right = True
        """Whether the clock was right then."""

    def before_release(self, keys: Sequence[JobKey]) -> None:
        """A hold that comes from now on may come too late."""
        for key in keys:
            expected = self._cluster.model.jobs.get(key.job_id)
            if expected is not None:
                expected.releasing_since_s = self._cluster.model.time_s

    def before_snapshot(self) -> None:
        """Everything is read: what is decided next is decided on this."""
        self._read_at_s = self._cluster.model.time_s
        self._clock_right = not self._cluster.clock.offset_s

    def before_pin(self, pins: Sequence[Pin]) -> None:
        """Jobs that were stopped to continue elsewhere go to no node that had no agent when the cycle began.

        Not judged are jobs that need several nodes or certain ones, and nothing is while the clock is wrong.
        """
        silent = self._cluster.fleet.silent_since(self._read_at_s) if self._clock_right else frozenset()
        for pin in pins:
            expected, found = self._cluster.model.jobs.get(pin.key.job_id), self._cluster.find(pin.key.job_id)
            if not silent.intersection(pin.nodes) or expected is None or found is None:
                continue
            spec, row = expected.spec, self._preemption_of(found)
            simple = spec.trains and spec.nodes == 1 and spec.gpus_in_all is None and not (spec.feature or spec.unfit)
            if simple and row is not None and not row.force and self._is_just_stopped(expected, row):
                self._cluster.model.broken(Promise.NO_SILENT_NODE, pin.key.job_id, f"goes to {', '.join(pin.nodes)}")

    def before_requeue_hold(self, keys: Sequence[JobKey]) -> None:
        """Headway stops jobs: only those that it was asked to stop, and only where they have saved."""
        for key in keys:
            found = self._cluster.find(key.job_id)
            expected = self._cluster.model.jobs.get(key.job_id)
            if found is None or expected is None or not found.phase.occupies_nodes:
                continue
            if found.submit_time_s != key.submit_time_s:
                continue  # another run: a requeued job has a new submit time, so the order is for none, and stops nothing
            expected.requeues += 1
            expected.stopped_s = self._cluster.model.time_s
            row = self._preemption_of(found)
            if row is None:
                self._cluster.model.broken(
                    Promise.RUNS_ONCE, key.job_id, "is stopped, though no preemption of it is open"
                )
            elif not row.force and self._cluster.fleet.standing(key.job_id) is False and found.phase is Phase.RUNNING:
                self._cluster.model.broken(Promise.STOPPED_SAVED, key.job_id, "is stopped while it trains on")

    def _is_just_stopped(self, expected: Expected, row: Any) -> bool:
        """Return whether the job was stopped a short time ago, and Headway's clock was right when it noted that."""
        since_s = self._cluster.model.time_s - expected.stopped_s
        if row.stopped_s is None or since_s >= _KEPT_OFF_S:
            return False
        return bool(abs(self._cluster.slurm_clock.now() - row.stopped_s - since_s) < _NOTED_S)

    def _preemption_of(self, job: Job) -> Any:
        if self._cluster.controller is None or job.raw_id is None:
            return None
        return self._cluster.controller.preemptions.open.get(job.raw_id)
