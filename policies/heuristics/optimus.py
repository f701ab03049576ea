"""Optimus: GPUs one by one to the job whose remaining time each of them shortens most, by a speed model that it fits itself.

Source: Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018; baseline of
DL2 (Peng et al., TPDS 2021, section 6.2).

As there: first every job gets the least that it can run with, so that none starves; then each further GPU goes where it takes
most off the remaining time by the fitted model (`policies.speed_fit`), until all are given or nobody can use more. Jobs are
placed in rising order of size, on few nodes. Sizes change at most once in an interval of ten minutes.

Not as there: speeds are fitted to profiles by tier of locality and not to steps counted while the job runs, so a fit does
not get better with time. Remaining work is the estimate that policies are given, not a loss curve's; jobs without one count
as the median of the others, and young jobs are not held back. Every worker brings its own server, so GPUs are the only resource
that is weighed. The interval is each job's own: who started or changed less than `round_s` ago is left alone. Who keeps
its size keeps its place, and a job rather waits than starts on more nodes than it needs, unless `layout` says otherwise.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, IntColumn, Placement, Split
from policies.options import layout_named, number
from policies.packing import Capacity, placement_of
from policies.placing import Placing, placing_of
from policies.selection import PAUSED, held_placements
from policies.speed_fit import fitted


class Optimus:
    """Elastic jobs take what shortens their remaining time most; others what they ask for, in order of submission."""

    def __init__(self, round_s: float = 600.0, layout: str = "consolidated") -> None:
        """A job keeps its size and place for `round_s` seconds; with `layout="anywhere"` it also starts on scattered GPUs."""
        self._placing = placing_of(layout_named(layout))
        self._round_s = number("round_s", round_s, unit="seconds")
        self.spec = PolicySpec(
            name="optimus",
            source="Optimus (Peng et al., EuroSys 2018; baseline of DL2)",
            preempts=True,
            resizes=True,
            round_s=self._round_s,
            needs=frozenset({"duration_estimate", "profile"}),
        )

    def decide(self, state: ClusterState) -> Decision:
        """Sizes for all, then places for those who start or change.

        Who finds no place as decided stays as it is, and sizes are decided anew for the others.
        """
        jobs = state.jobs
        own = held_placements(state, state.running)
        young = state.time_s - jobs.start_time_s < self._round_s
        kept = {row for row in own if not jobs.preemptible[row] or young[row]}
        refused: set[int] = set()
        least, most = _ranges(state)
        gains = _gains(state)
        while True:
            base = Capacity(state, held=np.array(sorted(kept), dtype=np.int64))
            order = [row for row in range(len(jobs)) if row not in kept and row not in refused]
            sizes = allot(order, least, most, gains, base.total_free())
            placed, failed = _place(state, self._placing, kept, sizes, own)
            if not failed:
                break
            kept.update(failed & own.keys())
            refused.update(failed - own.keys())
        allocation = {row: own[row] for row in sorted(kept)} | placed
        return Decision(allocation, _reasons(own, allocation), tuple(state.pending.tolist()))


def allot(
    order: Sequence[int], least: Sequence[int], most: Sequence[int], gains: Sequence[float], gpus: int
) -> dict[int, int]:
    """GPUs of each job that gets some, of so many in all.

    In that order each job gets its least while there is enough. Then one GPU at a time goes to the job that gains most from
    it: g / (w (w + 1)) from the one after w.
    """
    sizes: dict[int, int] = {}
    for row in order:
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


def _ranges(state: ClusterState) -> tuple[list[int], list[int]]:
    """Fewest and most GPUs of each job. Fixed shares on fixed nodes are one size."""
    jobs = state.jobs
    stiff = jobs.split == int(Split.FIXED)
    low, high = (np.where(stiff, jobs.num_gpus, column) for column in jobs.sizes)
    return low.tolist(), high.tolist()


def _gains(state: ClusterState) -> list[float]:
    """Per job the g of `allot`, seconds.

    The remaining time at w workers is r X(n) / X(w), with r that at n, the size asked for, and X(w) = w / (a + b w). One more
    takes r X(n) a / (w (w + 1)) off it.
    """
    a, b = fitted(state)
    remaining, asked = state.remaining_s, state.jobs.num_gpus
    known = np.isfinite(remaining)
    usual = float(np.median(remaining[known])) if known.any() else 1.0
    gains: list[float] = (np.where(known, remaining, usual) * asked / (a + b * asked) * a).tolist()
    return gains


def _place(
    state: ClusterState, placing: Placing, kept: set[int], sizes: dict[int, int], own: dict[int, Placement]
) -> tuple[dict[int, Placement], set[int]]:
    """Where the jobs go with these sizes, and those that find no place."""
    stays = {row: own[row] for row, size in sizes.items() if row in own and own[row].num_gpus == size}
    sized = _with_sizes(state, sizes)
    capacity = Capacity(sized, held=np.array(sorted(kept | stays.keys()), dtype=np.int64))
    coming = sorted((row for row in sizes if row not in stays), key=lambda row: (sizes[row], row))
    fits = placing.claim(capacity, coming)
    placed = stays | {row: placement_of(fit) for row, fit in fits.items()}
    return placed, {row for row in coming if row not in fits}


def _with_sizes(state: ClusterState, sizes: dict[int, int]) -> ClusterState:
    """The state in which these jobs ask for these sizes."""
    num_gpus: IntColumn = state.jobs.num_gpus.copy()
    num_gpus[list(sizes)] = list(sizes.values())
    return replace(state, jobs=replace(state.jobs, num_gpus=num_gpus))


def _reasons(own: dict[int, Placement], allocation: dict[int, Placement]) -> dict[int, str]:
    reasons = {row: PAUSED for row in own if row not in allocation}
    for row, placement in allocation.items():
        before = own.get(row)
        if before is None:
            reasons[row] = f"{placement.num_gpus} GPUs shorten its remaining time most"
        elif before != placement:
            reasons[row] = f"{placement.num_gpus} instead of {before.num_gpus} GPUs, by the gain of each"
    return reasons
