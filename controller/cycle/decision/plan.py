"""Turns a policy's decision into the steps that Slurm is to carry out, or into the reason why the decision is refused.

`make_plan` is a pure function, so its result can be printed and tested. Whatever a policy decides, only steps reach Slurm that
fit the nodes, the jobs' own constraints, and the policy's description of itself. A bad decision is refused as a whole, because a
policy that is wrong about one job may be wrong about the others.

A policy that preempts may leave out running jobs that are preemptible, or place them on other nodes. They are stopped, which takes
some time: jobs that need their GPUs wait until these are free, and jobs that fit beside them start. Stops that are useful only
together form a group, which is carried out as a whole or not at all.

Thousands of jobs may start at once, so single jobs are checked twice: first all of them in columns, to find suspects, and then
each suspect by itself. The second check decides, and gives the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from controller.cycle.decision.named_gpus import Binds, always_binds, named_gpus_problem, same_gpus, taken_gpus
from controller.cycle.decision.node_capacity import NodeCapacity
from controller.cycle.decision.stop_groups import StopGroup, stop_groups
from policies.api import Decision, PolicySpec
from policies.decision_check import decision_problem
from policies.model import BoolColumn, ClusterState, FloatColumn, JobState, Placement, Split
from policies.selection import present_placements

_MAX_REASON = 200
_MEMORY_SLACK_MIB = 1.0
_CPU_SLACK = 1e-3
_NAMED = 3


class Start(NamedTuple):
    """Start a waiting job on these nodes."""

    row: int
    placement: Placement
    reason: str
    frees_s: float = 0.0
    """Longest time in which Slurm stops other jobs on these nodes first, seconds."""


class Stop(NamedTuple):
    """Stop a running job, so that it continues later: on any nodes, or on those that the policy has chosen."""

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
    """The policy's reasons for jobs that continue to wait, by row."""
    stops: tuple[Stop, ...] = ()
    """Running jobs to stop, also those that an earlier cycle has begun to stop."""
    groups: tuple[StopGroup, ...] = ()
    """Stops that are useful only together; those for the first jobs of the queue come first."""
    guard: str = ""
    """Reason why a rule decided in a learned policy's place; empty if the policy itself decided."""
    outside: str = ""
    """How the state leaves the range that the policy's weights were trained on; empty if it does not."""
    making_room: Mapping[int, str] = field(default_factory=dict)
    """Waiting jobs for which others are stopped by Slurm's rules, by row: which jobs, and the rule."""
    considered: int = 0
    """Number of waiting jobs that the policy was shown, the first in order of submission; 0: all."""

    def first(self, most: int) -> Plan:
        """Return the plan with the first `most` starts; the jobs of the other starts are at the head of its queue."""
        if len(self.starts) <= most:
            return self
        return self._with(self.starts[:most], self.starts[most:])

    def within(self, array_of: Callable[[int], int | None], room_of: Mapping[int, int]) -> Plan:
        """Return the plan with no more tasks of an array among its starts than may start.

        `array_of`: the array of a row's job. `room_of`: how many tasks may start, of arrays with a throttle.
        """
        if not room_of:
            return self
        taken: Counter[int | None] = Counter()
        kept: list[Start] = []
        left_out: list[Start] = []
        for start in self.starts:
            array = array_of(start.row)
            room = None if array is None else room_of.get(array)
            (kept if room is None or taken[array] < room else left_out).append(start)
            taken[array] += 1
        return self._with(kept, left_out) if left_out else self

    def _with(self, starts: Sequence[Start], left_out: Sequence[Start]) -> Plan:
        later = {start.row: start.reason for start in left_out}
        return replace(self, starts=tuple(starts), queue=(*later, *self.queue), reasons={**self.reasons, **later})


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason why a decision is rejected."""

    reason: str


class _BadDecisionError(Exception):
    """A check has failed; the text is the reason."""


@dataclass(frozen=True, slots=True)
class _Entries:
    """An allocation in columns."""

    placements: list[Placement]
    rows: npt.NDArray[Any]
    """Job of each placement."""
    owner: npt.NDArray[np.int64]
    """Number of the placement to which each entry belongs."""
    nodes: npt.NDArray[Any]
    gpus: npt.NDArray[Any]
    widths: npt.NDArray[np.int64]
    """Number of entries of each placement."""
    plain: bool
    """True if the columns are valid; False if a policy gave values that are no integers, or different numbers of nodes and
    GPUs."""

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
        """Return job and placement wherever the placement or one of its entries is flagged."""
        flagged = alone.copy()
        flagged[self.owner[entries]] = True
        return [(int(self.rows[number]), self.placements[number]) for number in np.flatnonzero(flagged).tolist()]


def make_plan(
    state: ClusterState, decision: Decision, spec: PolicySpec, binds: Binds = always_binds
) -> Plan | Rejection:
    """Check the decision against the state and the policy's spec, and return the steps."""
    if problem := decision_problem(decision, state.jobs.state == JobState.PENDING, state.jobs.ids):
        return Rejection(problem)
    try:
        entries = _Entries.of(decision.allocation)
        _check_rows(state, decision, entries)
        stops = _stops(state, decision, spec)
        _check_starts(state, decision, spec, entries)
        moved = [stop for stop in stops if stop.placement is not None]
        for stop in moved:
            _check_move(state, stop, spec)
        _check_capacity(state, entries, [stop.row for stop in moved])
        _check_named_gpus(state, decision, spec, stops)
    except _BadDecisionError as error:
        return Rejection(str(error))
    plan = _steps(state, decision, entries.rows.astype(np.int64))
    return _beside_those_that_stop(state, decision, plan, stops, binds) if stops else plan


