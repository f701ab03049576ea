"""The speeds of running jobs: slowdown models are notified of starts and stops, and the event loop gets the speeds."""

from __future__ import annotations

import copy
from typing import Protocol, Self, SupportsInt, TypeVar

from simulator.engine.gpu_tracker import GpuTracker
from simulator.kernel.constants import ALL_JOBS, ON_SEVERAL_NODES
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.slowdown.api import Resident, SlowdownModel, batch_per_gpu
from simulator.slowdown.compose import Composite

Value_co = TypeVar("Value_co", covariant=True)


class Column(Protocol[Value_co]):
    """One value for each job that runs."""

    def __getitem__(self, job: int, /) -> Value_co:
        """Return the value of the job of this row."""


class JobTable(Protocol):
    """The properties of jobs that slowdown models read: a trace, or a table that changes with the jobs."""

    @property
    def model(self) -> Column[str]:
        """Name of the trained model, '' when not known."""

    @property
    def batch_size(self) -> Column[SupportsInt]:
        """Examples per step over all GPUs; -1 when not known."""


class RunningSpeeds:
    """The running jobs that some slowdown model must know about; and, where GPUs are followed, which ones they have.

    Invariant after `update`: the models know exactly these jobs, and each has the speed that follows from the models.
    """

    def __init__(self, jobs: JobTable, models: list[SlowdownModel], gpus: GpuTracker | None = None) -> None:
        """Begin without running jobs. `gpus`, if given, is kept up to date; models that need GPUs read it."""
        self._jobs = jobs
        self._gpus: GpuTracker | None = None
        self._composite = Composite(models)
        self._running: dict[int, ActiveJob] = {}
        self.track = ON_SEVERAL_NODES if self._composite.only_between_nodes else ALL_JOBS
        """The jobs whose starts and stops the loop must report."""
        if gpus is not None:
            self.follow(gpus)

    def follow(self, gpus: GpuTracker) -> None:
        """Keep this tracker up to date from now on."""
        self._gpus = gpus
        self.track = ALL_JOBS

    def update(self, loop: Loop) -> None:
        """Notify the models of what started, stopped and finished since the last call, and set the speeds that changed."""
        if not loop.touched:
            return
        if self._gpus is not None:
            self._gpus.update(loop)
        # All jobs leave before any enters: a job may move to GPUs that another frees at this instant.
        for job in loop.touched:
            if self._running.pop(job.index, None) is not None:
                self._composite.leave(job.index)
        for job in loop.touched:
            if job.occupied > 0 and job.index not in self._running:
                self._running[job.index] = job
                self._composite.enter(self._resident(job))
        loop.touched = []
        for index in self._composite.changed():
            loop.set_speed(self._running[index], self._composite.speed(index))

    @property
    def sharers(self) -> set[int] | None:
        """Rows of the jobs that have shared a link with another job; None without a model of shared links."""
        return self._composite.sharers

    def _resident(self, job: ActiveJob) -> Resident:
        jobs, index = self._jobs, job.index
        batch = batch_per_gpu(int(jobs.batch_size[index]), job.gpus)
        if self._gpus is None:
            return Resident(index, jobs.model[index], batch, job.gpus, job.nodes, job.counts)
        return Resident(index, jobs.model[index], batch, job.gpus, job.nodes, job.counts, self._gpus.of(index))

    def fork(self, loop: Loop, gpus: GpuTracker | None = None) -> Self:
        """Return an independent copy for a copy of the loop and of the tracker."""
        twin = copy.copy(self)
        twin._gpus = gpus
        twin._composite = self._composite.fork()
        running = {job.index: job for job in loop.running}
        twin._running = {index: running.get(index, job) for index, job in self._running.items()}
        return twin
