"""Links inside a node: a job is slower over PCIe or between sockets than over NVLink.

The GPUs of a job reduce their gradients over a ring. On each node it passes the farthest link between any two of the job's GPUs;
with g GPUs in all, 2 (g-1)/g x `bytes` pass it. For a job on several nodes, the slowest of these links and of the NICs counts.

    factor = step(ring over the closest GPUs of the same nodes) / step(ring over its GPUs), both alone

Links inside a node are not shared: two jobs between the same sockets both have all of that link. Links between nodes are those of
`max-min`. Profiles with a measured `locality` contain a loss between sockets already: use one of the two models.
"""

from __future__ import annotations

from collections.abc import Mapping

from policies.placement.gpu_choice import packed
from policies.state.gpu_layout import GpuLayout
from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.base import Model
from simulator.slowdown.links.ring import GB
from simulator.slowdown.profiles.model_profiles import ModelProfiles


class GpuLinks(Model):
    """A job's factor depends only on its own GPUs: it is computed once, when the job enters."""

    def __init__(self, topology: Topology, profiles: ModelProfiles) -> None:
        super().__init__()
        self._topology = topology
        self._profiles = profiles

    @property
    def needs_gpus(self) -> bool:
        """True: which GPUs a job has decides."""
        return True

    def _computed(self, resident: Resident) -> float:
        gpus = sum(resident.counts)
        if gpus == 1 or not resident.gpu_masks:
            return 1.0
        counts = dict(zip(resident.nodes, resident.counts, strict=True))
        closest = {node: self._closest(node, count) for node, count in counts.items()}
        best_gbs, now_gbs = self._gbs(closest), self._gbs(resident.gpu_masks)
        if now_gbs >= best_gbs:
            return 1.0
        profile = self._profiles.of(resident.model)
        sent = 2 * (gpus - 1) / gpus * profile.bytes / GB
        batch = resident.batch_size
        return profile.step_s(sent / best_gbs, batch) / profile.step_s(sent / now_gbs, batch)

    def _closest(self, node: int, count: int) -> int:
        layout = self._topology.gpu_layout(node)
        return packed(layout, (1 << layout.num_gpus) - 1, count) if layout is not None else 0

    def _gbs(self, masks: Mapping[int, int]) -> float:
        """Return the GB/s of the slowest link of a ring over these GPUs; infinite where no link is known."""
        topology = self._topology
        inside = [_gbs(topology.gpu_layout(node), mask) for node, mask in masks.items()]
        nics = (
            [topology.capacity[link] for node in masks for link in topology.routes.nics(node)] if len(masks) > 1 else []
        )
        return min([*inside, *nics])


def _gbs(layout: GpuLayout | None, mask: int) -> float:
    farthest = layout.farthest(mask) if layout is not None else None
    gbs = layout.gbyte_s(farthest) if layout is not None and farthest is not None else None
    return float("inf") if gbs is None else gbs
