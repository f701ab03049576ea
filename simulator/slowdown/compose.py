"""Several reasons at once: a job's speed is the product of what every model says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.slowdown.api import Resident, SlowdownModel


class Composite:
    """Models that are told the same, as one. Without models every job has speed 1, and nobody's ever changes."""

    def __init__(self, models: Sequence[SlowdownModel]) -> None:
        self.models = tuple(models)

    @property
    def only_between_nodes(self) -> bool:
        """Whether that is so of every model."""
        return all(model.only_between_nodes for model in self.models)

    def enter(self, resident: Resident) -> None:
        """The job holds these GPUs from now on."""
        for model in self.models:
            model.enter(resident)

    def leave(self, job: int) -> None:
        """The job holds nothing any more."""
        for model in self.models:
            model.leave(job)

    def changed(self) -> Iterable[int]:
        """Jobs that run now and whose speed may differ from what it was when this was last asked; each once, by row."""
        if len(self.models) == 1:
            return self.models[0].changed()
        return sorted({job for model in self.models for job in model.changed()})

    def speed(self, job: int) -> float:
        """Throughput of a running job relative to the ideal: alone, at its requested size, with the best locality."""
        product = 1.0
        for model in self.models:
            product *= model.factor(job)
        return product

    def factor(self, job: int) -> float:
        """The same: several models together are one."""
        return self.speed(job)

    def fork(self) -> Composite:
        """An independent copy, in time proportional to running jobs."""
        return Composite([model.fork() for model in self.models])
