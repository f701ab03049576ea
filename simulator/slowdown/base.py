"""What the models have in common: who runs, whose factor must be worked out again, and whose has changed."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Self

from simulator.slowdown.api import Resident


class Model:
    """A model that works out factors when they are asked for, and only those that an enter or leave touched.

    Invariants: `_residents` are the running jobs; `_factors` holds their factors, right for all but `_stale`; `_news` are those
    that entered, or whose factor changed, since `changed` was last asked. What a subclass keeps is in dicts whose values are
    never changed in place, so that `fork` copies the dicts alone.
    """

    def __init__(self) -> None:
        self._residents: dict[int, Resident] = {}
        self._factors: dict[int, float] = {}
        self._stale: set[int] = set()
        self._news: set[int] = set()

    @property
    def only_between_nodes(self) -> bool:
        """Whether jobs on one node have factor 1 and touch nobody."""
        return False

    def enter(self, resident: Resident) -> None:
        """The job holds these GPUs from now on."""
        job = resident.job
        self._residents[job] = resident
        self._factors[job] = 1.0
        self._stale.add(job)
        self._news.add(job)
        self._entered(resident)

    def leave(self, job: int) -> None:
        """The job holds nothing any more."""
        resident = self._residents.pop(job)
        del self._factors[job]
        self._stale.discard(job)
        self._news.discard(job)
        self._left(resident)

    def changed(self) -> Iterable[int]:
        """Jobs that run now and whose factor may differ from what it was when this was last asked; each once, by row."""
        self._refresh()
        news = sorted(self._news)
        self._news.clear()
        return news

    def factor(self, job: int) -> float:
        """Throughput of a running job as a share of what it would be without this reason."""
        if self._stale:
            self._refresh()
        return self._factors[job]

    def fork(self) -> Self:
        """An independent copy, in time proportional to running jobs."""
        twin = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | set):
                setattr(twin, name, value.copy())
        return twin

    def _refresh(self) -> None:
        stale, self._stale = self._stale, set()
        for job in stale:
            self._put(job, self._worked_out(self._residents[job]))

    def _put(self, job: int, factor: float) -> None:
        """That is the job's factor now."""
        if self._factors[job] != factor:
            self._factors[job] = factor
            self._news.add(job)

    # What a model adds

    def _entered(self, resident: Resident) -> None:
        """Note its load, and put into `_stale` whom it touches."""

    def _left(self, resident: Resident) -> None:
        """Forget its load, and put into `_stale` whom it touched."""

    def _worked_out(self, resident: Resident) -> float:
        """The job's factor from what is noted now; it must not depend on the order in which that came."""
        raise NotImplementedError


class Neighbours(Model):
    """A model in which jobs touch those with whom they share nodes."""

    def __init__(self) -> None:
        super().__init__()
        self._on_node: dict[int, tuple[int, ...]] = {}
        """Jobs of each node that has any, by row."""

    def _entered(self, resident: Resident) -> None:
        for node in resident.nodes:
            self._stale.update(self._on_node.get(node, ()))
        self._move_in(resident)

    def _left(self, resident: Resident) -> None:
        self._move_out(resident)
        for node in resident.nodes:
            self._stale.update(self._on_node.get(node, ()))

    def _move_in(self, resident: Resident) -> None:
        """The job stands on its nodes; nobody is touched by that."""
        for node in resident.nodes:
            self._on_node[node] = tuple(sorted((*self._on_node.get(node, ()), resident.job)))

    def _move_out(self, resident: Resident) -> None:
        """The job stands nowhere any more; nobody is touched by that."""
        for node in resident.nodes:
            jobs = tuple([job for job in self._on_node[node] if job != resident.job])
            if jobs:
                self._on_node[node] = jobs
            else:
                del self._on_node[node]
