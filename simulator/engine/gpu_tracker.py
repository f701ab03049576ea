"""The GPUs of each node that running jobs occupy: which ones, where the loop counts how many.

A run has one only if its policy names GPUs, or if a slowdown model depends on them: all other runs do nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop


class GpuTracker:
    """GPUs as masks: bit k stands for GPU k of a node.

    Invariant after `update`: every running job has as many GPUs of each of its nodes as the loop says, and no GPU has two jobs. A
    job for which no GPUs were named gets the free ones with the lowest indices, as on a Slurm that knows no links between GPUs.
    """

    def __init__(self, gpus: Sequence[int], running: Iterable[ActiveJob] = ()) -> None:
        """Begin with nodes of so many GPUs each, and these running jobs, none of which has named GPUs."""
        self._free = [(1 << count) - 1 for count in gpus]
        self._held: dict[int, dict[int, int]] = {}
        self._named: dict[int, dict[int, int]] = {}
        for job in running:
            self._enter(job)

    def name(self, job: int, masks: dict[int, int]) -> None:
        """Give these GPUs by node to the job of this row when it starts, at the next `update`; a mask of 0 names none."""
        self._named[job] = masks

    def free(self, node: int) -> int:
        """Return the free GPUs of a node."""
        return self._free[node]

    def of(self, job: int) -> dict[int, int]:
        """Return the GPUs of a running job, by node."""
        return self._held[job]

    def update(self, loop: Loop) -> None:
        """Free what the jobs had that stopped or finished since the loop's `touched` was emptied; give GPUs to those that run."""
        for job in loop.touched:
            for node, mask in self._held.pop(job.index, {}).items():
                self._free[node] |= mask
        starting = {job.index: job for job in loop.touched if job.occupied > 0}
        # Named GPUs are taken first: the other entries get what is left.
        for index in starting:
            for node, mask in self._named.get(index, {}).items():
                self._free[node] &= ~mask
        for job in starting.values():
            self._enter(job)
        self._named.clear()

    def fork(self) -> GpuTracker:
        """Return an independent copy."""
        twin = GpuTracker(())
        twin._free = self._free.copy()
        twin._held = self._held.copy()
        twin._named = self._named.copy()
        return twin

    def _enter(self, job: ActiveJob) -> None:
        named = self._named.get(job.index, {})
        held = {}
        for node, count in zip(job.nodes, job.counts, strict=True):
            mask = named.get(node, 0) or _lowest(self._free[node], count)
            self._free[node] &= ~mask
            held[node] = mask
        self._held[job.index] = held


def _lowest(mask: int, count: int) -> int:
    chosen = 0
    for _ in range(count):
        bit = mask & -mask
        chosen |= bit
        mask ^= bit
    return chosen
