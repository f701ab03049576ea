"""From a policy's decision to the steps that Slurm is to carry out, or to the reason why the decision is refused.

A pure function, printable and testable. A policy may ask for anything; nothing reaches Slurm that does not fit the nodes,
the jobs' own constraints, and what the policy said of itself. A bad decision is refused whole: a policy that is wrong about
one job is not to be trusted with the others.

A policy that preempts may leave out running jobs that are preemptible, or want them elsewhere. They are to be stopped, which takes
a while: what is to start in their place waits until they have gone, and what fits beside them starts. Stops that are of use
only together are a group: whoever carries them out takes all of it, or leaves it.

Thousands of jobs may start at once, so the checks of single jobs are made twice: over all of them in columns, to find the
suspects, and then of these one by one, which alone decides and has the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from controller.cycle.decision.node_capacity import NodeCapacity
from controller.cycle.decision.stop_groups import StopGroup, stop_groups
from policies.api import Decision, PolicySpec
from policies.model import BoolColumn, ClusterState, JobState, Placement, Split
from policies.selection import held_placements

_MAX_REASON = 200
_MEMORY_SLACK_MIB = 1.0
_CPU_SLACK = 1e-3
_NAMED = 3


class Start(NamedTuple):
    """Start a waiting job on these nodes."""

    row: int
    placement: Placement
    reason: str


class Stop(NamedTuple):
    """Stop a running job, so that it comes back later: anywhere, or where the policy wants it."""

    row: int
    reason: str
    placement: Placement | None
    """None: it is to wait until the policy places it again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps from the current to the wanted allocation, in the order in which they are carried out."""

    starts: tuple[Start, ...]
    queue: tuple[int, ...]
    """Waiting jobs in the policy's order, those to be started left out."""
    reasons: Mapping[int, str] = field(default_factory=dict)
    """What the policy says of jobs that go on waiting."""
    stops: tuple[Stop, ...] = ()
    """Running jobs that are to go; those of a cycle before that are about to are among them."""
    groups: tuple[StopGroup, ...] = ()
    """Which of the stops are of use together only; those for the first in line come first."""

    def first(self, most: int) -> Plan:
        """Return the plan with the first so many starts; the jobs of the others are at the head of the queue."""
        if len(self.starts) <= most:
            return self
        later = {start.row: start.reason for start in self.starts[most:]}
        return replace(self, starts=self.starts[:most], queue=(*later, *self.queue), reasons={**self.reasons, **later})


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a decision is refused."""

    reason: str


class _BadDecisionError(Exception):
    """Carries the reason out of the checks below."""


@dataclass(frozen=True, slots=True)
class _Entries:
    """An allocation in columns."""

    placements: list[Placement]
    rows: npt.NDArray[Any]
    """Job of each placement."""
    owner: npt.NDArray[np.int64]
    """Of each entry: number of its placement."""
    nodes: npt.NDArray[Any]
    gpus: npt.NDArray[Any]
    widths: npt.NDArray[np.int64]
    """Entries of each placement."""
    plain: bool
    """Whether the columns say all there is to say: else a policy gave numbers that are none, or not as many of both."""

    @classmethod
    def of(cls, allocation: Mapping[int, Placement]) -> Self:
        placements = list(allocation.values())
        count = len(placements)
        widths, given = (
            np.fromiter([len(part) for part in parts], np.int64, count)
            for parts in ([p.nodes for p in placements], [p.gpus for p in placements])
        )
        rows = np.array(list(allocation))
        nodes = np.array(list(chain.from_iterable([p.nodes for p in placements])))
        gpus = np.array(list(chain.from_iterable([p.gpus for p in placements])))
        plain = all(column.dtype == np.int64 for column in (rows, nodes, gpus)) and np.array_equal(widths, given)
        return cls(placements, rows, np.repeat(np.arange(count), widths), nodes, gpus, widths, plain)

    def suspects(self, alone: BoolColumn, entries: BoolColumn) -> list[tuple[int, Placement]]:
        """Job and placement where either the placement or one of its entries is flagged."""
        flagged = alone.copy()
        flagged[self.owner[entries]] = True
        return [(int(self.rows[number]), self.placements[number]) for number in np.flatnonzero(flagged).tolist()]


def make_plan(state: ClusterState, decision: Decision, spec: PolicySpec) -> Plan | Rejection:
    """Check the decision against the state and the policy's spec, and work out the steps."""
    try:
        entries = _Entries.of(decision.allocation)
        _check_rows(state, decision, entries)
        stops = _stops(state, decision, spec)
        _check_starts(state, decision, spec, entries)
        moved = [stop for stop in stops if stop.placement is not None]
        for stop in moved:
            _check_move(state, stop, spec)
        _check_capacity(state, entries, [stop.row for stop in moved])
    except _BadDecisionError as error:
        return Rejection(str(error))
    plan = _steps(state, decision, entries.rows.astype(np.int64))
    return _beside_those_that_stop(state, decision, plan, stops) if stops else plan


