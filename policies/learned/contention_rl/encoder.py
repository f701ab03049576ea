"""Observations and actions of the agent on a cluster state, equal to those of the environment `headway/Contention-v0`.

Grid, placements and features are the environment's own. A live cluster differs from the environment in these points:

- a node that is down, drained or taken by an exclusive job takes no job: its free GPUs are shown as absent, and so are GPUs that
  foreign jobs occupy;
- a job whose placement is restricted (shape, node set, CPUs, memory, exclusive) has fewer possible actions; jobs of one demand with
  different requests are different candidates; a job that fits none of the encoder's spreads is not a candidate;
- a model without a valid profile (none, or NaN, infinite or negative numbers) has the usual features, which the card records for
  the models of training; so have all models where no link's speed is known;
- where jobs occupy more GPUs of a node than it has, only as many are shown.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from policies.errors import EncoderError
from policies.learned.contention_rl.features import FEATURES, MANY, SCALAR, Features, features, rank, shown, weight_of
from policies.learned.contention_rl.gpu_grid import Cells, CellValues, GpuGrid
from policies.learned.contention_rl.placement_actions import (
    ANY,
    EVEN,
    FEWEST,
    LISTS,
    PACKED,
    RULES,
    PlacementActions,
    Where,
    allowed,
    placement_actions,
)
from policies.model import ClusterState, FloatColumn, Placement, Split
from policies.placement.best_fit import Capacity
from policies.placement.requests import bitmask

NAME = "contention-rl/2"
"""Name and version of this encoding; the version changes with the meaning of the numbers."""
Mask = npt.NDArray[np.bool_]
_GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Options of observations and actions, named as the environment's."""

    num_nodes: int = 4
    """Number of nodes of the only supported shape of cluster."""
    gpus_per_node: int = 8
    """Most GPUs of a node."""
    candidates: int = 3
    """K."""
    nodes: str = LISTS
    """Way in which an action names nodes: lists or rules."""
    split: str = EVEN
    """Division of a job's GPUs among them: even or packed."""
    starts: str = ANY
    """The candidates that may start next: any or fewest."""
    cells: str = SCALAR
    """scalar or features."""
    usual: Features = (0.5, 0.5, 0.5)
    """Features of models without a profile."""

    def __post_init__(self) -> None:
        """Raises EncoderError for invalid values."""
        words = {"nodes": (LISTS, RULES), "split": (EVEN, PACKED), "starts": (ANY, FEWEST), "cells": (SCALAR, MANY)}
        for name, known in words.items():
            if (value := getattr(self, name)) not in known:
                raise EncoderError(f"{name} is {value!r}; give {' or '.join(known)}")
        for name in ("num_nodes", "gpus_per_node", "candidates"):
            if getattr(self, name) < 1:
                raise EncoderError(f"{name} is {getattr(self, name)}; give at least 1")
        if not all(0.0 <= value <= 1.0 for value in self.usual):
            raise EncoderError(f"usual features are {self.usual}; give three numbers from 0 to 1")
        _ = self.actions  # more lists of nodes than can be learned are found here

    @property
    def depth(self) -> int:
        """Number of values in a cell."""
        return len(FEATURES) if self.cells == MANY else 1

    @property
    def supports(self) -> str:
        """The supported clusters, in words."""
        return f"{self.num_nodes} nodes of at most {self.gpus_per_node} GPUs"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an observation."""
        last = (self.depth,) if self.cells == MANY else ()
        return (self.num_nodes, 2 * self.gpus_per_node, *last)

    @cached_property
    def actions(self) -> int:
        """Number of actions; the first waits."""
        return 1 + self.candidates * self.placement_actions(GpuGrid([self.gpus_per_node] * self.num_nodes, 1)).size

    def placement_actions(self, grid: GpuGrid) -> PlacementActions[Candidate]:
        """Return the placements of a candidate on that grid, by number."""
        return placement_actions(self.nodes, self.split, grid, Candidate.best_fit)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that can be started now."""

    row: int
    gpus: int
    free: bool
    """True if its placement is not restricted."""
    capacity: Capacity = field(repr=False)

    def best_fit(self) -> Where | None:
        """Return where consolidated best fit would put it."""
        found = self.capacity.place(self.row)
        return (list(found.nodes), list(found.gpus)) if found is not None else None


class Encoder:
    """Encodes cluster states by an `Encoding`. Invariant: the result for a state does not depend on earlier states."""

    name = NAME

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding

    def observe(self, state: ClusterState) -> AgentView:
        """Return the agent's view of the state. Raises EncoderError for a cluster that the encoding does not support."""
        known, gpus = self.encoding, state.nodes.gpus
        most = int(gpus.max(initial=0))
        if len(state.nodes) != known.num_nodes or most > known.gpus_per_node or most == 0:
            raise EncoderError(
                f"this policy was trained for {known.supports}, and the cluster has {len(state.nodes)} nodes of at most "
                f"{most} GPUs; train one for this cluster, or serve another policy"
            )
        return AgentView(known, state)


