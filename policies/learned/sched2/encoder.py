"""Observations and actions of the agent on a cluster state, equal to those of the environment `headway/Sched2-v0`.

The environment knows its jobs' finish times; here they follow from the state, and agree to a rounding of float32: a job runs
for its remaining time (`ClusterState.remaining_s`), times the slowdown of its placement by the profile of its model
(`policies.placement.locality_tiers`), times its measured slowdown against running alone.
A live cluster differs from the environment in these points:

- GPUs that foreign jobs occupy, and free GPUs of nodes that are down, drained or taken by an exclusive job, are shown as absent;
  the other GPUs of an exclusive job's nodes come free when it ends;
- a job that can never be placed is not a candidate, and no other job waits behind it;
- a job without an estimate has a typical time, `usual_h`; a job that has run for longer than estimated is shown as about to end;
- a model without a profile loses nothing by being spread, and an invalid tier (not in (0, 1]) equals the tier before it;
- where jobs occupy more GPUs of a node than it has, only as many are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.errors import EncoderError
from policies.learned.sched2.state.placements import ProfiledPlacements
from policies.learned.sched2.state.state_columns import ABSENT, State, StateColumns
from policies.learned.sched2.state.window import FIRST, WINDOWS, chosen
from policies.learned.weights.card import Setting, settings_of
from policies.model import ClusterState, FloatColumn, Placement
from policies.placement.best_fit import Capacity
from policies.placement.locality_tiers import ACROSS_RACKS, NUM_TIERS, SAME_RACK, SAME_SOCKET
from policies.placement.paper_rules import PACKING
from policies.selection import present_placements

NAME = "sched2/2"
"""Name and version of this encoding; the version changes with the meaning of the numbers."""
Mask = npt.NDArray[np.bool_]
HOUR_S = 3600.0
_LONGEST_H = 1e6
"""Longer estimates are cut to this."""


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Options of the encoding, named as the environment's."""

    num_nodes: int = 15
    """N: number of nodes of the only supported shape of cluster."""
    gpus_per_node: int = 8
    """M: GPUs of its widest node."""
    candidates: int = 10
    """J."""
    window: str = FIRST
    """The waiting jobs that can be chosen: first or widest (`window.chosen`)."""
    usual_h: float = 1.5
    """Ideal time of jobs without an estimate."""

    def __post_init__(self) -> None:
        """Raises EncoderError for invalid values."""
        for name in ("num_nodes", "gpus_per_node", "candidates"):
            if getattr(self, name) < 1:
                raise EncoderError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.window not in WINDOWS:
            raise EncoderError(f"window is {self.window!r}; give {' or '.join(WINDOWS)}")
        if not 0 < self.usual_h < _LONGEST_H:
            raise EncoderError(f"usual_h is {self.usual_h}; give hours, more than 0")

    @property
    def supports(self) -> str:
        """The supported clusters, in words."""
        return f"{self.num_nodes} nodes, the widest of {self.gpus_per_node} GPUs"

    @property
    def columns(self) -> StateColumns:
        """The columns of a state."""
        return StateColumns(self.num_nodes, self.gpus_per_node, self.candidates)


def settings(encoding: Encoding, recipe: Any) -> Mapping[str, Setting]:
    """Return the card's record of encoding and recipe (a dataclass), from which `encoding_of` and a network can be made again."""
    return {**settings_of(recipe), **settings_of(asdict(encoding))}


def encoding_of(kept: Mapping[str, Setting]) -> Encoding:
    """Return the encoding in a card's recipe. Raises KeyError, EncoderError."""
    return Encoding(**{each.name: kept[each.name] for each in fields(Encoding)})  # type: ignore[arg-type] # it checks itself


class Encoder:
    """Encodes cluster states by an `Encoding`. Invariant: the result for a state does not depend on earlier states."""

    name = NAME

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding

    def check(self, state: ClusterState) -> None:
        """Raise EncoderError for a cluster that the encoding does not support."""
        known, gpus = self.encoding, state.nodes.gpus
        widest = int(gpus.max(initial=0))
        if len(state.nodes) != known.num_nodes or widest != known.gpus_per_node:
            raise EncoderError(
                f"this policy was trained for {known.supports}, and the cluster has {len(state.nodes)} nodes, the widest of "
                f"{widest} GPUs; train one for this cluster, or serve another policy"
            )

    def observe(self, state: ClusterState) -> AgentView:
        """Return the agent's view of the state. Raises EncoderError as `check` does."""
        self.check(state)
        return AgentView(self.encoding, state)


