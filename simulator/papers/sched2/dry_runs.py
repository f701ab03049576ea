"""Times of a job under the k = 4 placements of `policies.learned.sched2.state.placements` (SCHED2, section III-B).

A dry run asks the slowdown models of a job that is alone on the cluster: exactly what the job would have there.
"""

from __future__ import annotations

from collections.abc import Sequence

from policies.learned.sched2.state.placements import ProfiledPlacements
from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident, SlowdownModel, batch_per_gpu
from simulator.slowdown.compose import Composite

Factors = tuple[float, ...]
_JOB = 0


class DryRuns:
    """Times under each placement, as multiples of the ideal time. Invariant: between two calls, the models contain no job."""

    def __init__(self, topology: Topology, models: Sequence[SlowdownModel]) -> None:
        """Use models of its own: they contain no jobs, and nothing else uses them."""
        self._placements = ProfiledPlacements(topology.gpus, topology.racks)
        self._models = Composite(models)
        self._known: dict[tuple[str, int, int], Factors] = {}

    def times(self, model: str, batch_size: int, gpus: int) -> Factors:
        """Return the times of a job of that model; `batch_size` is over all its GPUs, -1 when not known."""
        key = model, batch_size, gpus
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = tuple(self._time(key, nodes) for nodes in self._placements.of(gpus))
        return known

    def _time(self, key: tuple[str, int, int], nodes: Sequence[int]) -> float:
        model, batch_size, gpus = key
        share, more = divmod(gpus, len(nodes))
        counts = [share + (place < more) for place in range(len(nodes))]
        self._models.enter(Resident(_JOB, model, batch_per_gpu(batch_size, gpus), gpus, nodes, counts))
        time = 1.0 / self._models.speed(_JOB)
        self._models.leave(_JOB)
        return time
