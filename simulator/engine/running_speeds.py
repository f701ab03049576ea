"""Keeps slowdown models and the event loop in step: who runs where, and at what speed."""

from __future__ import annotations

from typing import Protocol, Self, SupportsInt, TypeVar

from simulator.kernel.constants import EVERYBODY, ON_SEVERAL_NODES
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.slowdown.api import Resident, SlowdownModel, batch_per_gpu
from simulator.slowdown.compose import Composite

Value_co = TypeVar("Value_co", covariant=True)


class Column(Protocol[Value_co]):
    """One value for each job that runs."""

    def __getitem__(self, job: int, /) -> Value_co:
        """That of the job of this row."""


class Trained(Protocol):
    """What models must know of jobs beside where they run: a trace, or a table that grows and shrinks with the jobs."""

    @property
    def model(self) -> Column[str]:
        """What it trains, '' when not known."""

    @property
    def batch_size(self) -> Column[SupportsInt]:
        """Examples a step, over all GPUs; -1 when not known."""


class Residents:
    """The jobs that the models know to run.

    Invariant after `update`: they are the running jobs that matter to some model, at the speeds that the models say.
    """

    def __init__(self, jobs: Trained, models: list[SlowdownModel]) -> None:
        """Nobody runs yet."""
        self._jobs = jobs
        self._composite = Composite(models)
        self._running: dict[int, ActiveJob] = {}
        self.track = ON_SEVERAL_NODES if self._composite.only_between_nodes else EVERYBODY
        """Of whom the loop should tell."""

    def update(self, loop: Loop) -> None:
        """Tell the models what started, stopped and finished since the last time, and set the speeds that this changes."""
        if not loop.touched:
            return
        # All leave first: who moves may come to where another goes only now.
        for job in loop.touched:
            if self._running.pop(job.index, None) is not None:
                self._composite.leave(job.index)
        for job in loop.touched:
            if job.held > 0 and job.index not in self._running:
                self._running[job.index] = job
                self._composite.enter(self._resident(job))
        loop.touched = []
        for index in self._composite.changed():
            loop.set_speed(self._running[index], self._composite.speed(index))

    def _resident(self, job: ActiveJob) -> Resident:
        jobs, index = self._jobs, job.index
        batch = batch_per_gpu(int(jobs.batch_size[index]), job.gpus)
        return Resident(index, jobs.model[index], batch, job.gpus, job.nodes, job.counts)

    def fork(self, loop: Loop) -> Self:
        """An independent copy for a copy of the loop."""
        twin = object.__new__(type(self))
        twin._jobs = self._jobs
        twin.track = self.track
        twin._composite = self._composite.fork()
        running = {job.index: job for job in loop.running}
        twin._running = {index: running.get(index, job) for index, job in self._running.items()}
        return twin
