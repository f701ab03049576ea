"""Elastic jobs: sizes for all jobs, then placements for those that start or change.

This is what policies that resize have in common. A policy divides the GPUs among the jobs; this module decides which jobs stay,
where the others go, and what happens to jobs that find no placement. Jobs of fixed size take part with that size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from policies.api import Decision
from policies.model import ClusterState, IntColumn, Placement, Split
from policies.placement.best_fit import Capacity, Fit, free_gpus, placement_of
from policies.placement.rules import PlacementRule
from policies.selection import STOPPED, present_placements

Shares = Callable[[Sequence[int], int], dict[int, int]]
"""From rows, in order of submission, and a number of GPUs to the GPUs of each job that gets some, within the limits of `ranges`."""


class Resizer:
    """Carries out a policy's decisions about sizes, for state after state.

    Invariant: the same state and shares give the same decision, independent of earlier states. The last decision is kept, because
    in some rounds nothing has changed but the time.
    """

    def __init__(self, placing: PlacementRule, round_s: float, reason: str) -> None:
        """A job that started or changed less than `round_s` ago keeps its size. `reason` says why a job has its size."""
        self._placing = placing
        self._round_s = round_s
        self._reason = reason
        self._last: tuple[tuple[object, ...], Decision] | None = None

    def decide(self, state: ClusterState, shares: Shares, *, timeless: bool = False) -> Decision:
        """Return the decision: sizes by `shares`, then placements.

        Jobs that are young or not preemptible keep size and placement. A job that keeps its size keeps its placement; the others
        are placed in rising order of size. A job that has to be divided evenly, and finds no placement in its size, gets fewer GPUs
        (7 cannot be divided between two nodes of 4). A job that finds no placement at all stays as it is, and sizes are decided
        anew for the others.
        `timeless` means that `shares` use nothing that changes while jobs run or wait: times, work done, estimates and profiles.
        """
        running = state.running
        young = state.time_s - state.jobs.start_time_s[running] < self._round_s
        still = running[~state.jobs.preemptible[running] | young]
        if not timeless:
            return self._decide(state, shares, still)
        key = _all_but_times(state, still)
        if self._last is None or self._last[0] != key:
            self._last = key, self._decide(state, shares, still)
        return self._last[1]

    def _decide(self, state: ClusterState, shares: Shares, still: IntColumn) -> Decision:
        own = present_placements(state, state.running)
        places = _Places(state, self._placing, own, still)
        # A job that needs more than is free gets nothing, and never more will be free: only more jobs are kept.
        least = ranges(state)[0]
        candidates = np.flatnonzero(least <= places.free_gpus)
        order = candidates[~np.isin(candidates, still)].tolist()
        even = state.jobs.split == int(Split.EVEN)
        most: dict[int, int] = {}  # largest size that is still tried, of jobs that found no placement in a larger one
        given = shares(order, places.free_gpus)
        while True:
            sizes = given | {row: size for row, size in most.items() if row in given and size < given[row]}
            coming, fits = places.try_out(sizes)
            failed = {row for row, fit in zip(coming, fits, strict=True) if fit is None}
            if not failed:
                break
            smaller = {row for row in failed if even[row] and sizes[row] > least[row]}
            failed -= smaller
            # Together, as if one GPU less were tried each time: no job changes meanwhile, as sizes that cannot exist take nothing.
            steps = (
                1 if failed else min(sizes[row] - places.next_size(row, sizes[row], int(least[row])) for row in smaller)
            )
            most |= {row: sizes[row] - steps for row in smaller}
            if failed:
                places.keep(failed & own.keys())
                for row in failed:
                    order.remove(row)
                given = shares(order, places.free_gpus)
        allocation = {row: own[row] for row in sorted(places.kept)}
        allocation.update((row, own[row]) for row in sizes if row in own)
        allocation.update((row, placement_of(fit)) for row, fit in zip(coming, fits, strict=True) if fit is not None)
        return Decision(allocation, _reasons(own, allocation, self._reason), tuple(state.pending.tolist()))


_TIMES = frozenset(
    {
        "submit_time_s",
        "start_time_s",
        "service_s",
        "attained_gpu_s",
        "duration_estimate_s",
        "duration_spread_s",
        "estimate_source",
        "contention_sensitivity",
        "contention_confidence",
        "throughput_steps_per_s",
        "progress",
    }
)
"""Columns that change while jobs run or wait."""


def _all_but_times(state: ClusterState, still: IntColumn) -> tuple[object, ...]:
    """Return a key that is equal for two states that differ only in time, with the same jobs left alone."""
    columns = {
        **vars(state.nodes),
        **{f"job {name}": column for name, column in vars(state.jobs).items() if name not in _TIMES},
    }
    content = [column.tobytes() if isinstance(column, np.ndarray) else column for column in columns.values()]
    return still.tobytes(), state.node_sets.tobytes(), *content


def ranges(state: ClusterState) -> tuple[IntColumn, IntColumn]:
    """Return the fewest and most GPUs of each job. Fixed shares on fixed nodes are one size."""
    jobs = state.jobs
    is_fixed = jobs.split == int(Split.FIXED)
    low, high = (np.where(is_fixed, jobs.num_gpus, column) for column in jobs.sizes)
    return low, high


class _Places:
    """Placements of the jobs while sizes are decided.

    Invariants: jobs in `kept` keep what they had; `free_gpus` is what they leave on nodes that are available; `_stayed` is what
    is free beside them and `_staying`. Requests and capacity are computed when the first job needs a placement, and shared by all
    tries.

    Bound: lives for one decision.
    """

    def __init__(self, state: ClusterState, placing: PlacementRule, own: dict[int, Placement], kept: IntColumn) -> None:
        self._state = state
        self._placing = placing
        self._own = own
        self._before = {row: placement.num_gpus for row, placement in own.items()}
        self._asked: list[int] = state.jobs.num_gpus.tolist()
        self.kept = set(kept.tolist())
        self.free_gpus = free_gpus(state, kept)
        self._bare: Capacity | None = None
        """What is free beside the kept jobs alone; None: not computed yet."""
        self._stayed: Capacity | None = None
        self._staying: set[int] = set()
        self._tried: dict[tuple[int, ...], list[Fit | None]] = {}
        """Fits beside the jobs that stay now, for each sequence of classes of jobs that are placed one after the other."""

    def keep(self, rows: AbstractSet[int]) -> None:
        """Keep these running jobs where they are."""
        if rows:
            self.kept.update(rows)
            self.free_gpus = free_gpus(self._state, np.array(sorted(self.kept), dtype=np.int64))
            self._bare = None

    def next_size(self, row: int, size: int, least: int) -> int:
        """Return the largest size below `size` that a job which is divided evenly could have beside the kept jobs, or `least`.

        All sizes between find no placement, whatever the other jobs get: too few nodes have room for the shares.
        """
        if self._bare is None:
            kept = np.array(sorted(self.kept), dtype=np.int64)
            self._bare = Capacity(self._state, kept, None if self._stayed is None else self._stayed.requests)
        before = self._before.get(row, 0)
        largest = max(least, before if before < size else 0)
        request, with_room = self._bare.requests.of(row), 0
        counts = self._bare.counts(row)
        for gpus in range(len(counts) - 1, 0, -1):
            with_room += counts[gpus]
            nodes = min(with_room, request.max_nodes, (size - 1) // gpus)
            if nodes >= request.min_nodes:
                largest = max(largest, gpus * nodes)
        return largest

    def try_out(self, sizes: dict[int, int]) -> tuple[list[int], list[Fit | None]]:
        """Return the jobs of these sizes that need a placement, smallest first, and the fit of each. Takes nothing.

        Running jobs that have the size stay where they are.
        """
        before = self._before
        coming = sorted([(size, row) for row, size in sizes.items() if before.get(row) != size])
        if not coming:
            return [], []
        rows = [row for _, row in coming]
        stayed = self._beside(self.kept | (sizes.keys() & before.keys()).difference(rows))
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
        """Return what is free beside these running jobs."""
        capacity = self._stayed
        if capacity is None:
            capacity = self._stayed = Capacity(self._state, staying=np.array(sorted(rows), dtype=np.int64))
        elif rows != self._staying:
            for row in self._staying - rows:
                capacity.give_back(row, self._own[row])
            for row in rows - self._staying:
                capacity.take(row, self._own[row])
            self._tried.clear()
        self._staying = rows
        return capacity


def _reasons(own: dict[int, Placement], allocation: dict[int, Placement], reason: str) -> dict[int, str]:
    reasons = {row: STOPPED for row in own if row not in allocation}
    for row, placement in allocation.items():
        before = own.get(row)
        if before is None:
            reasons[row] = f"{placement.num_gpus} GPUs: {reason}"
        elif before != placement:
            reasons[row] = f"{placement.num_gpus} instead of {before.num_gpus} GPUs: {reason}"
    return reasons
