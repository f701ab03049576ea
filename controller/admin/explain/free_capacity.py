"""Free capacity for a waiting job, and what is missing for it: the numbers behind `headway why`. Pure functions of one state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from controller.cycle.decision.node_capacity import NodeCapacity
from policies.model import BoolColumn, ClusterState, FloatColumn, IntColumn, Placement, Split
from policies.placement.requests import CPU_SLACK, MEMORY_SLACK_MIB, Parts, Requests

_LISTED_NODES = 32


@dataclass(frozen=True, slots=True)
class Fit:
    """How one job fits on the free capacity."""

    nodes_allowed: int
    """Nodes that it may use by partition, features, GPU type, reservations and node lists."""
    nodes_available: int
    """Nodes among these that may start jobs now."""
    free: tuple[tuple[str, int], ...]
    """Available nodes with the free GPUs that this job could use, most first; at most 32."""
    free_total: int
    parts: Parts
    """GPUs on each node, and number of such nodes, of the division on the fewest nodes. Empty: the job does not fit even on empty
    nodes."""
    share_nodes: int
    """Number of nodes on which its largest share fits now."""
    fits: bool
    """True when that division fits now."""
    fits_spread: bool
    """True when some permitted division on more nodes would fit now."""
    short_of: str
    """"CPUs" or "memory" when only they are missing for that division; else empty."""

    @property
    def largest(self) -> tuple[str, int] | None:
        """Node with the most free GPUs for this job; None when none are free anywhere."""
        return self.free[0] if self.free and self.free[0][1] > 0 else None

    @property
    def needs_nodes(self) -> int:
        """Number of nodes of the division on the fewest nodes."""
        return sum(count for _, count in self.parts)


class FreeCapacity:
    """Capacity that running jobs, foreign jobs and jobs placed just now do not use.

    Invariant: two jobs of one class (`policies.placement.requests`) share one `Fit`, so that ten thousand jobs cost little.

    Bound: lives as long as the view of one cycle.
    """

    def __init__(self, state: ClusterState, placed: Iterable[tuple[int, Placement]] = ()) -> None:
        """`placed`: rows and placements of waiting jobs that were started after the state was read."""
        self._state = state
        self._requests = Requests(state)
        self._fits: dict[int, Fit] = {}
        self._fits_empty: dict[tuple[int, bytes], bool] = {}
        jobs, nodes = state.jobs, state.nodes
        extra = [(row, node, gpus) for row, placement in placed for node, gpus in placement.items()]
        added = np.array(extra, dtype=np.int64).reshape(-1, 3)
        row = np.concatenate([np.repeat(np.arange(len(jobs)), np.diff(jobs.placement_offset)), added[:, 0]])
        node = np.concatenate([jobs.placement_node, added[:, 1]])
        gpus = np.concatenate([jobs.placement_gpus, added[:, 2]])
        left = NodeCapacity.beside(state, row, node, gpus)
        self.used_gpus: IntColumn = nodes.gpus - left.free_gpus
        self._free_cpus, self._free_memory = left.free_cpus, left.free_memory_mib
        self._empty: BoolColumn = left.jobs == 0
        self._free_gpus: IntColumn = np.where(left.sealed, 0, np.maximum(left.free_gpus, 0))

    def fit(self, row: int) -> Fit:
        """Return how the waiting job of that row fits now."""
        key = self._requests.keys[row]
        found = self._fits.get(key)
        if found is None:
            found = self._fits[key] = self._compute(row)
        return found

    def fits_empty(self, row: int, nodes: BoolColumn) -> bool:
        """Return whether the job of that row would fit on these nodes if they were empty, whatever its node set."""
        key = self._requests.keys[row], nodes.tobytes()
        found = self._fits_empty.get(key)
        if found is None:
            state = self._state
            node_set = np.full_like(state.jobs.node_set, len(state.node_sets))
            node_sets = np.vstack([state.node_sets.reshape(-1, len(nodes)), nodes])
            there = replace(state, jobs=replace(state.jobs, node_set=node_set), node_sets=node_sets)
            found = self._fits_empty[key] = bool(Requests(there).of(row).parts)
        return found

    def _compute(self, row: int) -> Fit:
        state, jobs = self._state, self._state.jobs
        node_set = int(jobs.node_set[row])
        everywhere = np.ones(len(state.nodes), dtype=np.bool_)
        allowed = state.node_sets[node_set] if node_set >= 0 else everywhere
        usable = allowed & state.nodes.available
        free, free_gpus = self._free_for(row, usable), self._free_gpus_for(row, usable)
        request = self._requests.of(row)
        parts = request.parts
        fits = _parts_fit(parts, free)
        order = np.argsort(-free, kind="stable")
        order = order[usable[order]][:_LISTED_NODES]
        return Fit(
            nodes_allowed=int(allowed.sum()),
            nodes_available=int(usable.sum()),
            free=tuple((state.nodes.names[node], int(free[node])) for node in order.tolist()),
            free_total=int(free.sum()),
            parts=parts,
            share_nodes=int((free >= parts[0][0]).sum()) if parts else 0,
            fits=fits,
            fits_spread=fits or _spread_fits(state, row, free),
            short_of="" if fits or not _parts_fit(parts, free_gpus) else self._shortage(row, parts, free_gpus),
        )

    def _free_gpus_for(self, row: int, usable: BoolColumn) -> IntColumn:
        """Return the free GPUs on each node, with no regard to CPUs and memory."""
        if self._state.jobs.exclusive[row]:
            usable = usable & self._empty
        return np.where(usable, self._free_gpus, 0)

    def _free_for(self, row: int, usable: BoolColumn) -> IntColumn:
        """Return the GPUs on each node that are free, with the CPUs and the memory that the job needs for each GPU."""
        free = self._free_gpus_for(row, usable)
        free = np.minimum(free, self._by_cpus(row, free))
        return np.maximum(np.minimum(free, self._by_memory(row, free)), 0)

    def _by_cpus(self, row: int, otherwise: IntColumn) -> IntColumn:
        per_gpu = float(self._state.jobs.cpus_per_gpu[row])
        return _whole(self._free_cpus, per_gpu, CPU_SLACK, self._state.nodes.cpus, otherwise)

    def _by_memory(self, row: int, otherwise: IntColumn) -> IntColumn:
        per_gpu = float(self._state.jobs.memory_mib_per_gpu[row])
        return _whole(self._free_memory, per_gpu, MEMORY_SLACK_MIB, self._state.nodes.memory_mib, otherwise)

    def _shortage(self, row: int, parts: Parts, free_gpus: IntColumn) -> str:
        """Return which of the two is missing, for a job whose GPUs are free."""
        if not _parts_fit(parts, np.minimum(free_gpus, self._by_cpus(row, free_gpus))):
            return "CPUs"
        return "memory"


def _whole(free: FloatColumn, per_gpu: float, slack: float, total: IntColumn, otherwise: IntColumn) -> IntColumn:
    """Return the number of GPUs for which so much of a resource is enough; `otherwise` where it sets no limit."""
    if per_gpu <= 0:
        return otherwise
    enough: IntColumn = np.where(total > 0, np.floor((free + slack) / per_gpu), otherwise).astype(np.int64)
    return enough


def _parts_fit(parts: Parts, free: IntColumn) -> bool:
    """Return whether the shares, largest first, fit on the nodes with the most free GPUs."""
    descending = np.sort(free)[::-1]
    total = 0
    for share, count in parts:
        total += count
        if total > len(descending) or descending[total - 1] < share:
            return False
    return total > 0


def _spread_fits(state: ClusterState, row: int, free: IntColumn) -> bool:
    """Return whether the job fits on as many nodes as it permits."""
    jobs = state.jobs
    total, least, most = (int(column[row]) for column in (jobs.num_gpus, jobs.min_nodes, jobs.max_nodes))
    most = min(most, len(free))
    match Split(int(jobs.split[row])):
        case Split.EVEN:
            counts = (nodes for nodes in range(max(least, 1), most + 1) if total % nodes == 0)
            return any(int((free >= total // nodes).sum()) >= nodes for nodes in counts)
        case Split.ANY:
            largest = np.sort(free)[::-1][:most]
            return int((largest > 0).sum()) >= least and int(largest.sum()) >= total
        case _:
            return False