class AgentView:
    """A cluster state during one decision of an agent: time stands still, and jobs start one by one.

    Invariant: `array()`, `mask()` and `candidates` are those of the environment in which the same jobs run and wait.

    Bound: lives for one decision.
    """

    def __init__(self, encoding: Encoding, state: ClusterState) -> None:
        self.state = state
        self.capacity = Capacity(state)
        """Free capacity, less the jobs started here."""
        self.encoding = encoding
        self._columns = encoding.columns
        self._times = _Times(state, encoding.usual_h)
        self._runs = len(state.running) > 0
        self._started: list[tuple[int, Placement]] = []
        self._shown: _Cells | None = None
        """The observation without the jobs in `_started`; None before the first observation."""
        jobs, waiting = state.jobs, state.pending
        of = self.capacity.requests.of
        possible: dict[int, bool] = {}
        keys = self.capacity.requests.keys
        for row in waiting.tolist():
            if keys[row] not in possible:
                possible[keys[row]] = bool(of(row).parts)
        self._waiting = waiting[[possible[keys[row]] for row in waiting.tolist()]] if len(waiting) else waiting
        waited_s = np.maximum(state.time_s - jobs.submit_time_s - jobs.service_s, 0.0)
        self._waited_h = np.where(np.isfinite(waited_s), waited_s, 0.0) / HOUR_S
        self._choose()

    @property
    def candidates(self) -> Sequence[int]:
        """Rows of the jobs that can be chosen now, in the environment's order."""
        return self._candidates

    def array(self) -> State:
        """Return the agent's observation."""
        columns, jobs = self._columns, self.state.jobs
        seen = np.zeros(columns.size)
        gpus, rows, rest = columns.split(seen)
        gpus[:] = self._cells().sorted()
        for place, row in enumerate(self._candidates):
            rows[place] = (
                *self._times.profiled(row),
                jobs.num_gpus[row] / columns.gpus,
                self._waited_h[row],
            )
        behind = self._waiting[~np.isin(self._waiting, self._candidates)]
        if len(behind):
            rest[0] = len(behind) / columns.candidates
            rest[1] = jobs.num_gpus[behind].mean() / columns.gpus
            rest[2] = self._times.ideal_h[behind].mean()
            rest[3] = self._waited_h[behind].mean()
        return seen.astype(np.float32)

    def mask(self) -> Mask:
        """Return which actions are possible: 0 starts no job, k starts candidate k."""
        fits = [self._where(row) is not None for row in self._candidates]
        missing = [False] * (self._columns.candidates - len(fits))
        return np.array([self._runs or True not in fits, *fits, *missing], dtype=np.bool_)

    def start(self, action: int) -> tuple[int, Placement] | None:
        """Carry out one action. Returns the row and placement of the job that starts; None if the action waits or is impossible."""
        if not 0 < action <= len(self._candidates):
            return None
        row = self._candidates[action - 1]
        where = self._where(row)
        if where is None:
            return None
        self.capacity.take(row, where)
        self._started.append((row, where))
        self._runs = True
        self._waiting = self._waiting[self._waiting != row]
        self._choose()
        return row, where

    def _choose(self) -> None:
        jobs, encoding = self.state.jobs, self.encoding
        places = chosen(
            encoding.window, encoding.candidates, jobs.num_gpus[self._waiting], self._times.ideal_h[self._waiting]
        )
        self._candidates: list[int] = self._waiting[places].tolist()
        self._places: dict[int, Placement | None] = {}

    def _where(self, row: int) -> Placement | None:
        """Return where packing puts the job now."""
        key = self.capacity.requests.keys[row]
        if key not in self._places:
            self._places[key] = PACKING.place(self.capacity, row)
        return self._places[key]

    def _cells(self) -> _Cells:
        """Return the hours until each GPU comes free."""
        state, cells = self.state, self._shown
        if cells is None:
            cells = self._shown = _Cells(state, self._columns.gpus)
            for row, placement in present_placements(state, state.running).items():
                self._occupy(cells, row, placement)
            cells.close(~state.nodes.available)
        for row, placement in self._started:
            self._occupy(cells, row, placement)
        self._started.clear()
        return cells

    def _occupy(self, cells: _Cells, row: int, placement: Placement) -> None:
        hours = self._times.run_h(row, placement)
        whole = bool(self.state.jobs.exclusive[row])
        for node, gpus in placement.items():
            cells.take(node, self._columns.gpus if whole else gpus, hours)