def _steps(state: ClusterState, decision: Decision, rows: npt.NDArray[np.int64]) -> Plan:
    """The plan of a decision that is fine."""
    # The policy's order of waiting jobs, or the order of submission where it gives none.
    queue = np.array(decision.queue, dtype=np.int64) if decision.queue else state.pending
    position = np.full(len(state.jobs), len(queue))
    position[np.array(decision.queue, dtype=np.int64)] = np.arange(len(decision.queue))
    new = rows[state.jobs.state[rows] == JobState.PENDING]
    new = new[np.lexsort((new, position[new]))]
    starts = tuple(
        [Start(row, decision.allocation[row], decision.reasons.get(row, "")[:_MAX_REASON]) for row in new.tolist()]
    )
    waits = np.ones(len(state.jobs), dtype=np.bool_)
    waits[new] = False
    waiting = tuple(queue[waits[queue]].tolist())
    told = decision.reasons.keys() - {start.row for start in starts}
    reasons = {row: decision.reasons[row][:_MAX_REASON] for row in told.intersection(waiting)} if told else {}
    return Plan(starts, waiting, reasons)


def _check_rows(state: ClusterState, decision: Decision, entries: _Entries) -> None:
    suspects: Iterable[tuple[int, Placement]] = decision.allocation.items()
    if entries.plain:
        rows, nodes, owner = entries.rows, entries.nodes, entries.owner
        beyond = (rows < 0) | (rows >= len(state.jobs)) | (entries.widths == 0)
        # Ascending ones are distinct; others are looked at.
        ascending = np.append(True, (np.diff(nodes) > 0) | (np.diff(owner) > 0))[: len(nodes)]
        strange = (nodes < 0) | (nodes >= len(state.nodes)) | (entries.gpus < 1) | ~ascending
        suspects = entries.suspects(beyond, strange)
    for row, placement in suspects:
        _check_row(state, row, placement)
    jobs, queue = len(state.jobs), decision.queue
    if queue and not (min(queue) >= 0 and max(queue) < jobs):
        row = next(row for row in queue if not 0 <= row < jobs)
        raise _BadDecisionError(f"the queue names row {row}, which is no job")


def _check_row(state: ClusterState, row: int, placement: Placement) -> None:
    jobs, nodes = len(state.jobs), len(state.nodes)
    if not 0 <= row < jobs:
        raise _BadDecisionError(f"row {row} is no job: the snapshot has {jobs}")
    if not placement.nodes or len(placement.nodes) != len(placement.gpus):
        raise _BadDecisionError(f"job {state.jobs.ids[row]}: a placement without nodes")
    if len(set(placement.nodes)) != len(placement.nodes):
        raise _BadDecisionError(f"job {state.jobs.ids[row]}: a node is named twice")
    if min(placement.nodes) < 0 or max(placement.nodes) >= nodes:
        raise _BadDecisionError(f"job {state.jobs.ids[row]}: a node that is not there: the snapshot has {nodes}")
    if min(placement.gpus) < 1:
        raise _BadDecisionError(f"job {state.jobs.ids[row]}: a node without GPUs")


def _stops(state: ClusterState, decision: Decision, spec: PolicySpec) -> tuple[Stop, ...]:
    """Running jobs that do not keep their place: only preemptible ones, and only where the policy has said that it preempts."""
    stops = []
    for row, own in held_placements(state, state.running).items():
        wanted = decision.allocation.get(row)
        if wanted == own:
            continue
        doing = "stopped" if wanted is None else "moved"
        if not state.jobs.preemptible[row]:
            raise _BadDecisionError(f"job {state.jobs.ids[row]} runs and cannot be {doing}: it is not preemptible")
        if not spec.preempts:
            raise _BadDecisionError(
                f"job {state.jobs.ids[row]} runs and would be {doing}, but {spec.name} says that it never preempts"
            )
        stops.append(Stop(row, decision.reasons.get(row, "")[:_MAX_REASON], wanted))
    return tuple(stops)


