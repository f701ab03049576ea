"""Dally: jobs wait for near GPUs until a tuned timer ends, and jobs that lose most by distance come first and may stop others.

Source: Sharma et al., "Dally: A network-placement sensitive cluster scheduler for deep learning" (first: "GPU cluster scheduling
for network-sensitive deep learning"), arXiv 2401.16492. Its three parts, as its abstract has them:

- delay scheduling: a job takes only GPUs of one machine, then of one rack, then any; it waits at each level for a timer;
- network-sensitive preemption: jobs that suffer more from the network go before others;
- an auto-tuner sets the timers by what jobs waited for before.

Only the abstract and descriptions by others were at hand, so the rest are choices (docs/policies/heuristics.md says more):
- order: the two queues of Tiresias by attained GPU-seconds; within a queue by what a job would lose in the worst place, in tenths
  of its best speed, the most first; then by submission;
- how timers follow from waits: `policies.ordering.delay_timers`. A job that was stopped waits anew;
- a job that loses less than a hundredth anywhere is not delayed, and takes free GPUs anywhere before it stops another;
- a waiting job may stop jobs behind it in the order for the nearest level that it can have. A running job is never moved.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Self

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, FloatColumn, JobState, Placement
from policies.options import number, switch, whole
from policies.ordering.delay_timers import DelayTimers, TimerSettings
from policies.ordering.run_rule import order_keys
from policies.placement.best_fit import Capacity
from policies.placement.levels import Level, level_of, nearest_level, place_within
from policies.placement.placement_text import nodes_text
from policies.rule import Discipline, Order, Rule
from policies.selection import STOPPED, present_placements
from policies.speeds.distance import far_speeds

_SMALL_LOSS = 0.01
"""A job that loses less by distance is not delayed."""
_WITHIN = {Level.MACHINE: "on one node", Level.RACK: "in one rack", Level.NETWORK: "anywhere"}


class Dally:
    """Runs jobs of little service first, the most sensitive to distance before others; each waits a while for near GPUs."""

    def __init__(
        self,
        machine_s: float = 600.0,
        rack_s: float = 600.0,
        tune: bool = True,
        window: int = 32,
        threshold_gpu_s: float = 3200.0,
        round_s: float = 300.0,
    ) -> None:
        """A job waits for `machine_s` for GPUs on one node, then for `rack_s` for GPUs in one rack; with `tune`, these follow the
        last `window` waits of jobs of its size. Jobs with `threshold_gpu_s` attained GPU-seconds come after others; decides again
        every `round_s` seconds."""
        threshold = number("threshold_gpu_s", threshold_gpu_s, unit="GPU-seconds", positive=True)
        rounds = number("round_s", round_s, unit="seconds")
        size = whole("window", window, least=1)
        self._rule = Rule(Order.QUEUES, Discipline.SELECT, threshold_gpu_s=threshold)
        self._timers = DelayTimers(
            TimerSettings(
                number("machine_s", machine_s, unit="seconds"),
                number("rack_s", rack_s, unit="seconds"),
                size if switch("tune", tune) else 0,
                rounds,
            )
        )
        self.spec = PolicySpec(
            name="dally",
            source="Dally (Sharma et al., arXiv 2401.16492)",
            preempts=True,
            round_s=rounds,
            needs=frozenset({"profile"}),
        )

    def fork(self) -> Self:
        """Return a copy with timers of its own."""
        twin = copy.copy(self)
        twin._timers = copy.deepcopy(self._timers)
        return twin

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order; running jobs whose GPUs others need are stopped."""
        idle = Capacity(state, staying=state.running[:0])
        nearest = _nearest(idle)
        own = present_placements(state, state.running)
        self._timers.update(state, {row: level_of(state, placement) for row, placement in own.items()}, nearest)
        loss = 1.0 - far_speeds(idle)
        selection = _Selection(state, self._order(state, loss), idle)
        gpus = state.jobs.num_gpus.tolist()
        for row in selection.order:
            if row in own:
                selection.keep(row)
                continue
            sensitive = bool(loss[row] >= _SMALL_LOSS)
            farthest, left_s = Level.NETWORK, 0.0
            if sensitive:
                waited_s = self._timers.waited_s(state, row)
                farthest, left_s = self._timers.farthest(gpus[row], nearest[row], waited_s)
            selection.start(row, nearest[row], farthest, left_s, stop_for_near=sensitive)
        return Decision(selection.allocation, selection.reasons, tuple(selection.queue))

    def _order(self, state: ClusterState, loss: FloatColumn) -> list[int]:
        """Return all rows in order, those of running jobs that may be stopped among them; the others come first."""
        jobs = state.jobs
        fixed = (jobs.state == JobState.RUNNING) & ~jobs.preemptible
        order: list[int] = np.lexsort((-np.round(loss, 1), order_keys(self._rule, state), ~fixed)).tolist()
        return order


