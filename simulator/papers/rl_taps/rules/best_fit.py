"""A control that knows the topology: shortest remaining time first with preemption, best fit by the distance between GPUs."""

from __future__ import annotations

import numpy as np

from policies.options import switch
from simulator.papers.rl_taps.rules.agent import NO_SLOT, Actions, RlTapsAgent
from simulator.papers.rl_taps.rules.nearest import nearest


class BestFit(RlTapsAgent):
    """Shortest remaining time first, on as many GPUs as requested and near each other; with preemption.

    The remaining time of a job is its work left over its requested GPUs. A job that keeps its size keeps its GPUs, where no job
    before it needs them. With `fill` the GPUs that are left go to the first job that requests more than there are.
    """

    def __init__(self, fill: bool = True) -> None:
        """See the class."""
        super().__init__()
        self._fill = switch("fill", fill)

    def slots_of_gpus(self) -> Actions:
        """See RlTapsAgent."""
        of, links = self.batch.of, self.batch.links
        gpus, left = self.of_slot(of.gpus), self.of_slot(of.left)
        found = np.full(links.num_gpus, NO_SLOT)
        order = sorted(self.jobs, key=lambda slot: float(left[slot] / gpus[slot]))
        passed: list[int] = []
        for slot in order:
            free = found == NO_SLOT
            mine = self.gpus_of(slot) & free
            if int(mine.sum()) == gpus[slot]:
                found[mine] = slot
            elif gpus[slot] <= free.sum():
                found[nearest(links, free, int(gpus[slot]))] = slot
            else:
                passed.append(slot)
        if self._fill and passed:
            found[found == NO_SLOT] = passed[0]
        return found
