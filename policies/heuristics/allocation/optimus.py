"""Optimus: GPUs one by one to the job whose remaining time each of them shortens most, by a speed model that it fits itself.

Source: Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018; baseline of
DL2 (Peng et al., TPDS 2021, section 6.2).

As in the paper, every job first gets the least that it can run with, so that none starves; then each further GPU goes to the job
whose remaining time it shortens most by the fitted model (`policies.speeds.worker_scaling`), until all are given or no job can use
more. Jobs are placed in rising order of size, on few nodes. Sizes change at most once in an interval of ten minutes.

The fit improves while a job runs: it uses the observed speeds of the job at its former sizes (`policies.speeds.observed_speeds`),
beside the speeds of its model's profile by locality tier. The policy object keeps the observations of each job as long as the job
exists; with `fit="profiles"` it keeps none.

Different from the paper: remaining work is the estimate that policies get, not one from a loss curve; jobs without it count as
the median of the others, and young jobs are not delayed. Profiles are used in place of the runs before a job's start. Every
worker brings its own server, so GPUs are the only resource that is weighed. The interval is each job's own: a job that started or
changed less than `round_s` ago keeps its size. A job that keeps its size keeps its placement, and a job waits rather than start
on more nodes than it needs, unless `layout` says otherwise.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import choice, layout_named, number
from policies.ordering.resizing import Resizer, ranges
from policies.placement.rules import placement_rule
from policies.speeds.observed_speeds import ObservedSpeeds
from policies.speeds.worker_scaling import Speeds, remaining_at_one


class Optimus:
    """Gives elastic jobs the GPUs that shorten their remaining time most, and others what they request, in order of submission."""

    def __init__(self, round_s: float = 600.0, layout: str = "consolidated", fit: str = "online") -> None:
        """A job keeps its size and place for `round_s` seconds; with `layout="anywhere"` it also starts on scattered GPUs.

        Speeds are fitted `online`, or to `profiles` alone.
        """
        online = choice("fit", fit, ("online", "profiles")) == "online"
        self._observed = ObservedSpeeds() if online else None
        seconds = number("round_s", round_s, unit="seconds")
        self._resizer = Resizer(placement_rule(layout_named(layout)), seconds, "they shorten its remaining time most")
        self.spec = PolicySpec(
            name="optimus",
            source="Optimus (Peng et al., EuroSys 2018; baseline of DL2)",
            preempts=True,
            resizes=True,
            round_s=seconds,
            needs=frozenset({"duration_estimate", "profile"}),
        )

    def fork(self) -> Self:
        """Return a copy with observations of its own."""
        twin = copy.copy(self)
        twin._observed = copy.deepcopy(self._observed)
        return twin

    def decide(self, state: ClusterState) -> Decision:
        """Decide the sizes of all jobs, then the placements of those that start or change (`policies.ordering.resizing`)."""
        low, high = ranges(state)
        least, most = low.tolist(), high.tolist()
        gains = _gains(state, least, most, self._observed.update(state) if self._observed is not None else {})

        def shares(order: Sequence[int], gpus: int) -> dict[int, int]:
            return allot(order, least, most, gains, gpus)

        # Where all jobs have fixed sizes, only the order of submission decides which of them get GPUs.
        return self._resizer.decide(state, shares, timeless=least == most)


def allot(
    order: Sequence[int], least: Sequence[int], most: Sequence[int], gains: Sequence[float], gpus: int
) -> dict[int, int]:
    """Return the GPUs of each job that gets some, out of `gpus`.

    In that order each job gets its least while there is enough. Then one GPU at a time goes to the job that gains most from
    it: g / (w (w + 1)) from the one after w.
    """
    sizes: dict[int, int] = {}
    for row in order:
        if not gpus:
            break
        if least[row] <= gpus:
            sizes[row] = least[row]
            gpus -= least[row]
    heap = [(-gains[row] / (size * (size + 1)), row) for row, size in sizes.items() if size < most[row]]
    heapq.heapify(heap)
    while heap and gpus:
        _, row = heap[0]
        gpus -= 1
        sizes[row] += 1
        size = sizes[row]
        if size < most[row]:
            heapq.heapreplace(heap, (-gains[row] / (size * (size + 1)), row))
        else:
            heapq.heappop(heap)
    return sizes


def _gains(
    state: ClusterState, least: Sequence[int], most: Sequence[int], observed: Mapping[int, Speeds]
) -> list[float]:
    """Return the g of `allot` for each job, in seconds, with those observed speeds; all 0 where no job can use more than the least.

    The remaining time at w workers is r X(n) / X(w), with r that at n, the size asked for, and X(w) = w / (a + b w). One more
    takes r X(n) a / (w (w + 1)) off it.
    """
    if least == most:
        return [0.0] * len(least)
    remaining = state.remaining_s
    known = np.isfinite(remaining)
    if not known.all():
        usual = float(np.median(remaining[known])) if known.any() else 1.0
        remaining = np.where(known, remaining, usual)
    gains: list[float] = remaining_at_one(state, remaining, observed).tolist()
    return gains