def _steps(state: ClusterState, decision: Decision, rows: npt.NDArray[np.int64]) -> Plan:
    """Return the plan of a decision that has passed the checks."""
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
    given = decision.reasons.keys() - {start.row for start in starts}
    reasons = {row: decision.reasons[row][:_MAX_REASON] for row in given.intersection(waiting)} if given else {}
    return Plan(starts, waiting, reasons, guard=decision.guard, outside=decision.outside)


def _check_rows(state: ClusterState, decision: Decision, entries: _Entries) -> None:
    suspects: Iterable[tuple[int, Placement]] = decision.allocation.items()
    if entries.plain:
        rows, nodes, owner = entries.rows, entries.nodes, entries.owner
        beyond = (rows < 0) | (rows >= len(state.jobs)) | (entries.widths == 0)
        # Ascending nodes are distinct; other orders are checked one by one.
        ascending = np.append(True, (np.diff(nodes) > 0) | (np.diff(owner) > 0))[: len(nodes)]
        strange = (nodes < 0) | (nodes >= len(state.nodes)) | (entries.gpus < 1) | ~ascending
        suspects = entries.suspects(beyond, strange)
    for row, placement in suspects:
        _check_row(state, row, placement)
    for row, placement in decision.allocation.items():
        if placement.servers:
            name = state.jobs.ids[row]
            raise _BadDecisionError(
                f"job {name}: {placement.num_servers} parameter servers, but jobs of Slurm train without"
            )


def _check_row(state: ClusterState, row: int, placement: Placement) -> None:
    jobs, nodes = len(state.jobs), len(state.nodes)
    if not 0 <= row < jobs:
        raise _BadDecisionError(f"row {row} is no job: the snapshot has {jobs} jobs")
    if not placement.nodes or len(placement.nodes) != len(placement.gpus):
        raise _BadDecisionError(f"job {state.jobs.ids[row]}: a placement without nodes")
    if len(set(placement.nodes)) != len(placement.nodes):
        raise _BadDecisionError(f"job {state.jobs.ids[row]}: a node is named twice")
    if min(placement.nodes) < 0 or max(placement.nodes) >= nodes:
        raise _BadDecisionError(f"job {state.jobs.ids[row]}: a row without a node: the snapshot has {nodes} nodes")
    if min(placement.gpus) < 1:
        raise _BadDecisionError(f"job {state.jobs.ids[row]}: a node without GPUs")


