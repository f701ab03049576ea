"""From a policy's decision to the steps that Slurm is to carry out, or to the reason why the decision is refused.

A pure function, printable and testable. A policy may ask for anything; nothing reaches Slurm that does not fit the nodes,
the jobs' own constraints, and what the policy said of itself. A bad decision is refused whole: a policy that is wrong about
one job is not to be trusted with the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import BoolColumn, ClusterState, IntColumn, JobState, Placement, Split

_MAX_REASON = 200
_MEMORY_SLACK_MIB = 1.0
_CPU_SLACK = 1e-3


@dataclass(frozen=True, slots=True)
class Start:
    """Start a waiting job on these nodes."""

    row: int
    placement: Placement
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps from the current to the wanted allocation, in the order in which they are carried out."""

    starts: tuple[Start, ...]
    queue: tuple[int, ...]
    """Waiting jobs in the policy's order, those to be started left out."""
    reasons: Mapping[int, str] = field(default_factory=dict)
    """What the policy says of jobs that go on waiting."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a decision is refused."""

    reason: str


class _BadDecisionError(Exception):
    """Carries the reason out of the checks below."""


def make_plan(state: ClusterState, decision: Decision, spec: PolicySpec) -> Plan | Rejection:
    """Check the decision against the state and the policy's spec, and work out the steps."""
    try:
        _check_rows(state, decision)
        _check_running(state, decision)
        starts = _starts(state, decision, spec)
        _check_capacity(state, decision)
    except _BadDecisionError as error:
        return Rejection(str(error))
    started = {start.row for start in starts}
    queue = tuple(row for row in _queue(state, decision) if row not in started)
    reasons = {row: decision.reasons[row][:_MAX_REASON] for row in decision.reasons.keys() & set(queue)}
    return Plan(starts=starts, queue=queue, reasons=reasons)


def _check_rows(state: ClusterState, decision: Decision) -> None:
    jobs, nodes = len(state.jobs), len(state.nodes)
    for row, placement in decision.allocation.items():
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
    for row in decision.queue:
        if not 0 <= row < jobs:
            raise _BadDecisionError(f"the queue names row {row}, which is no job")


def _check_running(state: ClusterState, decision: Decision) -> None:
    """Running jobs keep their place: none is preemptible unless the snapshot says so, and then this cluster must act on it."""
    for row in state.running.tolist():
        wanted = decision.allocation.get(row)
        if wanted != state.jobs.placement(row):
            doing = "stopped" if wanted is None else "moved"
            raise _BadDecisionError(f"job {state.jobs.ids[row]} runs and cannot be {doing}: it is not preemptible")


def _starts(state: ClusterState, decision: Decision, spec: PolicySpec) -> tuple[Start, ...]:
    pending = state.jobs.state == JobState.PENDING
    starts = []
    for row, placement in decision.allocation.items():
        if pending[row]:
            _check_shape(state, row, placement, spec)
            _check_nodes(state, row, placement)
            reason = decision.reasons.get(row, "")[:_MAX_REASON]
            starts.append(Start(row, placement, reason))
    position = {row: place for place, row in enumerate(decision.queue)}
    starts.sort(key=lambda start: (position.get(start.row, len(position)), start.row))
    return tuple(starts)


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


def _check_capacity(state: ClusterState, decision: Decision) -> None:
    """No node gives more than it has: GPUs exactly, CPUs and memory where known, exclusive nodes to one job only."""
    rows, nodes, gpus = _flat(decision.allocation.items())
    jobs, table = state.jobs, state.nodes
    count = len(table)
    used = np.bincount(nodes, weights=gpus, minlength=count).astype(np.int64) + table.foreign_gpus
    new = jobs.state[rows] == JobState.PENDING
    touched = np.bincount(nodes[new], minlength=count) > 0
    _refuse_overcommitted(state, touched & (used > table.gpus), "GPUs")
    cpus = np.bincount(nodes, weights=gpus * jobs.cpus_per_gpu[rows], minlength=count) + table.foreign_cpus
    over = touched & (table.cpus > 0) & (cpus > table.cpus + _CPU_SLACK)
    _refuse_overcommitted(state, over, "CPUs")
    memory = np.bincount(nodes, weights=gpus * jobs.memory_mib_per_gpu[rows], minlength=count)
    over = touched & (table.memory_mib > 0) & (memory + table.foreign_memory_mib > table.memory_mib + _MEMORY_SLACK_MIB)
    _refuse_overcommitted(state, over, "memory")
    holders = np.bincount(nodes, minlength=count) + (table.foreign_gpus > 0)
    alone = np.zeros(count, dtype=np.bool_)
    alone[nodes[jobs.exclusive[rows]]] = True
    _refuse_overcommitted(state, touched & alone & (holders > 1), "room: a job there is exclusive")


def _flat(
    allocation: Iterable[tuple[int, Placement]],
) -> tuple[IntColumn, IntColumn, IntColumn]:
    """(job row, node, GPUs) of every entry, as three columns."""
    rows: list[int] = []
    nodes: list[int] = []
    gpus: list[int] = []
    for row, placement in allocation:
        rows.extend([row] * len(placement.nodes))
        nodes.extend(placement.nodes)
        gpus.extend(placement.gpus)
    return np.array(rows, dtype=np.int64), np.array(nodes, dtype=np.int64), np.array(gpus, dtype=np.int64)


def _refuse_overcommitted(state: ClusterState, over: BoolColumn, what: str) -> None:
    if over.any():
        node = int(np.flatnonzero(over)[0])
        raise _BadDecisionError(f"node {state.nodes.names[node]} has not enough {what}")


def _queue(state: ClusterState, decision: Decision) -> tuple[int, ...]:
    """The policy's order of waiting jobs, or the order of submission where it gives none."""
    return decision.queue or tuple(state.pending.tolist())