def _check_move(state: ClusterState, stop: Stop, spec: PolicySpec) -> None:
    """A running job may be shown with what it holds, as no request of its own would fit: it keeps its number of GPUs."""
    assert stop.placement is not None
    current = state.jobs.placement(stop.row)
    if current is not None and stop.placement.num_gpus != current.num_gpus:
        extra = "" if not spec.resizes else " (resizing is not possible on this cluster)"
        name = state.jobs.ids[stop.row]
        raise _BadDecisionError(f"job {name}: {stop.placement.num_gpus} GPUs instead of {current.num_gpus}{extra}")
    _check_shape(state, stop.row, stop.placement, spec)
    _check_nodes(state, stop.row, stop.placement)


def _beside_those_that_stop(state: ClusterState, decision: Decision, plan: Plan, stops: tuple[Stop, ...]) -> Plan:
    """The plan for now: who fits beside all that still runs starts, in the policy's order; the others go on waiting."""
    free = _Free(state)
    starts = tuple([start for start in plan.starts if free.take(start)])
    now = {start.row for start in starts}
    waits = {start.row: start for start in plan.starts if start.row not in now}
    until = _until(state, [stop.row for stop in stops])
    told = {row: f"{start.reason}; {until}".lstrip("; ") for row, start in waits.items()}
    known = waits.keys() | set(plan.queue)
    order = [row for row in decision.queue or state.pending.tolist() if row in known]
    queue = dict.fromkeys([*order, *waits])  # a policy need not name all
    groups = _groups(state, waits.values(), stops)
    return Plan(starts, tuple(queue), {**plan.reasons, **told}, stops, groups)


def _groups(state: ClusterState, waits: Iterable[Start], stops: tuple[Stop, ...]) -> tuple[StopGroup, ...]:
    """The stops that belong together, for starts that wait for them."""
    occupied = {row: own.nodes for row, own in held_placements(state, [stop.row for stop in stops]).items()}
    moves = {stop.row: stop.placement.nodes for stop in stops if stop.placement is not None}
    return stop_groups(occupied, [(start.row, start.placement.nodes) for start in waits], moves)


def _until(state: ClusterState, leaving: Iterable[int]) -> str:
    names = [state.jobs.ids[row] for row in sorted(leaving)]
    more = ", ..." if len(names) > _NAMED else ""
    who = f"job {names[0]} has" if len(names) == 1 else f"{len(names)} jobs ({', '.join(names[:_NAMED])}{more}) have"
    return f"waits until {who} made room"


class _Free:
    """Capacity of the nodes beside all that runs, and beside the starts that were taken so far."""

    def __init__(self, state: ClusterState) -> None:
        self._jobs = state.jobs
        self._left = NodeCapacity.beside_running(state)

    def take(self, start: Start) -> bool:
        """Give the job its place, if it is free."""
        where, gpus = np.array(start.placement.nodes), np.array(start.placement.gpus)
        cpus, memory = gpus * self._jobs.cpus_per_gpu[start.row], gpus * self._jobs.memory_mib_per_gpu[start.row]
        exclusive = bool(self._jobs.exclusive[start.row])
        left = self._left
        fits = (left.free_gpus[where] >= gpus) & (left.free_cpus[where] + _CPU_SLACK >= cpus) & ~left.sealed[where]
        fits &= left.free_memory_mib[where] + _MEMORY_SLACK_MIB >= memory
        if exclusive:
            fits &= left.jobs[where] == 0
        if not fits.all():
            return False
        left.free_gpus[where] -= gpus
        left.free_cpus[where] -= cpus
        left.free_memory_mib[where] -= memory
        left.jobs[where] += 1
        left.sealed[where] |= exclusive
        return True


def _check_starts(state: ClusterState, decision: Decision, spec: PolicySpec, entries: _Entries) -> None:
    suspects: Iterable[tuple[int, Placement]] = decision.allocation.items()
    if entries.plain:
        suspects = _doubtful_starts(state, entries)
    for row, placement in suspects:
        if state.jobs.state[row] == JobState.PENDING:
            _check_shape(state, row, placement, spec)
            _check_nodes(state, row, placement)