def _stops(state: ClusterState, decision: Decision, spec: PolicySpec) -> tuple[Stop, ...]:
    """Return the stops of running jobs. The jobs must be preemptible, and the policy's description must say that it preempts."""
    stops = []
    for row, own in present_placements(state, state.running).items():
        wanted = decision.allocation.get(row)
        if wanted == own or (wanted is not None and wanted.gpu_masks and same_gpus(state, row, wanted, own)):
            continue
        doing = "stopped" if wanted is None else "moved"
        if not state.jobs.preemptible[row]:
            raise _BadDecisionError(f"job {state.jobs.ids[row]} runs and cannot be {doing}: it is not preemptible")
        if not spec.preempts:
            name = state.jobs.ids[row]
            raise _BadDecisionError(
                f"job {name} runs and would be {doing}, but {spec.name} describes itself as a policy without preemption"
            )
        stops.append(Stop(row, decision.reasons.get(row, "")[:_MAX_REASON], wanted))
    return tuple(stops)


def _check_move(state: ClusterState, stop: Stop, spec: PolicySpec) -> None:
    """Check the new placement of a running job.

    It keeps its number of GPUs, even if its own request would fit on no nodes, unless it is elastic and the policy resizes.
    """
    assert stop.placement is not None
    current = state.jobs.placement(stop.row)
    least, most = _sizes(state, stop.row, spec)
    if current is not None and stop.placement.num_gpus != current.num_gpus and least == most:
        name = state.jobs.ids[stop.row]
        raise _BadDecisionError(f"job {name}: {stop.placement.num_gpus} GPUs instead of {current.num_gpus}")
    _check_shape(state, stop.row, stop.placement, spec)
    _check_nodes(state, stop.row, stop.placement)


def _beside_those_that_stop(
    state: ClusterState, decision: Decision, plan: Plan, stops: tuple[Stop, ...], binds: Binds
) -> Plan:
    """Return the present plan: jobs that fit beside all running jobs start, in the policy's order; the others continue to
    wait."""
    free = _Free(state, binds)
    starts = tuple([start for start in plan.starts if free.take(start)])
    now = {start.row for start in starts}
    waits = {start.row: start for start in plan.starts if start.row not in now}
    until = _until(state, [stop.row for stop in stops])
    delayed = {row: f"{start.reason}; {until}".lstrip("; ") for row, start in waits.items()}
    known = waits.keys() | set(plan.queue)
    order = [row for row in decision.queue or state.pending.tolist() if row in known]
    queue = dict.fromkeys([*order, *waits])  # the policy may have left out jobs
    groups = _groups(state, waits.values(), stops)
    return Plan(starts, tuple(queue), {**plan.reasons, **delayed}, stops, groups, decision.guard, decision.outside)


def _groups(state: ClusterState, waits: Iterable[Start], stops: tuple[Stop, ...]) -> tuple[StopGroup, ...]:
    """Return the groups of stops, for starts that wait for them."""
    occupied = {row: own.nodes for row, own in present_placements(state, [stop.row for stop in stops]).items()}
    moves = {stop.row: stop.placement.nodes for stop in stops if stop.placement is not None}
    return stop_groups(occupied, [(start.row, start.placement.nodes) for start in waits], moves)


def _until(state: ClusterState, leaving: Iterable[int]) -> str:
    names = [state.jobs.ids[row] for row in sorted(leaving)]
    more = ", ..." if len(names) > _NAMED else ""
    stopping = f"job {names[0]} is" if len(names) == 1 else f"{len(names)} jobs ({', '.join(names[:_NAMED])}{more}) are"
    return f"waits until {stopping} stopped"


