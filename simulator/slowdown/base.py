"""Base classes of models: they keep the running jobs, the outdated factors and the changed factors."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Self

from simulator.slowdown.api import Resident


class Model(ABC):
    """A model that computes factors when they are read, and only those that an arrival or departure affected.

    Invariants: `_residents` are the running jobs; `_factors` contains their factors, correct for all but `_stale`; `_news` are the
    jobs that entered, or whose factor changed, since the last call of `changed`. A subclass keeps its data in dicts whose values
    are never changed in place, so that `fork` need only copy the dicts.
    """

    def __init__(self) -> None:
        self._residents: dict[int, Resident] = {}
        self._factors: dict[int, float] = {}
        self._stale: set[int] = set()
        self._news: set[int] = set()

    @property
    def only_between_nodes(self) -> bool:
        """True if jobs on one node have factor 1 and affect no other job."""
        return False

    @property
    def needs_gpus(self) -> bool:
        """True if the factor depends on which GPUs of a node a job has."""
        return False

    def enter(self, resident: Resident) -> None:
        """Add a job, which occupies these GPUs from now on."""
        job = resident.job
        self._residents[job] = resident
        self._factors[job] = 1.0
        self._stale.add(job)
        self._news.add(job)
        self._entered(resident)

    def leave(self, job: int) -> None:
        """Remove a job, which occupies no GPUs any more."""
        resident = self._residents.pop(job)
        del self._factors[job]
        self._stale.discard(job)
        self._news.discard(job)
        self._left(resident)

    def changed(self) -> Iterable[int]:
        """Return the running jobs whose factor may have changed since the last call, each once, by row."""
        self._refresh()
        news = sorted(self._news)
        self._news.clear()
        return news

    def factor(self, job: int) -> float:
        """Return the throughput of a running job, relative to that without this reason."""
        if self._stale:
            self._refresh()
        return self._factors[job]

    def fork(self) -> Self:
        """Return an independent copy, in time proportional to the running jobs."""
        twin = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | set):
                setattr(twin, name, value.copy())
        return twin

    def _refresh(self) -> None:
        stale, self._stale = self._stale, set()
        for job in stale:
            self._put(job, self._computed(self._residents[job]))

    def _put(self, job: int, factor: float) -> None:
        """Set the job's factor."""
        if self._factors[job] != factor:
            self._factors[job] = factor
            self._news.add(job)

    # What a subclass implements; a model of each job alone has no load to keep

    def _entered(self, resident: Resident) -> None:  # noqa: B027
        """Add the job's load, and put the jobs that it affects into `_stale`."""

    def _left(self, resident: Resident) -> None:  # noqa: B027
        """Remove the job's load, and put the jobs that it affected into `_stale`."""

    @abstractmethod
    def _computed(self, resident: Resident) -> float:
        """Return the job's factor under the present load, whatever the order in which jobs came."""


class Neighbours(Model):
    """A model in which jobs affect the jobs that share nodes with them."""

    def __init__(self) -> None:
        super().__init__()
        self._on_node: dict[int, tuple[int, ...]] = {}
        """Jobs of each node that has any, in order of their rows."""

    def _entered(self, resident: Resident) -> None:
        for node in resident.nodes:
            self._stale.update(self._on_node.get(node, ()))
        self._move_in(resident)

    def _left(self, resident: Resident) -> None:
        self._move_out(resident)
        for node in resident.nodes:
            self._stale.update(self._on_node.get(node, ()))

    def _move_in(self, resident: Resident) -> None:
        """Enter the job on its nodes, without marking other jobs as stale."""
        for node in resident.nodes:
            self._on_node[node] = tuple(sorted((*self._on_node.get(node, ()), resident.job)))

    def _move_out(self, resident: Resident) -> None:
        """Remove the job from its nodes, without marking other jobs as stale."""
        for node in resident.nodes:
            jobs = tuple([job for job in self._on_node[node] if job != resident.job])
            if jobs:
                self._on_node[node] = jobs
            else:
                del self._on_node[node]
