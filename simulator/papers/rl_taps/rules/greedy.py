"""A control that knows the law of speeds: it gives GPUs where they shorten slowdowns most, one step at a time.

The slowdown of a job is its time over its length, so each step by which a job is later costs 1 / length; by Smith's rule GPUs go
where speed is worth most. The value of an assignment is the sum over jobs of

    min(speed, work left) / (length x work left)

First each job gets a number of GPUs, as if alone in the fewest racks: the growth of one job with the most value for each GPU is
taken, until no GPU is left or none gains. Then jobs get GPUs near each other, those with the longest reductions first. Then, with
the true speeds of all of them beside each other, jobs are shrunk to one GPU or to none while that gains.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.papers.rl_taps.rules.agent import NO_SLOT, Actions, RlTapsAgent
from simulator.papers.rl_taps.rules.nearest import nearest

Floats = npt.NDArray[np.float64]
_TINY = 1e-12


class Greedy(RlTapsAgent):
    """Most value by the true speeds; with preemption, on any number of GPUs."""

    def slots_of_gpus(self) -> Actions:
        """See RlTapsAgent."""
        of = self.batch.of
        left, length = self.of_slot(of.left), self.of_slot(of.length)
        there = left > 0
        worth = np.where(there, 1.0 / np.where(there, length * left, 1.0), 0.0)
        reduction = self.of_slot(of.reduction)
        counts = self._counts(worth, left, reduction)
        found = self._placed(counts, reduction)
        return self._shrunk(found, worth, left, reduction)

    def _counts(self, worth: Floats, left: Floats, reduction: Floats) -> list[int]:
        """Return the number of GPUs of each slot."""
        batch, links = self.batch, self.batch.links
        gpus = np.arange(links.num_gpus + 1)
        largest = int(np.bincount(links.rack).max())
        racks = np.maximum(-(-gpus // largest), 1)
        ring = np.where(gpus > 1, np.sqrt(gpus), 0.0) * (1.0 + batch.options.profiles.ring.per_rack * (racks - 1))
        speed = batch.options.efficiency * gpus / (1.0 + reduction[:, None] * ring)
        value = worth[:, None] * np.minimum(speed, left[:, None])
        counts = np.zeros(len(worth), dtype=np.int64)
        free = links.num_gpus
        every = np.arange(len(worth))
        while free:
            more = gpus - counts[:, None]
            gain = np.where((more > 0) & (more <= free), value - value[every, counts][:, None], 0.0) / np.maximum(
                more, 1
            )
            slot, count = divmod(int(gain.argmax()), len(gpus))
            if gain[slot, count] <= _TINY:
                break
            free -= count - int(counts[slot])
            counts[slot] = count
        return [int(count) for count in counts]

    def _placed(self, counts: list[int], reduction: Floats) -> Actions:
        """Return the slot of each GPU."""
        found = np.full(self.batch.links.num_gpus, NO_SLOT)
        kept = [slot for slot in self.jobs if counts[slot] and int(self.gpus_of(slot).sum()) == counts[slot]]
        for slot in kept:
            found[self.gpus_of(slot)] = slot
        others = [slot for slot in self.jobs if counts[slot] and slot not in kept]
        for slot in sorted(others, key=lambda slot: float(reduction[slot]), reverse=True):
            found[nearest(self.batch.links, found == NO_SLOT, counts[slot])] = slot
        return found

    def _shrunk(self, found: Actions, worth: Floats, left: Floats, reduction: Floats) -> Actions:
        """Return the assignment after all shrinks that gain."""
        while True:
            tries = [found]
            for slot in self.jobs:
                mine = np.flatnonzero(found == slot)
                for keep in (0, 1):
                    if len(mine) > keep:
                        fewer = found.copy()
                        fewer[mine[keep:]] = NO_SLOT
                        tries.append(fewer)
            many = np.array(tries)
            speed = self.batch.speeds.rates(many, np.repeat(reduction[None], len(many), axis=0)).speed
            values = (worth * np.minimum(speed, left)).sum(1)
            best = int(values.argmax())
            if values[best] <= values[0] + _TINY:
                return found
            found = many[best]
