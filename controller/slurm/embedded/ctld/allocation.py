"""Allocation of nodes and their resources to a request: the arithmetic of Slurm's cons_tres. Pure.

A node's free part is a `Capacity`; what a job would take of it is a `NodeShare`. As Slurm does, a --gpus or --gpus-per-task
job fills the first node and leaves at least one GPU or task for each of the others; --ntasks-per-node caps the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from controller.slurm.model.job import NodeShare, ResourceRequest


@dataclass(frozen=True, slots=True)
class Capacity:
    """Free resources of a node. `whole` means that no job runs there."""

    gpu_mask: int
    cpus: int
    memory_mib: int
    whole: bool

    @property
    def gpus(self) -> int:
        """Free GPUs."""
        return self.gpu_mask.bit_count()

    def less(self, share: NodeShare) -> Capacity:
        """Return the capacity that remains after a job has taken this share."""
        return Capacity(
            self.gpu_mask & ~share.gpu_mask, self.cpus - share.cpus, self.memory_mib - share.memory_mib, False
        )


@dataclass(frozen=True, slots=True)
class _Unit:
    """The smallest part that a request can be cut into: a GPU of the job, a task, or a node's worth."""

    gpus: int
    cpus: int


def lowest_bits(mask: int, count: int) -> int:
    """Return the lowest `count` bits that are set."""
    chosen = 0
    for _ in range(count):
        bit = mask & -mask
        chosen |= bit
        mask ^= bit
    return chosen


def allocate(
    request: ResourceRequest,
    exclusive: bool,
    free: Mapping[str, Capacity],
    default_memory_mib_per_cpu: int = 0,
    gpu_masks: Mapping[str, int] = MappingProxyType({}),
) -> tuple[NodeShare, ...] | None:
    """Return the request's share of the free nodes, in their order; None when it does not fit.

    `free` contains only nodes that the job may use. The fewest nodes that suffice are taken. `gpu_masks` names GPUs of some nodes:
    the job takes exactly these there.
    """
    usable = {
        name: capacity
        for name, capacity in free.items()
        if name not in request.excluded_nodes and (capacity.whole or not exclusive)
        if not gpu_masks.get(name, 0) & ~capacity.gpu_mask
    }
    if any(name not in usable for name in request.required_nodes):
        return None
    least = max(request.min_nodes, len(request.required_nodes), 1)
    for count in range(least, min(_most_nodes(request, least, len(usable)), len(usable)) + 1):
        shares = _on(count, request, exclusive, usable, default_memory_mib_per_cpu)
        if shares is not None:
            return tuple([replace(share, gpu_mask=gpu_masks.get(share.node, share.gpu_mask)) for share in shares])
    return None


def _most_nodes(request: ResourceRequest, least: int, usable: int) -> int:
    if request.max_nodes:
        return request.max_nodes
    grows = request.gpus_per_job or request.gpus_per_task or request.num_tasks > request.min_nodes
    return min(usable, request.gpus_per_job or request.num_tasks) if grows else least


def _on(
    count: int, request: ResourceRequest, exclusive: bool, usable: Mapping[str, Capacity], memory_per_cpu: int
) -> tuple[NodeShare, ...] | None:
    """Return shares of exactly `count` nodes; None when the request does not fit on them."""
    unit, units = _cut(request, count)
    limits = {
        name: _units_that_fit(request, unit, count, capacity, memory_per_cpu) for name, capacity in usable.items()
    }
    chosen = _choose(count, units, request.required_nodes, limits)
    if chosen is None:
        return None
    portions = _spread(units, [limits[name] for name in chosen])
    return tuple(
        _share(name, portion, request, unit, count, exclusive, usable[name], memory_per_cpu)
        for name, portion in zip(chosen, portions, strict=True)
    )


