"""Time at which each GPU comes free: the GPU state of SCHED2 (section III-B), a number for every GPU of every node.

The engine and a live cluster's state only count GPUs, so the state does not show which of a node's GPUs a job occupies: the numbers
of a node are sorted, the least first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policies.learned.sched2.state.state_columns import ABSENT
from simulator.kernel.job import ActiveJob
from simulator.papers.sched2.backlog import HOUR_NS

Times = npt.NDArray[np.int64]
Hours = npt.NDArray[np.float64]
_NO_GPU = -1


class FreeTimes:
    """Instants in ns. Invariant: a GPU that a job occupies has that job's instant, a free GPU 0, a missing one -1."""

    def __init__(self, gpus: Sequence[int]) -> None:
        """Begin with nodes of so many GPUs, all free."""
        self._gpus = tuple(gpus)
        self.width = max(gpus)
        self._at: Times = np.zeros((len(gpus), self.width), dtype=np.int64)
        self._cells = self._at.reshape(-1)
        self._open: list[list[int]] = []
        self._occupied: dict[int, list[int]] = {}
        self._until: dict[int, int] = {}
        """The instant in the cells of each job."""
        self._up = [True] * len(gpus)
        self._some_absent = False
        self.reset()

    def reset(self) -> None:
        """Set all nodes up and all GPUs free."""
        self._at[:] = _NO_GPU
        self._open = []
        self._occupied.clear()
        for node, count in enumerate(self._gpus):
            self._at[node, :count] = 0
            self._open.append(list(range(node * self.width, node * self.width + count)))
        self._up = [True] * len(self._gpus)
        self._some_absent = min(self._gpus) < self.width

    def take(self, job: int, nodes: Sequence[int], counts: Sequence[int]) -> None:
        """Let the job occupy so many GPUs of each node from now on; call `follow` for it before reading."""
        occupied: list[int] = []
        for node, count in zip(nodes, counts, strict=True):
            free = self._open[node]
            occupied += free[-count:]
            del free[-count:]
        self._occupied[job] = occupied
        self._until[job] = 0

    def follow(self, running: Sequence[ActiveJob]) -> None:
        """Set the instants of these running jobs to their finishes."""
        until = self._until
        for job in [job for job in running if until[job.index] != job.finish]:
            self._cells[self._occupied[job.index]] = until[job.index] = job.finish

    def give_back(self, job: int) -> None:
        """Free the job's GPUs, if it occupies any."""
        for cell in self._occupied.pop(job, ()):
            node = cell // self.width
            self._open[node].append(cell)
            self._cells[cell] = 0 if self._up[node] else _NO_GPU

    def set_up(self, node: int, up: bool) -> None:
        """Set whether the node is up; jobs keep the GPUs that they occupy on a node that is not."""
        if self._up[node] != up:
            self._up[node] = up
            self._cells[self._open[node]] = 0 if up else _NO_GPU
            self._some_absent = not all(self._up) or min(self._gpus) < self.width

    def show(self, now: int, hours: Hours) -> None:
        """Fill `hours` (nodes x GPUs) with the hours until each GPU comes free: 0 if it is free, ABSENT if there is none."""
        np.multiply(np.maximum(self._at - now, 0), 1.0 / HOUR_NS, out=hours)
        if self._some_absent:
            hours[self._at == _NO_GPU] = ABSENT
        hours.sort(axis=1)
