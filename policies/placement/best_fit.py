"""Consolidated best fit: the placement rule that every policy here shares.

Each share of a job goes to the fitting node with the fewest free GPUs, the lowest index on ties; larger shares first, no two
shares on one node. How a job divides into shares is in `policies.placement.requests`. For nodes of G GPUs that means: a job of
at most G GPUs goes to its best fit; a larger one takes n div G whole empty nodes, lowest indices first, and its remainder goes
to the best fit among the others.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from policies.model import ClusterState, FloatColumn, IntColumn, Placement
from policies.placement.placement_text import nodes_text
from policies.placement.requests import (
    CPU_SLACK,
    MEMORY_SLACK_MIB,
    Parts,
    Request,
    Requests,
    bitmask,
    set_bits,
    usable_gpus,
)

Fit = tuple[tuple[int, int, int], ...]
"""(node, GPUs taken there, GPUs that were free there) for each share of a job."""
_NO_PARTS: Parts = ((1, 1 << 62),)
"""Stands for a job without parts, which fits nowhere."""


class Capacity:
    """Free resources of each node: a working copy that a policy fills while it decides.

    Nodes are kept by number of free GPUs, as integers whose bit n stands for node n: the best fit is the lowest bit of the
    first level that has one, in a handful of machine instructions. Capacity only shrinks between two `give_back`, so a
    class of jobs that found no place is not tried again before the next one.

    Invariants: bit n is set in exactly one level, the one of its free GPUs (0 when an exclusive job occupies the node); jobs
    once taken are given back with the same placement; `copy` shares nothing that changes.
    """

    def __init__(self, state: ClusterState, staying: IntColumn | None = None, requests: Requests | None = None) -> None:
        """Begin with all that foreign use and the running jobs in `staying` (rows; default: all that run) leave free."""
        self._requests = Requests(state) if requests is None else requests
        self._state = state
        nodes, jobs = state.nodes, state.jobs
        staying = state.running if staying is None else staying
        entry_job = np.repeat(np.arange(len(jobs)), np.diff(jobs.placement_offset))
        kept = np.zeros(len(jobs), dtype=np.bool_)
        kept[staying] = True
        entries = kept[entry_job]
        job, node, gpus = entry_job[entries], jobs.placement_node[entries], jobs.placement_gpus[entries]

        def used(weights: npt.NDArray[Any]) -> FloatColumn:
            return np.bincount(node, weights=weights, minlength=len(nodes)).astype(np.float64)

        free = nodes.gpus - nodes.foreign_gpus - used(gpus).astype(np.int64)
        cpus = nodes.cpus - nodes.foreign_cpus - used(gpus * jobs.cpus_per_gpu[job])
        memory = nodes.memory_mib - nodes.foreign_memory_mib - used(gpus * jobs.memory_mib_per_gpu[job])
        sealed = used(jobs.exclusive[job]).astype(np.int64)
        occupants = np.bincount(node, minlength=len(nodes))
        clean = (nodes.foreign_gpus == 0) & (nodes.foreign_cpus == 0) & (nodes.foreign_memory_mib == 0)

        self._free: list[int] = free.tolist()
        self._cpus: list[float] = np.where(nodes.cpus > 0, cpus, np.inf).tolist()
        self._memory: list[float] = np.where(nodes.memory_mib > 0, memory, np.inf).tolist()
        self._sealed: list[int] = sealed.tolist()
        self._occupants: list[int] = occupants.tolist()
        level = np.where(sealed > 0, 0, np.maximum(free, 0))
        top = int(nodes.gpus.max()) if len(nodes) else 0
        self._levels: list[int] = [bitmask(level == gpus) for gpus in range(top + 1)]
        """Bound: one for each number of GPUs of a node."""
        self._available = bitmask(nodes.available)
        self._clean = bitmask(clean)
        self._empty = bitmask(clean & (occupants == 0))
        self.racks: list[int] = nodes.rack.tolist()
        """Rack of each node."""
        self._failed: set[int] = set()
        """Bound: the classes of jobs of one state."""
        self._barred: dict[tuple[int, int], int] = {}
        """Bound: the classes of jobs of one state, and the sizes of their parts."""

    @property
    def state(self) -> ClusterState:
        """The state that this was made from."""
        return self._state

    @property
    def requests(self) -> Requests:
        """Requests of the state's jobs; may be given to another Capacity of the same state."""
        return self._requests

    @property
    def levels(self) -> Sequence[int]:
        """Nodes by number of free GPUs: bit n stands for node n."""
        return self._levels

    def may_lack_cpus_or_memory(self) -> bool:
        """Return whether there may be a node whose CPUs or memory do not suffice for jobs that share all of its free GPUs."""
        jobs = self._state.jobs
        cpus, memory_mib = float(jobs.cpus_per_gpu.max(initial=0.0)), float(jobs.memory_mib_per_gpu.max(initial=0.0))
        described = zip(map(self.free_gpus, range(len(self._free))), self._cpus, self._memory, strict=True)
        return any(free and (free * cpus > has or free * memory_mib > has_mib) for free, has, has_mib in described)

    def copy(self, requests: Requests | None = None) -> Self:
        """Return an independent copy; it costs a few microseconds per thousand nodes. `requests` replace those of this object;
        they must be made from them by `resized`."""
        twin = copy.copy(self)
        if requests is not None:
            twin._requests, twin._state = requests, requests.state
        for name in ("_free", "_cpus", "_memory", "_sealed", "_occupants", "_levels", "_failed", "_barred"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def free_gpus(self, node: int) -> int:
        """Return the GPUs of that node that a job could take (0 beside an exclusive job)."""
        return 0 if self._sealed[node] else max(0, self._free[node])

    def free(self, node: int) -> tuple[int, float, float]:
        """Return the GPUs, CPUs and MiB of that node that jobs could take; infinite where the node does not limit them."""
        return self.free_gpus(node), self._cpus[node], self._memory[node]

    def total_free(self) -> int:
        """Return the GPUs that jobs could take, on all available nodes together."""
        return sum(gpus * (nodes & self._available).bit_count() for gpus, nodes in enumerate(self._levels))

    def counts(self, row: int) -> list[int]:
        """Return how many nodes that the job may use have so many free GPUs, by their number; CPUs and memory do not count."""
        nodes = self._requests.of(row).nodes
        return [(level & nodes).bit_count() for level in self._levels]

    def has_slots(self, needed: Sequence[int]) -> bool:
        """Quick test: return False if shares that need so many slots cannot all be placed, however they are laid out.

        A slot of s GPUs is one of the free // s of a node; a share of g GPUs needs g // s of them, for every s.
        """
        counts = [(nodes & self._available).bit_count() for nodes in self._levels]
        return all(
            wanted <= sum(count * (free // gpus) for free, count in enumerate(counts) if count)
            for gpus, wanted in enumerate(needed[1:], 1)
            if wanted
        )

    def changes(self, row: int, placement: Placement) -> list[tuple[int, int, int]]:
        """Return (node, free GPUs now, free GPUs afterwards) for each available node whose free GPUs the placement would change."""
        exclusive = bool(self._state.jobs.exclusive[row])
        changes = []
        for node, gpus in placement.items():
            before = self.free_gpus(node) if self._available >> node & 1 else 0
            if before:
                changes.append((node, before, 0 if exclusive else max(0, before - gpus)))
        return changes

    def place(self, row: int) -> Placement | None:
        """Return where the job of that row would go now; None when it does not fit. Takes nothing."""
        key = self._requests.keys[row]
        if key in self._failed:
            return None
        fit = self._best_fit(key, self._requests.of(row))
        if fit is None:
            self._failed.add(key)
            return None
        return placement_of(fit)

    def claim(self, rows: Iterable[int], *, strict: bool = False) -> dict[int, Fit]:
        """Place these jobs one after the other, each taking what it gets; those that do not fit are left out.

        With `strict`, the first that does not fit is the last that is tried. Does what `place`, `fit` and `take` do for each job,
        without visiting the nodes three times.
        """
        requests, keys, failed = self._requests, self._requests.keys, self._failed
        fits: dict[int, Fit] = {}
        for row in rows:
            key = keys[row]
            if key not in failed:
                request = requests.of(row)
                fit = self._best_fit(key, request)
                if fit is not None:
                    self._occupy(fit, request)
                    fits[row] = fit
                    continue
                failed.add(key)
            if strict:
                break
        return fits

    def lay_out(self, rows: Iterable[int]) -> list[Fit] | None:
        """Return where these jobs would go, one after the other; None when one of them does not fit. Takes nothing."""
        levels = self._levels.copy()
        fits = []
        rows = list(rows)
        for row in rows:
            request = self._requests.of(row)
            if request.limited or request.exclusive:
                return self._lay_out_with_limits(rows)
            nodes, fit = request.nodes, []
            for share, count in request.parts or _NO_PARTS:
                missing = count
                for free in range(share, len(levels)):
                    while missing and (candidates := levels[free] & nodes):
                        bit = candidates & -candidates
                        levels[free] ^= bit
                        levels[free - share] ^= bit
                        nodes ^= bit
                        fit.append((bit.bit_length() - 1, share, free))
                        missing -= 1
                if missing:
                    return None
            fits.append(tuple(fit))
        return fits

    def _lay_out_with_limits(self, rows: list[int]) -> list[Fit] | None:
        """Return what `lay_out` returns, where CPUs, memory or exclusive use limit the placement."""
        fits = self.copy().claim(rows, strict=True)
        return list(fits.values()) if len(fits) == len(rows) else None

    def rooms(self, row: int) -> Iterator[tuple[int, int]]:
        """Yield (node, GPUs that the job could take there) where that is not 0: most first, lowest index on ties."""
        request = self._requests.of(row)
        nodes = request.nodes & self._empty if request.exclusive else request.nodes
        found = (
            (node, free)
            for free in range(len(self._levels) - 1, 0, -1)
            for node in set_bits(self._levels[free] & nodes)
        )
        if not request.limited:
            return found
        rooms = [(node, min(free, self._limit(node, request))) for node, free in found]
        return iter(sorted((entry for entry in rooms if entry[1] > 0), key=lambda entry: (-entry[1], entry[0])))

    def room(self, row: int, node: int) -> int:
        """Return the GPUs that the job could take on that node."""
        request = self._requests.of(row)
        if not request.nodes >> node & 1 or (request.exclusive and not self._empty >> node & 1):
            return 0
        free = self.free_gpus(node)
        return max(min(free, self._limit(node, request)), 0) if request.limited and free else free

    def _limit(self, node: int, request: Request) -> int:
        """Return the GPUs for which that node has CPUs and memory."""
        has = len(self._levels), self._cpus[node], self._memory[node]
        return usable_gpus(*has, request.cpus_per_gpu, request.memory_mib_per_gpu)

    def fit(self, placement: Placement) -> Fit:
        """Return the fit of a placement that is not yet taken."""
        return tuple((node, share, self.free_gpus(node)) for node, share in placement.items())

    def can_place_again(self, row: int, placement: Placement) -> bool:
        """Return whether a job that is there now could stay beside those that occupy the rest; its nodes need not be available, nor
        be ones where it could start: so their CPUs and memory count even if those of the others do not limit it."""
        request = self._requests.of(row)
        for node, gpus in zip(placement.nodes, placement.gpus, strict=True):
            if gpus > self.free_gpus(node) or (request.exclusive and self._occupants[node]):
                return False
            if gpus > self._limit(node, request):
                return False
        return True

    def take(self, row: int, placement: Placement) -> None:
        """Let the job of that row occupy these GPUs (an exclusive job: the whole nodes)."""
        request = self._requests.of(row)
        for node, gpus in zip(placement.nodes, placement.gpus, strict=True):
            self._change(node, gpus, 1, request)

    def seal(self, nodes: Iterable[int]) -> None:
        """Let no further job use these nodes. Jobs that are there may stay, but not come back."""
        for node in nodes:
            bit, before = 1 << node, self.free_gpus(node)
            self._sealed[node] += 1
            if before:
                self._levels[before] ^= bit
                self._levels[0] ^= bit

    def give_back(self, row: int, placement: Placement) -> None:
        """Free these GPUs, which the job of that row had."""
        request = self._requests.of(row)
        for node, gpus in zip(placement.nodes, placement.gpus, strict=True):
            self._change(node, -gpus, -1, request)
        self._failed.clear()
        self._barred.clear()

    def _change(self, node: int, gpus: int, jobs: int, request: Request) -> None:
        bit = 1 << node
        before = self.free_gpus(node)
        self._free[node] -= gpus
        self._cpus[node] -= gpus * request.cpus_per_gpu
        self._memory[node] -= gpus * request.memory_mib_per_gpu
        self._occupants[node] += jobs
        if request.exclusive:
            self._sealed[node] += jobs
        after = self.free_gpus(node)
        if after != before:
            self._levels[before] ^= bit
            self._levels[after] ^= bit
        if self._occupants[node]:
            self._empty &= ~bit
        else:
            self._empty |= bit & self._clean

    def _occupy(self, fit: Fit, request: Request) -> None:
        """Do what `_change` does, for every share of a job that was found to fit just now: its levels are those in the fit."""
        levels, exclusive, occupants = self._levels, request.exclusive, self._occupants
        for node, share, free in fit:
            bit = 1 << node
            self._free[node] -= share
            self._cpus[node] -= share * request.cpus_per_gpu
            self._memory[node] -= share * request.memory_mib_per_gpu
            if exclusive:
                self._sealed[node] += 1
            if not occupants[node]:
                self._empty &= ~bit
            occupants[node] += 1
            levels[free] ^= bit
            levels[0 if exclusive else free - share] ^= bit

    def _best_fit(self, key: int, request: Request) -> Fit | None:
        nodes = request.nodes & self._empty if request.exclusive else request.nodes
        levels, limited = self._levels, request.limited
        has_cpus, has_memory_mib = self._cpus, self._memory
        chosen: list[tuple[int, int, int]] = []
        for share, count in request.parts:
            barred = self._barred.get((key, share), 0)
            allowed = nodes & ~barred if barred else nodes
            # A job that asks for none fits beside any use of them.
            cpus = share * request.cpus_per_gpu or -math.inf
            memory_mib = share * request.memory_mib_per_gpu or -math.inf
            missing = count
            for free in range(share, len(levels)):
                candidates = levels[free] & allowed
                while candidates:
                    bit = candidates & -candidates
                    node = bit.bit_length() - 1
                    candidates ^= bit
                    if limited and (
                        cpus > has_cpus[node] + CPU_SLACK or memory_mib > has_memory_mib[node] + MEMORY_SLACK_MIB
                    ):
                        self._barred[key, share] = self._barred.get((key, share), 0) | bit
                        continue
                    chosen.append((node, share, free))
                    nodes ^= bit
                    missing -= 1
                    if not missing:
                        break
                if not missing:
                    break
            if missing:
                return None
        return tuple(chosen) or None


def free_gpus(state: ClusterState, staying: IntColumn) -> int:
    """Return what `Capacity(state, staying).total_free()` returns, without making a Capacity."""
    nodes, jobs = state.nodes, state.jobs
    offset = jobs.placement_offset
    kept = np.zeros(len(jobs), dtype=np.bool_)
    kept[staying] = True
    entries = np.repeat(kept, offset[1:] - offset[:-1])
    node = jobs.placement_node[entries]
    free = nodes.gpus - nodes.foreign_gpus
    np.subtract.at(free, node, jobs.placement_gpus[entries])
    exclusive = staying[jobs.exclusive[staying]]
    for row in exclusive.tolist():
        free[jobs.placement_node[offset[row] : offset[row + 1]]] = 0
    return int(np.maximum(free, 0)[nodes.available].sum())


def placement_of(fit: Fit) -> Placement:
    """Return the placement that a fit describes."""
    if len(fit) == 1:
        ((node, share, _),) = fit
        return Placement((node,), (share,))
    nodes, gpus, _ = zip(*sorted(fit), strict=True)
    return Placement(nodes, gpus)


def explain(state: ClusterState, fit: Fit) -> str:
    """Return a short reason for a placement."""
    names = state.nodes.names
    if len(fit) == 1:
        ((node, _, free),) = fit
        return f"best fit: node {names[node]} had {free} {'GPU' if free == 1 else 'GPUs'} free"
    placement = placement_of(fit)
    return f"consolidated: {placement.num_gpus} GPUs on {nodes_text(state, placement)}"
