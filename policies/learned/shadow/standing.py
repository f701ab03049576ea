"""How a learned policy stands beside the shadow of `fifo-skip`: whether its jobs stay longer than the rule's would have.

The mean time that jobs stay is the mean number of jobs that are there, over the rate of arrivals (Little's law). So both are
compared by the seconds that jobs were there, summed up, on the cluster and in the shadow. Older seconds count less: they are
halved with every `HALF_JOBS` jobs that are submitted, so that a good past does not pay for a failure of today.
"""

from __future__ import annotations

import copy
import math
from typing import Self, TypeAlias

import numpy as np

from policies.api import Decision
from policies.learned.shadow.queue import ShadowJob, ShadowQueue
from policies.model import ClusterState, FloatColumn
from policies.placement.requests import Requests

BEHIND, CAUGHT_UP = 1.1, 1.02
"""Ratio to the rule from which a policy is behind, and at which it has caught up."""
HALF_JOBS = 200.0
SPARED_S = 60.0
"""Usual seconds by which every job may stay longer than under the rule."""
EXACT = 0.95
"""Share of the time for which a job was expected to run; one that ends earlier shows that expectations are not exact."""
MOST_JOBS = 10_000
"""Jobs beyond which no shadow is kept: its cost would be felt in each decision."""


_Seen: TypeAlias = tuple[float, float, float]
"""A job as it was after the last decision: its run time so far, as if it had run with the GPUs that it requests; the one that was
expected; and the GPUs that it has, over those that it requests, or 0 while it waits."""


class Standing:
    """Compares, state after state.

    Invariants: the same state again changes nothing. An earlier state, or other nodes, begin anew.
    """

    def __init__(self, spared_s: float = SPARED_S) -> None:
        """Every job may stay longer than under the rule by `spared_s`."""
        self._spared_s = spared_s
        self._queue: ShadowQueue | None = None
        self._seen: dict[str, _Seen] = {}
        """Bound: the jobs of the last state."""
        self.own_s = self.rule_s = 0.0
        """Seconds that jobs were there, summed up, on the cluster and in the shadow; older ones count less."""
        self._here = 0
        self._submitted = 0.0
        """Number of jobs since the begin; older ones count less."""
        self._are_exact = True
        """No job has ended before it was expected to: jobs that run for longer are slowed down, and not estimated badly."""
        self.is_behind = False
        """True from when the policy falls behind until it has caught up."""

    @property
    def ratio(self) -> float:
        """Seconds that jobs were there, over those in the shadow; 1 before there are any.

        Jobs that are there now, and not in the shadow, count as if each stayed for as long again as a job does in the shadow.
        """
        more = max(self._here - len(self._queue), 0) if self._queue is not None else 0
        stay_s = self.rule_s / self._submitted if self._submitted else 0.0
        own_s = self.own_s + more * stay_s - self._spared_s * self._submitted
        return own_s / self.rule_s if self.rule_s > 0 else (math.inf if own_s > 0 else 1.0)

    def fork(self) -> Self:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin._queue = None if self._queue is None else self._queue.fork()
        twin._seen = self._seen.copy()
        return twin

    def see(self, state: ClusterState, expected_s: FloatColumn) -> None:
        """Go on to that state, and compare. `expected_s` are the run times that its jobs are expected to have."""
        queue = self._queue
        if len(state.jobs) > MOST_JOBS:
            self._queue, self.is_behind = None, False
            return
        if queue is None or state.time_s < queue.time_s or queue.nodes.names != state.nodes.names:
            self._begin(state, expected_s)
            return
        passed_s = state.time_s - queue.time_s
        arrivals = self._arrivals(queue, state, expected_s)
        self._note_ends(queue, state, passed_s)
        late = 0 if self._are_exact else _hold(queue, state, expected_s)
        self._age(len(arrivals))
        self.own_s += len(self._seen) * passed_s + sum(state.time_s - at_s for at_s, _, _ in arrivals)
        self.rule_s += queue.advance(state.time_s, arrivals) + late * passed_s
        queue.resize(state)
        self._here = len(state.jobs)
        self.is_behind = self.ratio > (CAUGHT_UP if self.is_behind else BEHIND)

    def decided(self, state: ClusterState, expected_s: FloatColumn, decision: Decision) -> None:
        """Note which jobs run from now on."""
        if self._queue is None:
            return
        jobs = state.jobs
        asked = np.maximum(jobs.num_gpus, 1)
        served_s = (jobs.attained_gpu_s / asked).tolist()
        share = np.zeros(len(jobs))
        for row, placement in decision.allocation.items():
            share[row] = placement.num_gpus / asked[row]
        columns = served_s, expected_s.tolist(), share.tolist()
        self._seen = dict(zip(jobs.ids, zip(*columns, strict=True), strict=True))

    def _begin(self, state: ClusterState, expected_s: FloatColumn) -> None:
        self._queue = ShadowQueue(state, expected_s)
        self._here = len(state.jobs)
        self._seen = dict.fromkeys(state.jobs.ids, (0.0, 0.0, 0.0))
        self.own_s = self.rule_s = 0.0
        self._submitted = float(self._here)
        self.is_behind = False

    def _arrivals(
        self, queue: ShadowQueue, state: ClusterState, expected_s: FloatColumn
    ) -> list[tuple[float, str, ShadowJob]]:
        """Return the jobs that are new, by rising time of submission."""
        new = [row for row, name in enumerate(state.jobs.ids) if name not in self._seen]
        if not new:
            return []
        requests = Requests(state)
        submitted_s = np.clip(state.jobs.submit_time_s, queue.time_s, state.time_s).tolist()
        return [
            (submitted_s[row], state.jobs.ids[row], queue.arriving(requests, row, float(expected_s[row])))
            for row in sorted(new, key=submitted_s.__getitem__)
        ]

    def _note_ends(self, queue: ShadowQueue, state: ClusterState, passed_s: float) -> None:
        """Let jobs that have ended run for as long in the shadow as they did."""
        here = set(state.jobs.ids)
        for name in self._seen.keys() - here:
            served_s, expected_s, share = self._seen[name]
            if share or served_s:
                ran_s = served_s + passed_s * share
                queue.expect(name, ran_s)
                self._are_exact = self._are_exact and ran_s >= EXACT * expected_s
            else:
                queue.drop(name)

    def _age(self, arrivals: int) -> None:
        kept = 0.5 ** (arrivals / HALF_JOBS)
        self.own_s, self.rule_s, self._submitted = (
            self.own_s * kept,
            self.rule_s * kept,
            self._submitted * kept + arrivals,
        )


def _hold(queue: ShadowQueue, state: ClusterState, expected_s: FloatColumn) -> int:
    """Let jobs that run for longer than expected go on in the shadow; return the number of those that have already ended there."""
    jobs, running = state.jobs, state.running
    over = running[jobs.service_s[running] >= expected_s[running]]
    return sum(not queue.hold(jobs.ids[row]) for row in over.tolist())
