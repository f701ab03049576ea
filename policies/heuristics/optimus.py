"""Optimus: GPUs one by one to the job whose remaining time each of them shortens most, by a speed model that it fits itself.

Source: Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018; baseline of
DL2 (Peng et al., TPDS 2021, section 6.2).

As there: first every job gets the least that it can run with, so that none starves; then each further GPU goes where it takes
most off the remaining time by the fitted model (`policies.speed_fit`), until all are given or nobody can use more. Jobs are
placed in rising order of size, on few nodes. Sizes change at most once in an interval of ten minutes.

The fit gets better while a job runs: it is made anew with the speeds that the job was seen to have at the sizes that it had
(`policies.observed`), beside those of its model's profile by tier of locality. What was seen is kept by the object, by job and
while the job is there; with `fit="profiles"` nothing is.

Not as there: remaining work is the estimate that policies are given, not a loss curve's; jobs without one count as the median
of the others, and young jobs are not held back. Profiles stand for the runs before a job's start. Every worker brings its own
server, so GPUs are the only resource that is weighed. The interval is each job's own: who started or changed less than
`round_s` ago is left alone. Who keeps its size keeps its place, and a job rather waits than starts on more nodes than it needs,
unless `layout` says otherwise.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, IntColumn, Placement, Split
from policies.observed import ObservedSpeeds
from policies.options import choice, layout_named, number
from policies.packing import Capacity, Fit, free_gpus, placement_of
from policies.placing import Placing, placing_of
from policies.selection import PAUSED, held_placements
from policies.speed_fit import Speeds, remaining_at_one


class Optimus:
    """Elastic jobs take what shortens their remaining time most; others what they ask for, in order of submission."""

    def __init__(self, round_s: float = 600.0, layout: str = "consolidated", fit: str = "online") -> None:
        """A job keeps its size and place for `round_s` seconds; with `layout="anywhere"` it also starts on scattered GPUs.

        Speeds are fitted `online`, or to `profiles` alone.
        """
        online = choice("fit", fit, ("online", "profiles")) == "online"
        self._observed = ObservedSpeeds() if online else None
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
        still = state.running[~jobs.preemptible[state.running] | young[state.running]]
        places = _Places(state, self._placing, own, still)
        least, most = _ranges(state)
        # Who needs more than there is gets nothing, and there will not be more: those who are kept only become more.
        candidates = np.flatnonzero(np.asarray(least) <= places.free_gpus)
        order = candidates[~np.isin(candidates, still)].tolist()
        gains = _gains(state, least, most, self._observed.look(state) if self._observed is not None else {})
        while True:
            sizes = allot(order, least, most, gains, places.free_gpus)
            coming, fits = places.try_out(sizes)
            failed = {row for row, fit in zip(coming, fits, strict=True) if fit is None}
            if not failed:
                break
            places.keep(failed & own.keys())
            for row in failed:
                order.remove(row)
        allocation = {row: own[row] for row in sorted(places.kept)}
        allocation.update((row, own[row]) for row in sizes if row in own)
        allocation.update((row, placement_of(fit)) for row, fit in zip(coming, fits, strict=True) if fit is not None)
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


class _Places:
    """Who holds what while sizes are decided.

    Invariants: jobs in `kept` hold what they held; `free_gpus` is what they leave on nodes that are available; `_stayed` is what
    is free beside them and `_staying`. Requests and capacity are worked out when the first job needs a place, and shared by all
    tries.
    """

    def __init__(self, state: ClusterState, placing: Placing, own: dict[int, Placement], kept: IntColumn) -> None:
        self._state = state
        self._placing = placing
        self._own = own
        self._held = {row: placement.num_gpus for row, placement in own.items()}
        self._asked: list[int] = state.jobs.num_gpus.tolist()
        self.kept = set(kept.tolist())
        self.free_gpus = free_gpus(state, kept)
        self._stayed: Capacity | None = None
        self._staying: set[int] = set()
        self._tried: dict[tuple[int, ...], list[Fit | None]] = {}
        """What came of jobs of these classes, one after the other, beside those who stay now."""

    def keep(self, rows: AbstractSet[int]) -> None:
        """These running jobs hold what they held too."""
        if rows:
            self.kept.update(rows)
            self.free_gpus = free_gpus(self._state, np.array(sorted(self.kept), dtype=np.int64))

    def try_out(self, sizes: dict[int, int]) -> tuple[list[int], list[Fit | None]]:
        """Who of the jobs of these sizes needs a place, smallest first, and what each finds. Takes nothing.

        Running jobs that have the size stay where they are.
        """
        held = self._held
        coming = sorted([(size, row) for row, size in sizes.items() if held.get(row) != size])
        if not coming:
            return [], []
        rows = [row for _, row in coming]
        stayed = self._beside(self.kept | (sizes.keys() & held.keys()).difference(rows))
        resized = {row: size for size, row in coming if size != self._asked[row]}
        if resized:
            found = self._placing.claim(stayed.copy(stayed.requests.resized(resized)), rows)
            return rows, [found.get(row) for row in rows]
        keys = stayed.requests.keys
        classes = tuple([keys[row] for row in rows])
        fits = self._tried.get(classes)
        if fits is None:
            found = self._placing.claim(stayed.copy(), rows)
            fits = self._tried[classes] = [found.get(row) for row in rows]
        return rows, fits

    def _beside(self, rows: set[int]) -> Capacity:
        """What is free beside these running jobs."""
        capacity = self._stayed
        if capacity is None:
            capacity = self._stayed = Capacity(self._state, held=np.array(sorted(rows), dtype=np.int64))
        elif rows != self._staying:
            for row in self._staying - rows:
                capacity.give_back(row, self._own[row])
            for row in rows - self._staying:
                capacity.take(row, self._own[row])
            self._tried.clear()
        self._staying = rows
        return capacity


def _ranges(state: ClusterState) -> tuple[list[int], list[int]]:
    """Fewest and most GPUs of each job. Fixed shares on fixed nodes are one size."""
    jobs = state.jobs
    stiff = jobs.split == int(Split.FIXED)
    low, high = (np.where(stiff, jobs.num_gpus, column) for column in jobs.sizes)
    return low.tolist(), high.tolist()


def _gains(
    state: ClusterState, least: Sequence[int], most: Sequence[int], observed: Mapping[int, Speeds]
) -> list[float]:
    """Per job the g of `allot`, seconds, with those speeds observed; 0 throughout where nobody can use more than the least.

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


def _reasons(own: dict[int, Placement], allocation: dict[int, Placement]) -> dict[int, str]:
    reasons = {row: PAUSED for row in own if row not in allocation}
    for row, placement in allocation.items():
        before = own.get(row)
        if before is None:
            reasons[row] = f"{placement.num_gpus} GPUs shorten its remaining time most"
        elif before != placement:
            reasons[row] = f"{placement.num_gpus} instead of {before.num_gpus} GPUs, by the gain of each"
    return reasons
