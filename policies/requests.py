"""What jobs ask of nodes, worked out once per kind of job.

Thousands of waiting jobs ask for a few dozen different things. Jobs with equal requests share one *class*, and everything
that does not change while a decision is made (into which shares the job divides, which nodes it may use at all) is worked
out once per class.

How a job divides, consolidated (few nodes, each as full as can be):

- `Split.FIXED`: `gpus_per_node` on each of `min_nodes` nodes.
- `Split.EVEN`: the fewest nodes k, of `min_nodes` to `max_nodes`, that divide the job evenly and whose share nodes can hold.
- `Split.ANY`: with nodes of G GPUs, n div G whole nodes and one with the remainder. Where nodes differ, G is the largest
  size with which the job fits on the cluster when that is empty. When `min_nodes` asks for more nodes than that, the GPUs
  are spread over exactly `min_nodes` nodes, as evenly as they go.

"Can hold" looks at what available nodes have, not at what is free of it: a job that would fit on an empty cluster waits for
that division, it does not spread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policies.model import BoolColumn, ClusterState, IntColumn, Split

CPU_SLACK = 1e-6
"""CPUs that rounding may be off by."""
MEMORY_SLACK_MIB = 1e-3
"""MiB that rounding may be off by."""

Parts = tuple[tuple[int, int], ...]
"""(GPUs on each, how many nodes), larger shares first. Empty: the job fits on no state of this cluster."""


@dataclass(frozen=True, slots=True)
class Request:
    """What every job of one class asks for."""

    parts: Parts
    nodes: int
    """Bit n: node n is available, and the class may use it."""
    cpus_per_gpu: float
    memory_mib_per_gpu: float
    exclusive: bool
    limited: bool
    """CPUs or memory have to be looked at, node by node."""


def bitmask(members: BoolColumn) -> int:
    """Integer whose bit n is set when members[n] is true."""
    return int.from_bytes(np.packbits(members, bitorder="little").tobytes(), "little")


class Requests:
    """The classes of one cluster state: `keys[row]` names the class of a job, `of(row)` describes it.

    Invariant: two jobs have the same key exactly when nothing that placement looks at differs between them.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.keys: list[int] = _class_keys(state).tolist()
        self._known: dict[int, Request] = {}

    def of(self, row: int) -> Request:
        """What the job of that row asks for."""
        key = self.keys[row]
        request = self._known.get(key)
        if request is None:
            request = self._known[key] = self._describe(row)
        return request

    def _describe(self, row: int) -> Request:
        jobs, nodes = self._state.jobs, self._state.nodes
        allowed = nodes.available & (nodes.gpus > 0)
        node_set = int(jobs.node_set[row])
        if node_set >= 0:
            allowed = allowed & self._state.node_sets[node_set]
        cpus, memory = float(jobs.cpus_per_gpu[row]), float(jobs.memory_mib_per_gpu[row])
        usable = nodes.gpus
        limited = False
        for per_gpu, total, slack in ((cpus, nodes.cpus, CPU_SLACK), (memory, nodes.memory_mib, MEMORY_SLACK_MIB)):
            if per_gpu > 0 and bool((total[allowed] > 0).any()):
                limited = True
                usable = np.where(total > 0, np.minimum(usable, (total + slack) // per_gpu), usable)
        parts = divide(
            int(jobs.num_gpus[row]),
            Split(int(jobs.split[row])),
            int(jobs.min_nodes[row]),
            int(jobs.max_nodes[row]),
            int(jobs.gpus_per_node[row]),
            usable[allowed].astype(np.int64),
        )
        return Request(parts, bitmask(allowed), cpus, memory, bool(jobs.exclusive[row]), limited)


def divide(num_gpus: int, split: Split, min_nodes: int, max_nodes: int, gpus_per_node: int, usable: IntColumn) -> Parts:
    """Shares of a job on nodes that can hold `usable` GPUs of it each; empty when it fits in no way."""
    options: Iterable[Parts]
    max_nodes = min(max_nodes, len(usable))
    match split:
        case Split.FIXED:
            options = [((gpus_per_node, min_nodes),)] if gpus_per_node > 0 else []
        case Split.EVEN:
            options = (
                ((num_gpus // k, k),)
                for k in range(max(min_nodes, 1), min(max_nodes, num_gpus) + 1)
                if num_gpus % k == 0
            )
        case Split.ANY:
            options = _any_divisions(num_gpus, min_nodes, max_nodes, usable)
    descending = np.sort(usable)[::-1]
    return next((parts for parts in options if _fits_empty(parts, descending)), ())


def _any_divisions(num_gpus: int, min_nodes: int, max_nodes: int, usable: IntColumn) -> Iterable[Parts]:
    for size in np.unique(usable[usable > 0])[::-1].tolist():
        whole, rest = divmod(num_gpus, size)
        count = whole + (rest > 0)
        if count > max_nodes:
            return
        if count >= min_nodes:
            yield tuple(part for part in ((size, whole), (rest, 1)) if part[0] > 0 and part[1] > 0)
    if num_gpus >= min_nodes:
        share, larger = divmod(num_gpus, min_nodes)
        yield tuple(part for part in ((share + 1, larger), (share, min_nodes - larger)) if part[1] > 0)


def _fits_empty(parts: Parts, descending: IntColumn) -> bool:
    """Whether the shares, largest first, fit on the largest nodes."""
    total = 0
    for share, count in parts:
        total += count
        if total > len(descending) or descending[total - 1] < share:
            return False
    return total > 0


def _class_keys(state: ClusterState) -> npt.NDArray[np.int64]:
    """A number per job, equal exactly for jobs with equal requests: the columns as digits of one number."""
    jobs = state.jobs
    columns = (
        jobs.num_gpus,
        jobs.split,
        jobs.min_nodes,
        jobs.max_nodes,
        jobs.gpus_per_node,
        jobs.cpus_per_gpu,
        jobs.memory_mib_per_gpu,
        jobs.exclusive,
        jobs.node_set,
    )
    keys = np.zeros(len(jobs), dtype=np.int64)
    if len(jobs) == 0:
        return keys
    size = 1
    for column in columns:
        digits, base = _digits(column)
        if base == 1:
            continue
        if size > (1 << 62) // base:
            keys, size = _digits(keys, dense=True)
        keys = keys * base + digits
        size *= base
    return keys


def _digits(column: npt.NDArray[np.generic], *, dense: bool = False) -> tuple[npt.NDArray[np.int64], int]:
    """The column as integers from 0, and how many different ones there can be."""
    if bool((column == column[0]).all()):
        return np.zeros(len(column), dtype=np.int64), 1
    if column.dtype.kind == "f" or dense:
        values, digits = np.unique(column, return_inverse=True)
        return digits.astype(np.int64), len(values)
    integers = column.astype(np.int64)
    low, high = int(integers.min()), int(integers.max())
    if high - low > 1 << 20:
        return _digits(column, dense=True)
    return integers - low, high - low + 1
