"""Requests of jobs to nodes, computed once per kind of job.

Thousands of waiting jobs ask for a few dozen different things. Jobs with equal requests share one *class*, and everything
that does not change while a decision is made (into which shares the job divides, which nodes it may use at all) is worked
out once per class.

How a job divides, consolidated (few nodes, each as full as can be):

- `Split.FIXED`: `gpus_per_node` on each of `min_nodes` nodes.
- `Split.EVEN`: the fewest nodes k, of `min_nodes` to `max_nodes`, that divide the job evenly and whose share fits on nodes.
- `Split.ANY`: with nodes of G GPUs, n div G whole nodes and one with the remainder. Where nodes differ, G is the largest
  size with which the job fits on the cluster when that is empty. When no size gives a number of nodes that the job allows,
  its GPUs are spread over exactly `min_nodes` nodes, as evenly as possible.

"Fits" refers to all resources of available nodes, not to the free ones: a job that would fit on an empty cluster waits for
that division and is not spread over more nodes.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from policies.model import BoolColumn, ClusterState, Split

CPU_SLACK = 1e-6
"""Largest error of rounding, in CPUs."""
MEMORY_SLACK_MIB = 1e-3
"""Largest error of rounding, in MiB."""

Parts = tuple[tuple[int, int], ...]
"""(GPUs on each node, number of such nodes), larger shares first. Empty: the job never fits on this cluster."""


@dataclass(frozen=True, slots=True)
class Request:
    """The request that all jobs of one class share."""

    parts: Parts
    nodes: int
    """Bit n is set when node n is available and the class may use it."""
    cpus_per_gpu: float
    memory_mib_per_gpu: float
    exclusive: bool
    limited: bool
    """CPUs or memory limit the placement and must be checked on each node."""
    gpus: int
    min_nodes: int
    max_nodes: int
    split: Split


def bitmask(members: BoolColumn) -> int:
    """Return the integer whose bit n is set when members[n] is true."""
    return int.from_bytes(np.packbits(members, bitorder="little").tobytes(), "little")


def usable_gpus(gpus: int, cpus: float, memory_mib: float, cpus_per_gpu: float, memory_mib_per_gpu: float) -> int:
    """Return how many of a node's GPUs its CPUs and memory suffice for; infinite where the node does not limit them."""
    if cpus_per_gpu > 0 and cpus < math.inf:
        gpus = min(gpus, int((cpus + CPU_SLACK) // cpus_per_gpu))
    if memory_mib_per_gpu > 0 and memory_mib < math.inf:
        gpus = min(gpus, int((memory_mib + MEMORY_SLACK_MIB) // memory_mib_per_gpu))
    return gpus


def set_bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, rising."""
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit


class Requests:
    """The classes of one cluster state: `keys[row]` names the class of a job, `of(row)` describes it.

    Invariant: two jobs have the same key exactly when they agree in everything that placement depends on.

    Bound: the jobs of the state.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.keys: list[int] = _class_keys(state).tolist()
        self._known: dict[int, Request] = {}
        self._eligible: dict[int, _Eligible] = {}
        nodes = state.nodes
        kinds: dict[tuple[int, int, int], int] = {}
        described = zip(nodes.gpus.tolist(), nodes.cpus.tolist(), nodes.memory_mib.tolist(), strict=True)
        self._kind = np.array([kinds.setdefault(kind, len(kinds)) for kind in described], dtype=np.int64)
        self._kinds = list(kinds)

    def of(self, row: int) -> Request:
        """Return the request of the job of that row."""
        key = self.keys[row]
        request = self._known.get(key)
        if request is None:
            request = self._known[key] = self._describe(row)
        return request

    @property
    def state(self) -> ClusterState:
        """The state whose jobs these are."""
        return self._state

    def resized(self, sizes: Mapping[int, int]) -> Requests:
        """Return the same requests with other numbers of GPUs for the jobs of these rows. A job whose number changes shares a class
        only with jobs of its former class: jobs that become alike otherwise are not detected."""
        num_gpus = self._state.jobs.num_gpus.copy()
        num_gpus[list(sizes)] = list(sizes.values())
        twin = copy.copy(self)
        twin._state = replace(self._state, jobs=replace(self._state.jobs, num_gpus=num_gpus))
        twin.keys = self.keys.copy()
        before = self._state.jobs.num_gpus
        classes: dict[tuple[int, int], int] = {}
        lowest = min(self.keys, default=0)
        for row, size in sizes.items():
            if before[row] != size:
                twin.keys[row] = lowest - 1 - classes.setdefault((self.keys[row], size), len(classes))
        twin._known = self._known.copy()
        return twin

    def _describe(self, row: int) -> Request:
        jobs = self._state.jobs
        eligible = self._nodes_of_set(int(jobs.node_set[row]))
        cpus, memory = float(jobs.cpus_per_gpu[row]), float(jobs.memory_mib_per_gpu[row])
        usable: Counter[int] = Counter()
        limited = False
        for (node_gpus, node_cpus, node_memory), count in eligible.kinds:
            limited = limited or (cpus > 0 and node_cpus > 0) or (memory > 0 and node_memory > 0)
            usable[usable_gpus(node_gpus, node_cpus or math.inf, node_memory or math.inf, cpus, memory)] += count
        gpus, split = int(jobs.num_gpus[row]), Split(int(jobs.split[row]))
        low, high = int(jobs.min_nodes[row]), int(jobs.max_nodes[row])
        parts = divide(gpus, split, low, high, int(jobs.gpus_per_node[row]), usable)
        exclusive = bool(jobs.exclusive[row])
        return Request(parts, eligible.mask, cpus, memory, exclusive, limited, gpus, low, high, split)

    def _nodes_of_set(self, node_set: int) -> _Eligible:
        known = self._eligible.get(node_set)
        if known is None:
            nodes = self._state.nodes
            members = nodes.available & (nodes.gpus > 0)
            if node_set >= 0:
                members = members & self._state.node_sets[node_set]
            counts = np.bincount(self._kind[members], minlength=len(self._kinds)).tolist()
            kinds = [(kind, count) for kind, count in zip(self._kinds, counts, strict=True) if count]
            known = self._eligible[node_set] = _Eligible(bitmask(members), kinds)
        return known


@dataclass(frozen=True, slots=True)
class _Eligible:
    """Available nodes of one node set."""

    mask: int
    kinds: list[tuple[tuple[int, int, int], int]]
    """((GPUs, CPUs, memory in MiB), number of such nodes)."""


def divide(
    num_gpus: int, split: Split, min_nodes: int, max_nodes: int, gpus_per_node: int, usable: Mapping[int, int]
) -> Parts:
    """Return the shares of a job; empty when it cannot fit. `usable` maps a number of its GPUs to the nodes on which it fits."""
    max_nodes = min(max_nodes, sum(usable.values()))
    options: Iterable[Parts]
    match split:
        case Split.FIXED:
            options = [((gpus_per_node, min_nodes),)]
        case Split.EVEN:
            counts = range(min_nodes, min(max_nodes, num_gpus) + 1)
            options = (((num_gpus // count, count),) for count in counts if num_gpus % count == 0)
        case Split.ANY:
            options = _any_divisions(num_gpus, min_nodes, max_nodes, usable)
    return next((parts for parts in options if _fits_empty(parts, usable)), ())


def _any_divisions(num_gpus: int, min_nodes: int, max_nodes: int, usable: Mapping[int, int]) -> Iterable[Parts]:
    for size in sorted((size for size in usable if size > 0), reverse=True):
        whole, rest = divmod(num_gpus, size)
        count = whole + (rest > 0)
        if count > max_nodes:
            break
        if count >= min_nodes:
            yield tuple(part for part in ((size, whole), (rest, 1)) if part[0] > 0 and part[1] > 0)
    if min_nodes <= min(num_gpus, max_nodes):
        share, larger = divmod(num_gpus, min_nodes)
        yield tuple(part for part in ((share + 1, larger), (share, min_nodes - larger)) if part[1] > 0)


def _fits_empty(parts: Parts, usable: Mapping[int, int]) -> bool:
    """Return whether there are enough nodes for the shares, the largest first."""
    needed = 0
    for share, count in parts:
        needed += count
        if share <= 0 or needed > sum(nodes for size, nodes in usable.items() if size >= share):
            return False
    return needed > 0


def _class_keys(state: ClusterState) -> npt.NDArray[np.int64]:
    """Return a number per job, equal exactly for jobs with equal requests: the columns are digits of one number."""
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
    """Return the column as integers from 0, and an upper bound of the number of different ones."""
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
