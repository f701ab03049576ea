"""Binding of jobs to GPUs by index, on nodes where each GPU has a GRES type of its own: g0, g1, ... Pure.

What Slurm 22.05.8 does with the GPUs of a held job, measured:

- It refuses a request by type while the request without a type stands in the same unit ("with and without type identification").
  One update may take GPUs away by node and ask for them by job, or the reverse: then it accepts the types.
- Types that an update names are added to those that the job asked for in the same unit before, although the job shows only the new
  ones; a number of 0 takes none away. A job that showed two GPUs was given four. An update that changes the unit replaces them.
- A job that once asked for GPUs by type gets no request without types any more, in no unit, and not after a restart of slurmctld.
- By node, every node has the same types. By job, g3:2 on two nodes is the GPU 3 of each.

So each change of the GPUs changes the unit too, and at no time does the job ask for other than all of its GPUs. A bound job stays
bound: it can get other indices, and Slurm can place it, but only on GPUs with these indices and on as many nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.slurm.client import Pin
from controller.slurm.model.cluster import SlurmNode
from controller.slurm.model.job import ResourceRequest, SlurmJob
from controller.slurm.records import OLDER_GRES, JobRecord

_MOST_GPUS = 64


def is_bound(record: JobRecord, original: ResourceRequest) -> bool:
    """Return whether the job asks for GPUs by index because Headway bound it: its user's own request has no such types."""
    return bool(record.gpus_by_index) and not (original.gpus_fixed or original.gpu_type)


def may_bind(record: JobRecord, pin: Pin) -> bool:
    """Return whether Slurm takes the GPUs of this pin for this job; whether the nodes have them is for `IndexedGpus`."""
    original, masks = pin.original, set(pin.gpu_masks)
    number = pin.gpus_per_node
    by_count = not (original.gpus_fixed or original.gpu_type or original.gpus_per_task or original.gpus_per_socket)
    same_everywhere = len(masks) == 1 and number is not None and max(masks).bit_count() == number > 0
    tried = record.gres_prefix == OLDER_GRES  # newer releases have not been tried
    return tried and by_count and same_everywhere and not pin.resized and len(pin.gpu_masks) == len(pin.nodes)


def binding_words(record: JobRecord, request: ResourceRequest, pin: Pin) -> list[str]:
    """Return the words of the next update that binds the job to the GPUs of its pin; empty when it asks for exactly these.

    `request`: the job's present one. The first binding of a job of --gres or --gpus-per-node takes two updates.
    """
    indices, count = indices_of(pin.gpu_masks[0]), len(pin.nodes)
    by_job = request.gpus_per_node is None
    if record.gpus_by_index == tuple((index, count if by_job else 1) for index in indices):
        return []
    unit, each = ("Node", 1) if by_job else ("Job", count)
    wanted = ",".join(f"{record.gres_prefix}gpu:g{index}:{each}" for index in indices)
    if not by_job and not record.gpus_by_index:
        wanted = f"{record.gres_prefix}gpu:{len(indices) * count}"
    return [f"Tres{'PerJob' if by_job else 'PerNode'}=", f"TresPer{unit}={wanted}"]


class IndexedGpus:
    """Nodes on which each GPU has a type of its own, and which GPUs are free there.

    Invariant: GPUs count as free only if the last snapshot knows the GPUs of every job on their node, and no pin has them since.
    """

    def __init__(self) -> None:
        self._all: dict[str, int] = {}
        """All GPUs of each node that has a type for each. Bound: the nodes of one snapshot."""
        self._jobs: Sequence[SlurmJob] = ()
        self._used: dict[str, int] | None = None
        """Used GPUs of each node, as masks; None: not computed. Bound: the nodes of one snapshot."""

    def take(self, nodes: Iterable[SlurmNode], jobs: Sequence[SlurmJob]) -> None:
        """Take a new snapshot."""
        self._all = {node.name: mask for node in nodes if (mask := _indexed(node))}
        self._jobs = jobs if self._all else ()
        self._used = None

    def have(self, pin: Pin) -> bool:
        """Return whether all nodes of the pin have the GPUs that it names, each with a type of its own."""
        named = zip(pin.nodes, pin.gpu_masks, strict=False)
        return all(mask and not mask & ~self._all.get(node, 0) for node, mask in named)

    def promise(self, nodes: Iterable[str], mask: int) -> None:
        """Count these GPUs as used until the next snapshot."""
        used = self._in_use()
        for node in nodes:
            used[node] = used.get(node, 0) | mask

    def choose(self, nodes: Sequence[str], number: int) -> int:
        """Return the GPUs of the lowest indices that are free on all of these nodes, as a mask; 0 if there are not so many."""
        used = self._in_use()
        free = (1 << _MOST_GPUS) - 1
        for node in nodes:
            free &= self._all.get(node, 0) & ~used.get(node, 0)
        indices = indices_of(free)[:number]
        return sum(1 << index for index in indices) if len(indices) == number else 0

    def _in_use(self) -> dict[str, int]:
        if self._used is None:
            self._used = {}
            shares = (share for job in self._jobs if job.phase.occupies_nodes for share in job.allocated if share.gpus)
            for share in shares:
                mask = share.gpu_mask or self._all.get(share.node, 0)
                self._used[share.node] = self._used.get(share.node, 0) | mask
        return self._used


def indices_of(mask: int) -> list[int]:
    """Return the indices of the bits of a mask, ascending."""
    return [index for index in range(mask.bit_length()) if mask >> index & 1]


def _indexed(node: SlurmNode) -> int:
    """Return all GPUs of a node as a mask if their types are g0, g1, ... with one GPU each; else 0."""
    wanted = {(f"g{index}", 1) for index in range(node.gpus)}
    return (1 << node.gpus) - 1 if 0 < node.gpus <= _MOST_GPUS and set(node.gpus_by_type) == wanted else 0
