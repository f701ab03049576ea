"""Keeps slowdown models and the event loop in step: who runs where, and at what speed."""

from __future__ import annotations

from typing import Self

from simulator.kernel.constants import EVERYBODY, ON_SEVERAL_NODES
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.slowdown.api import Resident, SlowdownModel
from simulator.slowdown.compose import Composite
from simulator.traces.trace import Trace


class Residents:
    """The jobs that the models know to run.

    Invariant after `update`: they are the running jobs that matter to some model, at the speeds that the models say.
    """

    def __init__(self, trace: Trace, models: list[SlowdownModel]) -> None:
        """Nobody runs yet."""
        self._trace = trace
        self._composite = Composite(models)
        self._running: dict[int, ActiveJob] = {}
        self.track = ON_SEVERAL_NODES if self._composite.only_between_nodes else EVERYBODY
        """Of whom the loop should tell."""

    def update(self, loop: Loop) -> None:
        """Tell the models what started, stopped and finished since the last time, and set the speeds that this changes."""
        if not loop.touched:
            return
        for job in loop.touched:
            if self._running.pop(job.index, None) is not None:
                self._composite.leave(job.index)
            if job.held > 0:
                self._running[job.index] = job
                self._composite.enter(self._resident(job))
        loop.touched = []
        for index in self._composite.changed():
            loop.set_speed(self._running[index], self._composite.speed(index))

    def _resident(self, job: ActiveJob) -> Resident:
        trace, index = self._trace, job.index
        batch = int(trace.batch_size[index])
        return Resident(index, trace.model[index], batch, job.gpus, job.nodes, job.counts)

    def fork(self, loop: Loop) -> Self:
        """An independent copy for a copy of the loop."""
        twin = object.__new__(type(self))
        twin._trace = self._trace
        twin.track = self.track
        twin._composite = self._composite.fork()
        running = {job.index: job for job in loop.running}
        twin._running = {index: running.get(index, job) for index, job in self._running.items()}
        return twin