def _doubtful_starts(state: ClusterState, entries: _Entries) -> list[tuple[int, Placement]]:
    """Everybody whom `_check_shape` or `_check_nodes` would refuse."""
    jobs, rows, owner, nodes, gpus, widths = (
        state.jobs,
        entries.rows,
        entries.owner,
        entries.nodes,
        entries.gpus,
        entries.widths,
    )
    pending = jobs.state[rows] == JobState.PENDING
    total = np.bincount(owner, weights=gpus, minlength=len(rows))
    fine = (total == jobs.num_gpus[rows]) & (jobs.min_nodes[rows] <= widths) & (widths <= jobs.max_nodes[rows])
    split, first = jobs.split[rows][owner], gpus[np.cumsum(widths) - widths][owner]
    uneven = ((split == Split.FIXED) & (gpus != jobs.gpus_per_node[rows][owner])) | (
        (split == Split.EVEN) & (gpus != first)
    )
    node_set = jobs.node_set[rows][owner]
    barred = ~state.nodes.available[nodes]
    chosen = np.flatnonzero(node_set >= 0)
    barred[chosen] |= ~state.node_sets[node_set[chosen], nodes[chosen]]
    return entries.suspects(pending & ~fine, pending[owner] & (uneven | barred))


def _check_shape(state: ClusterState, row: int, placement: Placement, spec: PolicySpec) -> None:
    jobs = state.jobs
    name = jobs.ids[row]
    wanted = int(jobs.num_gpus[row])
    if placement.num_gpus != wanted:
        extra = "" if not spec.resizes else " (resizing is not possible on this cluster)"
        raise _BadDecisionError(f"job {name}: {placement.num_gpus} GPUs instead of {wanted}{extra}")
    count = len(placement.nodes)
    least, most = int(jobs.min_nodes[row]), int(jobs.max_nodes[row])
    if not least <= count <= most:
        raise _BadDecisionError(f"job {name}: {count} nodes, but it runs on {least} to {most}")
    split = Split(int(jobs.split[row]))
    if split is Split.FIXED and any(gpus != jobs.gpus_per_node[row] for gpus in placement.gpus):
        raise _BadDecisionError(f"job {name}: needs {jobs.gpus_per_node[row]} GPUs on each node")
    if split is Split.EVEN and len(set(placement.gpus)) != 1:
        raise _BadDecisionError(f"job {name}: needs the same number of GPUs on every node")


def _check_nodes(state: ClusterState, row: int, placement: Placement) -> None:
    nodes = list(placement.nodes)
    for node in nodes:
        if not state.nodes.available[node]:
            raise _BadDecisionError(f"job {state.jobs.ids[row]}: node {state.nodes.names[node]} takes no jobs")
    node_set = int(state.jobs.node_set[row])
    if node_set >= 0 and not state.node_sets[node_set, nodes].all():
        raise _BadDecisionError(f"job {state.jobs.ids[row]}: may not use one of the nodes chosen")


def _check_capacity(state: ClusterState, entries: _Entries, moved: Sequence[int]) -> None:
    """No node gives more than it has: GPUs exactly, CPUs and memory where known, exclusive nodes to one job only.

    Nodes on which nobody is to start, nor to go to, are left out: what runs there runs.
    """
    rows, nodes, gpus = (
        column.astype(np.int64) for column in (entries.rows[entries.owner], entries.nodes, entries.gpus)
    )
    new = (state.jobs.state[rows] == JobState.PENDING) | np.isin(rows, moved)
    touched = np.bincount(nodes[new], minlength=len(state.nodes)) > 0
    left = NodeCapacity.beside(state, rows, nodes, gpus)
    _refuse_overcommitted(state, touched & (left.free_gpus < 0), "GPUs")
    _refuse_overcommitted(state, touched & (left.free_cpus < -_CPU_SLACK), "CPUs")
    _refuse_overcommitted(state, touched & (left.free_memory_mib < -_MEMORY_SLACK_MIB), "memory")
    _refuse_overcommitted(state, touched & left.sealed & (left.jobs > 1), "room: a job there is exclusive")


def _refuse_overcommitted(state: ClusterState, over: BoolColumn, what: str) -> None:
    if over.any():
        node = int(np.flatnonzero(over)[0])
        raise _BadDecisionError(f"node {state.nodes.names[node]} has not enough {what}")