def _cut(request: ResourceRequest, count: int) -> tuple[_Unit, int]:
    tasks = max(request.num_tasks, count)
    cpus_per_task = max(request.num_cpus // max(request.num_tasks, 1), 1)
    if request.gpus_per_job is not None:
        return _Unit(gpus=1, cpus=0), request.gpus_per_job
    return _Unit(gpus=request.gpus_per_task or 0, cpus=cpus_per_task), tasks


def _cpus_beside(request: ResourceRequest, unit: _Unit, count: int) -> int:
    """Return the CPUs of a node that do not depend on its units: an even part, for jobs that are divided by GPUs."""
    return 0 if unit.cpus else -(-max(request.num_cpus, count) // count)


def _memory(request: ResourceRequest, cpus: int, memory_per_cpu: int) -> int:
    if request.memory_mib_per_node is not None:
        return request.memory_mib_per_node
    return cpus * (request.memory_mib_per_cpu if request.memory_mib_per_cpu is not None else memory_per_cpu)


def _units_that_fit(request: ResourceRequest, unit: _Unit, count: int, capacity: Capacity, memory_per_cpu: int) -> int:
    """Return the maximum number of units that a node can take."""
    base_cpus = _cpus_beside(request, unit, count)
    if capacity.cpus < base_cpus or capacity.gpus < (request.gpus_per_node or 0):
        return 0
    if _memory(request, base_cpus, memory_per_cpu) > capacity.memory_mib:
        return 0
    units = max(request.num_tasks, request.gpus_per_job or 0, count)
    if unit.cpus and request.tasks_per_node:
        units = min(units, request.tasks_per_node)
    if unit.gpus:
        units = min(units, capacity.gpus // unit.gpus)
    if unit.cpus:
        units = min(units, capacity.cpus // unit.cpus)
        if request.memory_mib_per_node is None and (per_cpu := _memory(request, 1, memory_per_cpu)):
            units = min(units, capacity.memory_mib // (per_cpu * unit.cpus))
    return units


def _choose(count: int, units: int, required: Sequence[str], limits: Mapping[str, int]) -> list[str] | None:
    """Return `count` nodes that take all units together: the required ones, then those that take most, in the cluster's order."""
    if units < count or any(limits[name] < 1 for name in required):
        return None
    others = [name for name, limit in limits.items() if limit >= 1 and name not in required]
    even = -(-units // count)
    others.sort(key=lambda name: -min(limits[name], even))  # stable: the first of equals
    chosen = {*required, *others[: count - len(required)]}
    if len(chosen) != count or sum(limits[name] for name in chosen) < units:
        chosen = _roomiest(count, required, limits)
        if len(chosen) != count or sum(limits[name] for name in chosen) < units:
            return None
    return [name for name in limits if name in chosen]


def _roomiest(count: int, required: Iterable[str], limits: Mapping[str, int]) -> set[str]:
    needed = set(required)
    others = sorted((n for n, limit in limits.items() if limit >= 1 and n not in needed), key=lambda n: -limits[n])
    return needed | set(others[: count - len(needed)])


def _spread(units: int, limits: Sequence[int]) -> list[int]:
    """Return the units of each node: one for every node, the rest filled in from the first."""
    portions = [1] * len(limits)
    left = units - len(limits)
    for index, limit in enumerate(limits):
        extra = min(limit - 1, left)
        portions[index] += extra
        left -= extra
    return portions


def _share(
    name: str,
    portion: int,
    request: ResourceRequest,
    unit: _Unit,
    count: int,
    exclusive: bool,
    capacity: Capacity,
    memory_per_cpu: int,
) -> NodeShare:
    if exclusive:
        return NodeShare(name, capacity.gpus, capacity.gpu_mask, capacity.cpus, capacity.memory_mib)
    gpus = request.gpus_per_node if request.gpus_per_node is not None else portion * unit.gpus
    cpus = portion * unit.cpus + _cpus_beside(request, unit, count)
    return NodeShare(name, gpus, lowest_bits(capacity.gpu_mask, gpus), cpus, _memory(request, cpus, memory_per_cpu))