class AgentView:
    """A cluster state during one decision of an agent: time stands still, and jobs start one by one.

    Invariant: `array`, `mask` and `candidates` are those of the environment in which the same jobs run and wait.

    Bound: lives for one decision.
    """

    def __init__(self, encoding: Encoding, state: ClusterState) -> None:
        self._encoding = encoding
        self.state = state
        self.capacity = Capacity(state)
        """Free capacity, less the jobs started here."""
        self._features = _features(state, encoding.usual)
        own = np.clip(state.nodes.gpus - state.nodes.foreign_gpus, 0, None)
        self._grid = GpuGrid(own.tolist(), encoding.depth, encoding.gpus_per_node)
        self._actions = encoding.placement_actions(self._grid)
        self._numbers: dict[tuple[Features, float, int], CellValues] = {}
        self._ordinary = bitmask(state.nodes.available & (state.nodes.gpus > 0))
        self._everywhere: dict[int, bool] = {}
        """Unrestricted placement or not, for each class of requests."""
        self._queues = self._queued()
        self._candidates: list[Candidate] = []
        self._put_running()
        self._find_candidates()

    @property
    def candidates(self) -> Sequence[Candidate]:
        """The jobs that can be started now, the head of the queue first."""
        return self._candidates

    @property
    def startable(self) -> Sequence[Candidate]:
        """The candidates that fit somewhere now."""
        return [candidate for candidate, mask in zip(self._candidates, self._masks(), strict=True) if any(mask)]

    @property
    def array(self) -> Cells:
        """The agent's observation."""
        return self._grid.array.reshape(self._encoding.shape).copy()

    def mask(self) -> Mask:
        """Return which actions are possible; waiting always is."""
        parts = self._masks()
        missing = bytes((self._encoding.candidates - len(parts)) * self._actions.size)
        return np.frombuffer(bytearray(b"".join((b"\1", *parts, missing))), dtype=np.bool_)

    def start(self, action: int) -> tuple[int, Placement] | None:
        """Carry out one action. Returns the row and placement of the job that starts; None if the action waits or is impossible."""
        if action <= 0:
            return None
        which, number = divmod(action - 1, self._actions.size)
        if which >= len(self._candidates) or not self._masks()[which][number]:
            return None
        candidate = self._candidates[which]
        where = self._actions.place(candidate, number)
        assert where is not None
        placement = Placement.of(zip(*where, strict=True))
        self.take(candidate.row, placement)
        return candidate.row, placement

    def take(self, row: int, placement: Placement) -> None:
        """Start that job, the first of its class in the queue, there."""
        self.capacity.take(row, placement)
        self._put(row, placement, self.state.time_s)
        self._queues[self.capacity.requests.keys[row]].popleft()
        self._find_candidates()

    # Running jobs and candidates

    def _put_running(self) -> None:
        state, nodes = self.state, self.state.nodes
        running = state.running
        started = state.jobs.start_time_s
        for row in running[np.argsort(started[running], kind="stable")].tolist():
            placement = state.jobs.placement(row)
            if placement is not None:
                self._put(row, placement, float(started[row]))
        for node in np.flatnonzero(~nodes.available).tolist():
            self._grid.set_node_up(node, False)

    def _put(self, row: int, placement: Placement, since_s: float) -> None:
        grid, of = self._grid, self._features[row]
        counts = [min(gpus, grid.free[node]) for node, gpus in placement.items()]
        numbers = self._numbers_of(of, nodes=len(placement.nodes))
        grid.take(row, placement.nodes, counts, numbers, weight_of(of), since_s)
        if self.state.jobs.exclusive[row]:
            for node in placement.nodes:
                grid.set_node_up(node, False)

    def _queued(self) -> dict[int, deque[int]]:
        """Return by class the rows of waiting jobs, in order of submission, without jobs that can never be placed."""
        queues: dict[int, deque[int]] = defaultdict(deque)
        keys, gpus = self.capacity.requests.keys, self.state.jobs.num_gpus
        for row in self.state.pending.tolist():
            queues[keys[row]].append(row)
        return {key: queue for key, queue in queues.items() if self._actions.ever(int(gpus[queue[0]]))}

    def _head(self, row: int) -> Candidate:
        key = self.capacity.requests.keys[row]
        if key not in self._everywhere:
            self._everywhere[key] = self._may_go_anywhere(row)
        return Candidate(row, int(self.state.jobs.num_gpus[row]), self._everywhere[key], self.capacity)

    def _find_candidates(self) -> None:
        demands: list[Candidate] = []
        seen: set[int] = set()
        for row in sorted([queue[0] for queue in self._queues.values() if queue]):
            each = self._head(row)
            if each.free and each.gpus in seen:
                continue
            if each.free:
                seen.add(each.gpus)
            demands.append(each)
            if len(demands) == self._encoding.candidates:
                break
        self._candidates = demands
        many, grid = self._encoding.candidates, self._grid
        grid.show(
            [
                (
                    [grid.slot(spread.row, spread.share) for spread in self._actions.spreads(each.gpus)],
                    self._numbers_of(self._features[each.row], rank(place, many)),
                )
                for place, each in enumerate(demands)
            ]
        )

    def _numbers_of(self, of: Features, place: float = 1.0, nodes: int = 1) -> CellValues:
        numbers = self._numbers.get((of, place, nodes))
        if numbers is None:
            numbers = self._grid.numbers(shown(self._encoding.cells, of, place, nodes))
            self._numbers[of, place, nodes] = numbers
        return numbers

    # What jobs allow

    def _may_go_anywhere(self, row: int) -> bool:
        jobs, request = self.state.jobs, self.capacity.requests.of(row)
        if request.limited or request.exclusive or request.nodes != self._ordinary:
            return False
        widest = min(int(jobs.num_gpus[row]), len(self.state.nodes))
        return bool(jobs.split[row] == Split.ANY and jobs.min_nodes[row] <= 1 and jobs.max_nodes[row] >= widest)

    def _masks(self) -> list[bytes]:
        """Return the mask of each candidate."""
        masks = [self._mask_of(candidate) for candidate in self._candidates]
        return allowed(masks, [candidate.gpus for candidate in self._candidates], self._encoding.starts)

    def _mask_of(self, candidate: Candidate) -> bytes:
        mask = self._actions.mask(candidate)
        if candidate.free:
            return mask
        kept = bytearray(mask)
        for number in (number for number, possible in enumerate(mask) if possible):
            where = self._actions.place(candidate, number)
            kept[number] = where is not None and self._allows(candidate, where)
        return bytes(kept)

    def _allows(self, candidate: Candidate, where: Where) -> bool:
        if candidate.free:
            return True
        jobs, row = self.state.jobs, candidate.row
        nodes, counts = where
        rooms = dict(self.capacity.rooms(row))
        if any(rooms.get(node, 0) < gpus for node, gpus in zip(nodes, counts, strict=True)):
            return False
        if jobs.split[row] == Split.FIXED:
            return len(nodes) == int(jobs.min_nodes[row]) and set(counts) == {int(jobs.gpus_per_node[row])}
        if jobs.split[row] == Split.EVEN and len(set(counts)) > 1:
            return False
        return bool(jobs.min_nodes[row] <= len(nodes) <= jobs.max_nodes[row])


