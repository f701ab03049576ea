"""The baselines of SCHED2: shortest ideal time (also delayed), shortest actual time, least resource, smallest product, FIFO.

Source: Luan et al., "SCHED2: Scheduling Deep Learning Training via Deep Reinforcement Learning", GLOBECOM 2019, section IV-A;
their packing placement is that of section II-B (`policies.placement.paper_rules.PACKING`). Jobs are never stopped.

The paper leaves some points open; the choices here are:
- which waiting jobs a baseline sees: all of them (`window=0`), or the first ten as its agent does (`window=10`);
- what happens when the chosen job does not fit: the next one is tried (FIFO excepted, which is "in order");
- what counts as a delay: each decision at which the job would start but not with its best locality, at most
  `max_delays` of them; jobs behind it may start meanwhile;
- actual time: ideal time by the profile's throughput where the job would be placed now; jobs without a profile have no loss.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Self

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, FloatColumn, IntColumn, Placement
from policies.options import whole
from policies.ordering.greedy import Greedy, Score, fixed
from policies.placement.best_fit import Capacity
from policies.placement.locality_tiers import is_best, relative_speed, speeds
from policies.placement.paper_rules import PACKING
from policies.placement.requests import Requests
from policies.selection import fill

_SOURCE = "SCHED2 (Luan et al., GLOBECOM 2019), baseline {}"
_NEEDS = frozenset({"duration_estimate"})
MAX_DELAYS = 3
"""Largest number of times that DSIF defers a job."""


def ideal_s(state: ClusterState) -> FloatColumn:
    """Return the run time of every job with its best locality; infinite without an estimate."""
    estimate = state.jobs.duration_estimate_s
    return np.where(np.isnan(estimate), np.inf, estimate)


class _Packed:
    """A baseline that scores waiting jobs, and packs them on free GPUs."""

    spec: PolicySpec

    def __init__(self, window: int = 0) -> None:
        """Only the first `window` waiting jobs are considered; 0 = all."""
        self._greedy = Greedy(PACKING, whole("window", window, least=0))
        self.spec = replace(type(self).spec, considers=window)


class Sched2Sif(_Packed):
    """Starts the shortest jobs first, by ideal time; places them by the packing rule."""

    spec = PolicySpec(name="sched2-sif", source=_SOURCE.format("SIF"), needs=_NEEDS)

    def decide(self, state: ClusterState) -> Decision:
        """Start the shortest that fits, and so on."""
        return self._greedy.decide(state, fixed(ideal_s(state)))


class Sched2Lrf(_Packed):
    """Starts jobs with the fewest GPUs first; places them by the packing rule."""

    spec = PolicySpec(name="sched2-lrf", source=_SOURCE.format("LRF"))

    def decide(self, state: ClusterState) -> Decision:
        """Start the smallest that fits, and so on."""
        return self._greedy.decide(state, fixed(state.jobs.num_gpus))


class Sched2Spf(_Packed):
    """Starts jobs with the smallest ideal time times GPUs first; places them by the packing rule."""

    spec = PolicySpec(name="sched2-spf", source=_SOURCE.format("SPF"), needs=_NEEDS)

    def decide(self, state: ClusterState) -> Decision:
        """Start the least that fits, and so on."""
        return self._greedy.decide(state, fixed(ideal_s(state) * state.jobs.num_gpus))


class Sched2Fifo:
    """Starts jobs in order of submission, none before an earlier one; places them by the packing rule."""

    spec = PolicySpec(name="sched2-fifo", source=_SOURCE.format("FIFO"), considers=1)

    def decide(self, state: ClusterState) -> Decision:
        """Start the longest prefix of the queue that fits."""
        return fill(state, state.pending, strict=True, placing=PACKING)


class Sched2Saf(_Packed):
    """Starts the job first that would run shortest at its present placement."""

    spec = PolicySpec(name="sched2-saf", source=_SOURCE.format("SAF"), needs=_NEEDS | {"profile"})

    def decide(self, state: ClusterState) -> Decision:
        """Start the one that would be done first, and so on; each start changes what the others would get."""
        return self._greedy.decide(state, _actual_s(state))


def _actual_s(state: ClusterState) -> Score:
    """Return a score by actual time. Jobs of one class and profile share placement and speed: each kind is computed once."""
    ideal, speed = ideal_s(state), speeds(state)
    model = np.full(len(state.jobs), -1) if state.profiles is None else state.profiles.of_job
    _, kinds = np.unique(np.stack((Requests(state).keys, model), axis=1), axis=0, return_inverse=True)
    kinds = kinds.reshape(-1)

    def score(capacity: Capacity, rows: IntColumn) -> FloatColumn:
        _, first, kind = np.unique(kinds[rows], return_index=True, return_inverse=True)
        ratios = np.array([_speed_now(capacity, row, speed) for row in rows[first].tolist()])
        actual: FloatColumn = ideal[rows] / ratios[kind]
        return actual

    return score


def _speed_now(capacity: Capacity, row: int, speed: FloatColumn) -> float:
    """Return the throughput at the placement that the job would get now, as a share of its best; almost 0 when it does not fit."""
    placement = PACKING.place(capacity, row)
    if placement is None:
        return 1e-300
    return relative_speed(capacity, row, placement, speed)


class Sched2Dsif:
    """Starts the shortest jobs first, by ideal time; a job that would start scattered is first delayed a few times.

    Decisions depend on earlier ones: the policy remembers the instants at which it delayed a job. The same instant gives the same
    decision again; what the policy remembers of later instants is then dropped. A hypothetical state counts as a state: a job that
    is delayed there has one delay less afterwards.
    """

    spec = PolicySpec(name="sched2-dsif", source=_SOURCE.format("DSIF"), needs=_NEEDS)

    def __init__(self, window: int = 0, max_delays: int = MAX_DELAYS) -> None:
        """Only the first `window` waiting jobs are considered (0 = all); each is delayed `max_delays` times at most."""
        self._window = whole("window", window, least=0)
        self._max_delays = whole("max_delays", max_delays, least=0)
        self._delays: dict[str, list[float]] = {}
        """Instants at which each job was delayed. Bound: the waiting jobs, each with `max_delays` instants."""

    def fork(self) -> Self:
        """Return a copy that counts delays of its own."""
        twin = copy.copy(self)
        twin._delays = copy.deepcopy(self._delays)
        return twin

    def decide(self, state: ClusterState) -> Decision:
        """Start the shortest that fits, unless it is to be delayed, and so on."""
        self._forget(state)
        ids, now = state.jobs.ids, state.time_s

        def defer(capacity: Capacity, row: int, placement: Placement) -> str | None:
            delays = self._delays.get(ids[row], [])
            earlier = sum(instant < now for instant in delays)
            if earlier >= self._max_delays or is_best(capacity, row, placement):
                return None
            if earlier == len(delays):
                self._delays.setdefault(ids[row], []).append(now)
            return f"its GPUs would be scattered over several nodes or racks; delay {earlier + 1} of at most {self._max_delays}"

        return Greedy(PACKING, self._window, defer=defer).decide(state, fixed(ideal_s(state)))

    def _forget(self, state: ClusterState) -> None:
        """Drop jobs that no longer wait, and later instants."""
        waiting = {state.jobs.ids[row] for row in state.pending.tolist()}
        self._delays = {
            job: [instant for instant in instants if instant <= state.time_s]
            for job, instants in self._delays.items()
            if job in waiting
        }
