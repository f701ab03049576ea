"""How a job would run under k = 4 placements, from concentrated to scattered (SCHED2, section III-B).

The paper profiles each job by "executing it for a few mini-batches" and does not say under which placements. Here they are, for a
job that needs n nodes at least: n nodes; one more; two more; and as many as there are, racks in turn. The first three fill rack by
rack, the largest first. GPUs are divided evenly. A job has no more nodes than GPUs, so that small jobs repeat their last one.

A dry run asks the slowdown models of a job that is alone on the cluster: exactly what the job would have there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from simulator.packing import fewest_nodes
from simulator.slowdown.api import Resident, SlowdownModel, batch_per_gpu
from simulator.slowdown.compose import Composite
from simulator.topology import Topology

NUM_PLACEMENTS = 4
Factors = tuple[float, ...]
_JOB = 0


class DryRuns:
    """Times under each placement, as multiples of the ideal time. Invariant: nobody is on the models between two calls."""

    def __init__(self, topology: Topology, models: Sequence[SlowdownModel]) -> None:
        """The models belong to the dry runs: nobody has entered them, and nobody else ever will."""
        self._topology = topology
        self._models = Composite(models)
        racks: dict[int, list[int]] = {}
        for node, rack in enumerate(topology.racks):
            racks.setdefault(rack, []).append(node)
        by_rack = sorted(racks.values(), key=lambda nodes: (-len(nodes), nodes[0]))
        self._close = [node for nodes in by_rack for node in nodes]
        self._apart = [node for nodes in zip_longest(*by_rack) for node in nodes if node is not None]
        self._known: dict[tuple[str, int, int], Factors] = {}

    def times(self, model: str, batch_size: int, gpus: int) -> Factors:
        """Of a job of that model; `batch_size` over all its GPUs, -1 where it is not known."""
        key = model, batch_size, gpus
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = tuple(self._time(key, nodes) for nodes in self._placements(gpus))
        return known

    def _placements(self, gpus: int) -> list[list[int]]:
        """The nodes of each."""
        needed, most = fewest_nodes(self._topology.gpus, gpus), min(gpus, self._topology.num_nodes)
        close = [self._roomy(self._close, gpus, min(needed + more, most)) for more in range(NUM_PLACEMENTS - 1)]
        return [*close, self._roomy(self._apart, gpus, most)]

    def _roomy(self, order: Sequence[int], gpus: int, count: int) -> list[int]:
        """The first nodes of that order, so many that hold the job; nodes that are too small for an even share are passed over."""
        share = -(-gpus // count)
        fit = [node for node in order if self._topology.gpus[node] >= share]
        return fit[:count] if len(fit) >= count else list(order)[:count]

    def _time(self, key: tuple[str, int, int], nodes: Sequence[int]) -> float:
        model, batch_size, gpus = key
        share, more = divmod(gpus, len(nodes))
        counts = [share + (place < more) for place in range(len(nodes))]
        self._models.enter(Resident(_JOB, model, batch_per_gpu(batch_size, gpus), gpus, nodes, counts))
        time = 1.0 / self._models.speed(_JOB)
        self._models.leave(_JOB)
        return time