def usual_of(state: ClusterState) -> Features:
    """Return the medians over the state's models, which are used for models that were not measured."""
    of_job = _features(state, Encoding().usual)
    return tuple(np.median(sorted(set(of_job)), axis=0).round(4).tolist()) if of_job else Encoding().usual


def _features(state: ClusterState, usual: Features) -> list[Features]:
    """Return the features of each job."""
    profiles = state.profiles
    if profiles is None:
        return [usual] * len(state.jobs)
    known = [usual]
    link = _link_bytes_per_s(state)
    columns = (profiles.overlap, profiles.hiding, profiles.neighbour_loss)
    overlap, hiding, loss = (_column(column, len(profiles.models)) for column in columns)
    for sent, compute_s, hidden, behind, lost in zip(
        profiles.bytes_per_step.tolist(), profiles.compute_s.tolist(), overlap, hiding, loss, strict=True
    ):
        if not (0 <= sent < np.inf and 0 < compute_s < np.inf and link > 0):
            known.append(usual)
            continue
        overlapped = hidden if 0 <= hidden <= 1 else 0.0
        backward = behind if 0 <= behind <= 1 else 1.0
        known.append(features(sent, compute_s, overlapped, backward, link, lost if np.isfinite(lost) else None))
    return [known[model + 1] for model in profiles.of_job.tolist()]


def _column(column: FloatColumn | None, models: int) -> list[float]:
    return [np.nan] * models if column is None else column.tolist()


def _link_bytes_per_s(state: ClusterState) -> float:
    """Return the bytes/s of the narrowest node's link; NaN where none is known, infinite where none is needed."""
    links = state.nodes.nic_gbyte_s
    known = [] if links is None else links[links > 0].tolist()
    return min(known, default=float("inf" if len(state.nodes) == 1 else "nan")) * _GB