def _nearest(idle: Capacity) -> list[Level]:
    known: dict[int, Level] = {}
    levels = []
    for row, key in enumerate(idle.requests.keys):
        if key not in known:
            known[key] = nearest_level(idle, row)
        levels.append(known[key])
    return levels


class _Selection:
    """The jobs selected so far.

    Invariants: `_selected` is what they leave; `_beside` is that less the running jobs that have not been stopped or selected yet.
    So whatever fits in `_beside` stops no job, and what fits in `_selected` stops only jobs later in the order.

    Bound: lives for one decision.
    """

    def __init__(self, state: ClusterState, order: list[int], idle: Capacity) -> None:
        self._state = state
        self.order = order
        waits = (state.jobs.state == JobState.PENDING).tolist()
        self.queue = [row for row in order if waits[row]]
        self._selected = idle
        self._beside = Capacity(state, requests=idle.requests)
        self._own = present_placements(state, state.running)
        place_of = {row: place for place, row in enumerate(order)}
        self._later: dict[int, list[int]] = defaultdict(list)
        """Running jobs of each node that may still be stopped, in order."""
        for row in sorted(self._own, key=place_of.__getitem__):
            if state.jobs.preemptible[row]:
                for node in self._own[row].nodes:
                    self._later[node].append(row)
        self._failed: set[tuple[int, Level, bool]] = set()
        self.allocation: dict[int, Placement] = {}
        self.reasons: dict[int, str] = {}

    def keep(self, row: int) -> None:
        """Select a running job, unless it was stopped."""
        if row in self.reasons:
            return
        placement = self.allocation[row] = self._own[row]
        self._selected.take(row, placement)
        self._leaves_later(row, placement)

    def start(self, row: int, nearest: Level, farthest: Level, left_s: float, *, stop_for_near: bool) -> None:
        """Select a waiting job if it fits at one of these levels: the nearest first, and free GPUs before those of other jobs;
        without `stop_for_near`, free GPUs at any of the levels come before."""
        kind = self._selected.requests.keys[row], farthest, stop_for_near
        found = None
        if kind not in self._failed:
            levels = [level for level in Level if nearest <= level <= farthest]
            found = self._find(row, levels, stop_for_near=stop_for_near)
        if found is None:
            self._failed.add(kind)
            if left_s:
                self.reasons[row] = f"waits for GPUs {_WITHIN[farthest]}; takes farther ones in {left_s:.0f} s"
            return
        level, placement = found
        self._make_room(row, placement)
        self._selected.take(row, placement)
        self._beside.take(row, placement)
        self.allocation[row] = placement
        self.reasons[row] = f"{_WITHIN[level]}: {placement.num_gpus} GPUs on {nodes_text(self._state, placement)}"

    def _find(self, row: int, levels: list[Level], *, stop_for_near: bool) -> tuple[Level, Placement] | None:
        near_first = [(capacity, level) for level in levels for capacity in (self._beside, self._selected)]
        free_first = [(capacity, level) for capacity in (self._beside, self._selected) for level in levels]
        for capacity, level in near_first if stop_for_near else free_first:
            placement = place_within(capacity, row, level)
            if placement is not None:
                return level, placement
        return None

    def _make_room(self, row: int, placement: Placement) -> None:
        """Stop running jobs, the last in the order first, until the placement is free."""
        for node, gpus in placement.items():
            part = Placement((node,), (gpus,))
            while self._later[node] and not self._beside.can_place_again(row, part):
                last = self._later[node][-1]
                self._leaves_later(last, self._own[last])
                self._beside.give_back(last, self._own[last])
                self.reasons[last] = STOPPED

    def _leaves_later(self, row: int, placement: Placement) -> None:
        for node in placement.nodes:
            if row in self._later[node]:
                self._later[node].remove(row)
