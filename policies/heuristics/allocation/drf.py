"""Dominant resource fairness among jobs or users that wait for whole gangs.

Source: Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011, algorithm 1; the
baseline of DL2 (Peng et al., TPDS 2021, section 6.2), where resources are shared among jobs. A dominant share is the largest of
a job's or user's shares of the cluster's GPUs, CPUs and memory.

The paper lets jobs grow one task at a time. Gangs do not grow: a job has all that it asked for, or nothing. If the shares of all
waiting jobs rise together, the job with the smallest dominant share reaches its whole demand first, so among jobs it starts
first. Among users the algorithm is the original: the user with the smallest dominant share starts the next job. Running jobs are
not stopped, and jobs that do not fit are passed.

With `elastic` jobs grow as in the paper (and in DL2, which divides the cluster anew in every slot): a job that takes a range of
sizes has its minimum as the first task, and each further GPU is a task. The next task always goes to the smallest
dominant share. Sizes are decided anew at every event and round, and a job keeps its own for a round at least; jobs may be
stopped for others whose share is smaller.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, FloatColumn, IntColumn
from policies.options import choice, layout_named, number, switch
from policies.ordering.greedy import Greedy, fixed
from policies.ordering.resizing import Resizer, ranges
from policies.placement.best_fit import Capacity
from policies.placement.resource_shares import demands, occupied_gpus
from policies.placement.rules import placement_rule


class Drf:
    """Starts jobs by dominant share, smallest first: the share of the job, or of all jobs of its user."""

    spec = PolicySpec(name="drf", source="Dominant resource fairness (Ghodsi et al., NSDI 2011; baseline of DL2)")

    def __init__(
        self, between: str = "jobs", layout: str = "consolidated", elastic: bool = False, round_s: float = 1200.0
    ) -> None:
        """Share fairly between `jobs` or `users`; with `layout="anywhere"` jobs may also be placed on scattered GPUs.

        With `elastic` jobs that take ranges of sizes grow task by task, in rounds (20 minutes: DL2's slot).
        """
        self._users = choice("between", between, ("jobs", "users")) == "users"
        self._placing = placement_rule(layout_named(layout))
        self._elastic = switch("elastic", elastic)
        seconds = number("round_s", round_s, unit="seconds")
        self._resizer = Resizer(
            self._placing, seconds, "its dominant share of the cluster's resources was the smallest"
        )
        if self._elastic:
            self.spec = replace(self.spec, preempts=True, resizes=True, round_s=seconds)

    def decide(self, state: ClusterState) -> Decision:
        """Start the job with the smallest dominant share that fits, and so on."""
        if self._elastic:
            return self._grow(state)
        demand = demands(state)
        if not self._users:
            return Greedy(self._placing).decide(state, fixed(demand.max(axis=1)))
        user = state.jobs.user
        used = np.zeros((len(state.jobs.users), demand.shape[1]))
        np.add.at(used, user[state.running], demand[state.running])

        def share(_: Capacity, rows: IntColumn) -> FloatColumn:
            shares: FloatColumn = np.round(used.max(axis=1), 12)[user[rows]]
            return shares

        def started(row: int) -> None:
            used[user[row]] += demand[row]

        return Greedy(self._placing, started=started).decide(state, share)

    def _grow(self, state: ClusterState) -> Decision:
        """Give the next task to the smallest dominant share, and so on; then place the jobs."""
        low, high = ranges(state)
        tasks = demands(state) / state.jobs.num_gpus[:, None]
        owner = state.jobs.user if self._users else np.arange(len(state.jobs))
        claims = Claims(low.tolist(), high.tolist(), tasks, owner.tolist())
        own = occupied_gpus(state)[:, None] * tasks

        def shares(order: Sequence[int], gpus: int) -> dict[int, int]:
            kept = np.setdiff1d(state.running, np.array(order, dtype=np.int64))
            used: defaultdict[int, FloatColumn] = defaultdict(lambda: np.zeros(tasks.shape[1]))
            for row in kept.tolist():
                used[claims.owner[row]] += own[row]
            return claims.fill(order, used, gpus)

        return self._resizer.decide(state, shares, timeless=True)


@dataclass(frozen=True)
class Claims:
    """Sizes that the jobs can take, one entry each."""

    least: Sequence[int]
    """GPUs of the first task; every other is one."""
    most: Sequence[int]
    tasks: FloatColumn
    """Shares of the cluster's resources that go with one GPU, a row for each job."""
    owner: Sequence[int]
    """The owner of each job: allocation is fair among owners."""

    def fill(self, order: Sequence[int], used: defaultdict[int, FloatColumn], gpus: int) -> dict[int, int]:
        """Return by progressive filling the GPUs of each of these jobs that gets some, beside what owners occupy already.

        The next task goes to the owner with the smallest dominant share, and of its jobs to the one with the smallest; ties in
        order of submission. A job whose next task needs more than is left gets no more.
        """
        dominant = self.tasks.max(axis=1, initial=0.0).tolist()
        jobs: dict[int, list[tuple[float, int]]] = {}
        for row in order:
            jobs.setdefault(self.owner[row], []).append((0.0, row))
        owners = [(_dominant(used[owner]) if owner in used else 0.0, rows[0][1], owner) for owner, rows in jobs.items()]
        heapq.heapify(owners)
        sizes: dict[int, int] = {}
        while owners and gpus:
            _, row, owner = owners[0]
            task = 1 if row in sizes else self.least[row]
            rows = jobs[owner]
            heapq.heappop(rows)
            if task <= gpus:
                gpus -= task
                sizes[row] = sizes.get(row, 0) + task
                used[owner] = used[owner] + task * self.tasks[row]
                if sizes[row] < self.most[row]:
                    heapq.heappush(rows, (round(sizes[row] * dominant[row], 12), row))
            if rows:
                heapq.heapreplace(owners, (_dominant(used[owner]), rows[0][1], owner))
            else:
                heapq.heappop(owners)
        return sizes


def _dominant(used: FloatColumn) -> float:
    return round(float(used.max(initial=0.0)), 12)
