"""Several models as one: a job's speed is the product of its factors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.slowdown.api import Resident, SharesLinks, SlowdownModel


class Composite:
    """Several models as one. Without models, every job always has speed 1."""

    def __init__(self, models: Sequence[SlowdownModel]) -> None:
        self.models = tuple(models)

    @property
    def only_between_nodes(self) -> bool:
        """True if it is true of every model."""
        return all(model.only_between_nodes for model in self.models)

    @property
    def needs_gpus(self) -> bool:
        """True if it is true of a model."""
        return any(model.needs_gpus for model in self.models)

    def enter(self, resident: Resident) -> None:
        """Add a job, which occupies these GPUs from now on."""
        for model in self.models:
            model.enter(resident)

    def leave(self, job: int) -> None:
        """Remove a job, which occupies no GPUs any more."""
        for model in self.models:
            model.leave(job)

    def changed(self) -> Iterable[int]:
        """Return the running jobs whose speed may have changed since the last call, each once, by row."""
        if len(self.models) == 1:
            return self.models[0].changed()
        return sorted({job for model in self.models for job in model.changed()})

    def speed(self, job: int) -> float:
        """Return the throughput of a running job, relative to the ideal: alone, at its requested size, with the best locality."""
        product = 1.0
        for model in self.models:
            product *= model.factor(job)
        return product

    @property
    def sharers(self) -> set[int] | None:
        """Rows of the jobs that have shared a link with another job; None without a model of shared links."""
        found = [model.sharers for model in self.models if isinstance(model, SharesLinks)]
        known = [rows for rows in found if rows is not None]
        return set().union(*known) if known else None

    def factor(self, job: int) -> float:
        """Return the speed of the job: this makes a composite a model itself."""
        return self.speed(job)

    def fork(self) -> Composite:
        """Return an independent copy, in time proportional to the running jobs."""
        return Composite([model.fork() for model in self.models])
