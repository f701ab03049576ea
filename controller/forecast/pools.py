"""Pools of nodes with their queues, from a cluster state. Pure.

Jobs compete where they may use the same nodes. Sets of nodes that overlap make one pool, in which every job may use every node: a
job that may use only some of them is forecast as if it could use all. Jobs that Headway does not see keep their GPUs for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from policies.model import BoolColumn, ClusterState, IntColumn, JobState, Split
from policies.placement.requests import divide
from policies.rule import Discipline, Rule
from simulator.forecast.queue import Queue, QueueJobs

Request = tuple[int, int, int, int, int]
"""GPUs, way of dividing them, fewest and most nodes, and GPUs on each node."""


@dataclass(frozen=True, eq=False)
class Pool:
    """A pool of nodes, and its queue. `rows` are the rows in the state of the queue's jobs."""

    queue: Queue
    rows: IntColumn
    sizes: dict[Request, int]
    """Number of each size in `queue.parts`."""

    @property
    def waiting(self) -> IntColumn:
        """Rows in the state of the waiting jobs, in the order of a forecast."""
        return self.rows[~self.queue.jobs.running]


@dataclass(frozen=True, eq=False)
class Known:
    """Facts about the jobs of a state that are not in it; one entry per row in every column."""

    group: IntColumn
    """Number of the job's user."""
    kind: IntColumn
    """Number of its user, job name and GPUs."""
    limit_s: Sequence[float | None]
    ending: BoolColumn
    """True for a job whose work is done, and that Slurm still ends."""
    order: Sequence[int]
    """Rows of waiting jobs in the order in which the policy considers them; others come behind these."""


def pools_of(state: ClusterState, rule: Rule, known: Known, past_gpus: Sequence[int]) -> Iterator[Pool]:
    """Yield the pools in which jobs wait. Each knows the sizes of its jobs and of past jobs with so many GPUs."""
    rows = _ordered(state, rule, known.order)
    for members in _node_groups(state):
        found = _pool(state, members, rows, known, past_gpus)
        if len(found.waiting):
            yield found


def past_request(gpus: int) -> Request:
    """Return the request of a past job of which only the GPUs are known."""
    return gpus, int(Split.ANY), 1, gpus, 0


def _ordered(state: ClusterState, rule: Rule, order: Sequence[int]) -> IntColumn:
    """Return all rows in the order of ties: by submission for a rule that stops jobs, else running jobs before waiting ones."""
    if rule.discipline == Discipline.SELECT:
        return np.arange(len(state.jobs))
    pending = set(state.pending.tolist())
    waiting = dict.fromkeys(row for row in order if row in pending)
    rest = [row for row in state.pending.tolist() if row not in waiting]
    return np.array([*state.running.tolist(), *waiting, *rest], dtype=np.int64)


def _node_groups(state: ClusterState) -> list[BoolColumn]:
    """Return the nodes of each pool: sets of waiting jobs, joined where they overlap."""
    groups: list[BoolColumn] = []
    for number in sorted(set(state.jobs.node_set[state.pending].tolist())):
        members = np.ones(len(state.nodes), dtype=np.bool_) if number < 0 else state.node_sets[number].copy()
        apart = []
        for other in groups:
            if (members & other).any():
                members |= other
            else:
                apart.append(other)
        groups = [*apart, members]
    return groups


def _pool(state: ClusterState, members: BoolColumn, rows: IntColumn, known: Known, past_gpus: Sequence[int]) -> Pool:
    nodes = state.nodes
    numbers = np.flatnonzero(members)
    here = rows[_in_pool(state, members)[rows]]
    places = _places(state, here, np.cumsum(members) - 1, members)
    used = np.zeros(len(numbers), dtype=np.int64)
    for there, gpus in places.values():
        used[there] += gpus
    up = nodes.available[numbers]
    free = np.maximum(nodes.gpus[numbers] - nodes.foreign_gpus[numbers], 0)
    capacity = np.where(up, np.maximum(free, used), used)
    requests = _requests(state, here)
    kinds = dict.fromkeys([*requests, *map(past_request, past_gpus)])
    sizes = {request: number for number, request in enumerate(kinds)}
    usable = Counter(capacity[up].tolist())
    parts = [divide(one[0], Split(one[1]), one[2], one[3], one[4], usable) for one in sizes]
    size = np.array([sizes[request] for request in requests], dtype=np.int64)
    queue = Queue(
        state.time_s, tuple(capacity.tolist()), tuple(up.tolist()), parts, _jobs(state, here, known, size, places)
    )
    return Pool(queue, here, sizes)


def _in_pool(state: ClusterState, members: BoolColumn) -> BoolColumn:
    """Return which jobs occupy nodes of the pool, or wait for them."""
    jobs = state.jobs
    sets = np.append((state.node_sets & members).any(axis=1), members.any())  # the last one is that of -1: every node
    found = np.where(jobs.state == JobState.PENDING, sets[jobs.node_set], False)
    owner = np.repeat(np.arange(len(jobs)), np.diff(jobs.placement_offset))
    found[owner[members[jobs.placement_node]]] = True
    return np.asarray(found, dtype=np.bool_)


def _places(
    state: ClusterState, here: IntColumn, number: IntColumn, members: BoolColumn
) -> dict[int, tuple[list[int], list[int]]]:
    """Return nodes of the pool, by their number in it, and GPUs on each, of every job that runs; by its place in `here`."""
    jobs = state.jobs
    found = {}
    for place in np.flatnonzero(jobs.state[here] == JobState.RUNNING).tolist():
        begin, end = jobs.placement_offset[here[place] : here[place] + 2].tolist()
        nodes, gpus = jobs.placement_node[begin:end], jobs.placement_gpus[begin:end]
        inside = members[nodes]
        found[place] = number[nodes[inside]].tolist(), gpus[inside].tolist()
    return found


def _requests(state: ClusterState, rows: IntColumn) -> list[Request]:
    jobs = state.jobs
    columns = (jobs.num_gpus, jobs.split, jobs.min_nodes, jobs.max_nodes, jobs.gpus_per_node)
    return list(zip(*(column[rows].tolist() for column in columns), strict=True))


def _jobs(
    state: ClusterState,
    rows: IntColumn,
    known: Known,
    size: IntColumn,
    places: dict[int, tuple[list[int], list[int]]],
) -> QueueJobs:
    jobs = state.jobs
    limits = [np.nan if (limit := known.limit_s[row]) is None else limit for row in rows.tolist()]
    run_s = np.nan_to_num(np.maximum(state.time_s - jobs.start_time_s[rows], 0.0))
    return QueueJobs(
        gpus=jobs.num_gpus[rows],
        size=size,
        group=known.group[rows],
        kind=known.kind[rows],
        running=jobs.state[rows] == JobState.RUNNING,
        service_s=jobs.service_s[rows],
        attained_gpu_s=jobs.attained_gpu_s[rows],
        estimate_s=jobs.duration_estimate_s[rows],
        limit_s=np.array(limits, dtype=np.float64),
        fixed=~jobs.preemptible[rows],
        ending=known.ending[rows],
        places=places,
        earlier_s=np.maximum(jobs.service_s[rows] - run_s, 0.0),
    )
