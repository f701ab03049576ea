"""Dominant resource fairness among jobs or users that wait for whole gangs.

Source: Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011, algorithm 1; the
baseline of DL2 (Peng et al., TPDS 2021, section 6.2), where jobs are the ones who share. A dominant share is the largest of
one's shares of the cluster's GPUs, CPUs and memory.

The paper lets jobs grow one task at a time. Gangs do not: a job has all that it asked for, or nothing. Raised together, the
shares of jobs that wait reach the whole demand of the job with the smallest dominant share first: so among jobs that one
starts first. Among users the algorithm is the original: the user with the smallest dominant share starts the next job.
Running jobs are not stopped, and jobs that do not fit are passed.
"""

from __future__ import annotations

import numpy as np

from policies.api import Decision, PolicySpec
from policies.greedy import Greedy, fixed
from policies.model import ClusterState, FloatColumn, IntColumn
from policies.options import choice, layout_named
from policies.packing import Capacity
from policies.placing import placing_of
from policies.resources import demands


class Drf:
    """Waiting jobs by dominant share, least first: that of the job, or of all that its user holds."""

    spec = PolicySpec(name="drf", source="Dominant resource fairness (Ghodsi et al., NSDI 2011; baseline of DL2)")

    def __init__(self, between: str = "jobs", layout: str = "consolidated") -> None:
        """Fair between `jobs` or `users`; with `layout="anywhere"` jobs may also be placed on scattered GPUs."""
        self._users = choice("between", between, ("jobs", "users")) == "users"
        self._placing = placing_of(layout_named(layout))

    def decide(self, state: ClusterState) -> Decision:
        """Start whoever has the smallest dominant share and fits, and so on."""
        demand = demands(state)
        if not self._users:
            return Greedy(self._placing).decide(state, fixed(demand.max(axis=1)))
        user = state.jobs.user
        held = np.zeros((len(state.jobs.users), demand.shape[1]))
        np.add.at(held, user[state.running], demand[state.running])

        def share(_: Capacity, rows: IntColumn) -> FloatColumn:
            shares: FloatColumn = np.round(held.max(axis=1), 12)[user[rows]]
            return shares

        def started(row: int) -> None:
            held[user[row]] += demand[row]

        return Greedy(self._placing, started=started).decide(state, share)