class _Cells:
    """Hours until each GPU comes free. Invariant: `_free[n]` cells of node n are 0, and those are its first."""

    def __init__(self, state: ClusterState, width: int) -> None:
        nodes = state.nodes
        own = np.clip(nodes.gpus - nodes.foreign_gpus, 0, width)
        self._hours: FloatColumn = np.full((len(nodes), width), ABSENT)
        self._free: list[int] = own.tolist()
        for node, count in enumerate(self._free):
            self._hours[node, :count] = 0.0

    def take(self, node: int, gpus: int, hours: float) -> None:
        """Let `gpus` free GPUs, or as many as there are, come free after so many hours."""
        free = self._free[node]
        count = min(gpus, free)
        self._hours[node, free - count : free] = hours
        self._free[node] = free - count

    def close(self, nodes: Mask) -> None:
        """Mark the free GPUs of these nodes as absent."""
        for node in np.flatnonzero(nodes).tolist():
            self._hours[node, : self._free[node]] = ABSENT
            self._free[node] = 0

    def sorted(self) -> FloatColumn:
        """Return the hours (nodes, GPUs), rising within a node."""
        return np.sort(self._hours, axis=1)


class _Times:
    """Remaining times of jobs under different placements. Bound: lives for one decision."""

    def __init__(self, state: ClusterState, usual_h: float) -> None:
        left = state.remaining_s / HOUR_S
        self.ideal_h: FloatColumn = np.where(np.isfinite(left), np.clip(left, 0.0, _LONGEST_H), usual_h)
        """Remaining hours of each job, with its best locality."""
        self._gpus = state.jobs.num_gpus
        self._racks: list[int] = state.nodes.rack.tolist()
        self._placements = ProfiledPlacements(state.nodes.gpus.tolist(), self._racks)
        self._widest = int(state.nodes.gpus.max())
        self._largest_rack = int(np.bincount(state.nodes.rack).max())
        self._slower = _slower_than_alone(state)
        profiles = state.profiles
        self._curves = [[1.0] * NUM_TIERS] if profiles is None else [*_curves(profiles.locality), [1.0] * NUM_TIERS]
        self._model: list[int] = [0] * len(state.jobs) if profiles is None else profiles.of_job.tolist()
        self._known: dict[tuple[int, int], list[float]] = {}

    def profiled(self, row: int) -> list[float]:
        """Return the remaining hours under each of the k placements."""
        model, gpus, ideal = self._model[row], int(self._gpus[row]), float(self.ideal_h[row])
        factors = self._known.get((model, gpus))
        if factors is None:
            factors = [self._factor(model, gpus, nodes) for nodes in self._placements.of(gpus)]
            self._known[model, gpus] = factors
        return [ideal * factor for factor in factors]

    def run_h(self, row: int, placement: Placement) -> float:
        """Return the remaining hours at that placement."""
        factor = self._factor(self._model[row], int(self._gpus[row]), placement.nodes)
        return float(self.ideal_h[row]) * factor * self._slower[row]

    def _factor(self, model: int, gpus: int, nodes: Sequence[int]) -> float:
        """Return the time on these nodes, as a multiple of the ideal time."""
        if gpus == 1:
            return 1.0
        curve = self._curves[model]
        return max(1.0, curve[self._best(gpus)] / curve[self._tier(nodes)])

    def _tier(self, nodes: Sequence[int]) -> int:
        if len(nodes) == 1:
            return SAME_SOCKET
        racks = self._racks
        return SAME_RACK if all(racks[node] == racks[nodes[0]] for node in nodes) else ACROSS_RACKS

    def _best(self, gpus: int) -> int:
        nodes = -(-gpus // self._widest)
        if nodes == 1:
            return SAME_SOCKET
        return SAME_RACK if nodes <= self._largest_rack else ACROSS_RACKS


def _slower_than_alone(state: ClusterState) -> list[float]:
    """Return the measured time as a multiple of the time alone; 1 where it was not measured."""
    measured = state.jobs.contention_sensitivity
    if measured is None:
        return [1.0] * len(state.jobs)
    slower: list[float] = np.where(np.isfinite(measured) & (measured > 1.0), measured, 1.0).tolist()
    return slower


def _curves(locality: FloatColumn) -> list[list[float]]:
    """Return the throughput at each tier, never rising, in (0, 1]."""
    good = np.isfinite(locality) & (locality > 0) & (locality <= 1)
    cleaned = np.minimum.accumulate(np.where(good, locality, 1.0), axis=1)
    curves: list[list[float]] = cleaned.tolist()
    return curves