class _Free:
    """Capacity of the nodes beside all running jobs, and beside the starts that were taken so far."""

    def __init__(self, state: ClusterState, binds: Binds) -> None:
        self._jobs = state.jobs
        self._binds = binds
        self._left = NodeCapacity.beside_running(state)
        self._taken = taken_gpus(state, state.running.tolist())

    def take(self, start: Start) -> bool:
        """Take the resources of the job's placement if they are free. Returns whether they were."""
        where, gpus = np.array(start.placement.nodes), np.array(start.placement.gpus)
        cpus, memory = gpus * self._jobs.cpus_per_gpu[start.row], gpus * self._jobs.memory_mib_per_gpu[start.row]
        exclusive = bool(self._jobs.exclusive[start.row])
        left = self._left
        # A job without a request fits also where the others seem to use more than the node has: see `_check_capacity`.
        fits = (left.free_gpus[where] >= gpus) & ~left.sealed[where]
        fits &= (left.free_cpus[where] + _CPU_SLACK >= cpus) | (cpus <= 0)
        fits &= (left.free_memory_mib[where] + _MEMORY_SLACK_MIB >= memory) | (memory <= 0)
        if exclusive:
            fits &= left.jobs[where] == 0
        named = list(zip(start.placement.nodes, start.placement.gpu_masks, strict=False))
        if named and not self._binds(start.row, start.placement):
            named = []  # Slurm chooses among those that are free
        if not fits.all() or any(mask & self._taken.get(node, 0) for node, mask in named):
            return False
        for node, mask in named:
            self._taken[node] = self._taken.get(node, 0) | mask
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


def _sizes(state: ClusterState, row: int, spec: PolicySpec) -> tuple[int, int]:
    """Return the fewest and most GPUs that the policy may give to that job."""
    if not spec.resizes:
        return int(state.jobs.num_gpus[row]), int(state.jobs.num_gpus[row])
    least, most = state.jobs.sizes
    return int(least[row]), int(most[row])


def _doubtful_starts(state: ClusterState, entries: _Entries) -> list[tuple[int, Placement]]:
    """Return every start that `_check_shape` or `_check_nodes` would refuse."""
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
    fewest, largest = _sizes(state, row, spec)
    if not fewest <= placement.num_gpus <= largest:
        wanted = str(fewest) if fewest == largest else f"{fewest} to {largest}"
        raise _BadDecisionError(f"job {name}: {placement.num_gpus} GPUs instead of {wanted}")
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
        raise _BadDecisionError(f"job {state.jobs.ids[row]}: one of the chosen nodes is not eligible for it")


def _check_capacity(state: ClusterState, entries: _Entries, moved: Sequence[int]) -> None:
    """Check that no node's resources are exceeded: GPUs exactly, CPUs and memory where known, exclusive nodes for one job only.

    Nodes on which no job starts, and to which none is moved, are left out, because the jobs there run already. So are the CPUs
    and the memory of nodes where the new jobs need none. The jobs that run there may seem to use more than the node has: they
    count with their average per GPU, while Slurm may have given a node few GPUs and all the memory of `--mem`.
    """
    rows, nodes, gpus = (
        column.astype(np.int64) for column in (entries.rows[entries.owner], entries.nodes, entries.gpus)
    )
    new = (state.jobs.state[rows] == JobState.PENDING) | np.isin(rows, moved)

    def needed(per_gpu: FloatColumn) -> BoolColumn:
        """Return the nodes where the new jobs need some of this resource."""
        return np.bincount(nodes[new], weights=(gpus * per_gpu[rows])[new], minlength=len(state.nodes)) > 0

    jobs, touched = state.jobs, np.bincount(nodes[new], minlength=len(state.nodes)) > 0
    left = NodeCapacity.beside(state, rows, nodes, gpus)
    _refuse_overcommitted(state, touched & (left.free_gpus < 0), "GPUs")
    _refuse_overcommitted(state, needed(jobs.cpus_per_gpu) & (left.free_cpus < -_CPU_SLACK), "CPUs")
    _refuse_overcommitted(
        state, needed(jobs.memory_mib_per_gpu) & (left.free_memory_mib < -_MEMORY_SLACK_MIB), "memory"
    )
    _refuse_overcommitted(state, touched & left.sealed & (left.jobs > 1), "room: a job there is exclusive")


def _check_named_gpus(state: ClusterState, decision: Decision, spec: PolicySpec, stops: Sequence[Stop]) -> None:
    problem = named_gpus_problem(state, decision, spec, [stop.row for stop in stops])
    if problem:
        raise _BadDecisionError(problem)


def _refuse_overcommitted(state: ClusterState, over: BoolColumn, what: str) -> None:
    if over.any():
        node = int(np.flatnonzero(over)[0])
        raise _BadDecisionError(f"node {state.nodes.names[node]} has not enough {what}")
