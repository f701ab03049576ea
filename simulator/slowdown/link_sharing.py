"""Link sharing of RL-TAPS (section 4.6.3, equations 12 to 15).

A step computes for tt and reduces for

    rt = sr (1 + (r - 1) / 5) s,        s = min default bandwidth / min run-time bandwidth        (12, 13)

where sr is the ring reduction measured on one rack, a function of GPUs and gradient size; r is the number of racks; both minima are
over the links on the paths between the job's GPUs (14, 15); and a link's run-time bandwidth is its default bandwidth over
the number of jobs that use it. factor = (tt + rt of the reference) / (tt + rt).

`reference=best`: in the fewest racks, alone. `reference=alone`: in its own racks, alone; the default beside `locality`.

The links are those between sockets, the NIC of every group that the job has GPUs in, and the uplinks of the switches between its
nodes. The link of a GPU to its socket carries no other job. Which groups a job has on a node, see sockets.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from simulator.slowdown.api import Resident
from simulator.slowdown.base import Neighbours
from simulator.slowdown.fitting import FitReport, nonnegative, report, split
from simulator.slowdown.links import LinkUse
from simulator.slowdown.profiles import Profiles, RingTime
from simulator.slowdown.ring import BestRing
from simulator.slowdown.sockets import groups
from simulator.topology import Topology, TreeRoutes


class LinkSharing(Neighbours):
    """Counts jobs on links.

    Invariants: `_edges` are the shared links of every running job, `_use` the same by link, as the jobs on its nodes are now.
    """

    def __init__(self, topology: Topology, profiles: Profiles, reference: str = "best") -> None:
        super().__init__()
        self._topology = topology
        self._profiles = profiles
        self._reference = reference
        self._best = BestRing(topology)
        self._links = LinkUse()
        self._edges: dict[int, frozenset[int]] = {}

    def fork(self) -> LinkSharing:
        """An independent copy, in time proportional to running jobs."""
        twin = super().fork()
        twin._links = self._links.copy()
        return twin

    def _entered(self, resident: Resident) -> None:
        super()._entered(resident)
        self._edges[resident.job] = frozenset()
        self._lay_out(resident)

    def _left(self, resident: Resident) -> None:
        super()._left(resident)
        self._move(resident.job, frozenset())
        del self._edges[resident.job]
        self._lay_out(resident)

    def _lay_out(self, around: Resident) -> None:
        """Work out anew the links of all jobs on these nodes; sockets are held by row, so that others may have moved over."""
        near = {job for node in around.nodes for job in self._on_node.get(node, ())}
        for job in sorted(near):
            self._move(job, self._links_of(self._residents[job]))

    def _move(self, job: int, edges: frozenset[int]) -> None:
        """The job uses these links from now on; all who use one that it newly uses, or uses no more, are touched."""
        before = self._edges[job]
        if edges == before:
            return
        gone, new = before - edges, edges - before
        self._links.remove(job, gone)
        self._links.add(job, new)
        self._edges[job] = edges
        for link in gone | new:
            self._stale.update(self._links.jobs.get(link, ()))

    def _links_of(self, resident: Resident) -> frozenset[int]:
        topology = self._topology
        if sum(resident.counts) == 1:
            return frozenset()
        edges: set[int] = set(topology.ring(resident.nodes))
        for node in resident.nodes:
            jobs = self._on_node[node]
            held = groups(topology, node, [self._residents[job] for job in jobs])[jobs.index(resident.job)]
            used = [group for group, count in enumerate(held) if count]
            if len(used) > 1:
                edges.add(topology.between_sockets(node))
            if len(resident.nodes) > 1 and isinstance(topology.routes, TreeRoutes):
                edges.difference_update(topology.routes.nics(node))
                edges.update(topology.nic(node, group) for group in used)
        return frozenset(edges)

    def _worked_out(self, resident: Resident) -> float:
        gpus = sum(resident.counts)
        if gpus == 1:
            return 1.0
        topology, profile = self._topology, self._profiles.of(resident.model)
        racks = len({topology.racks[node] for node in resident.nodes})
        edges = self._edges[resident.job]
        inside = topology.inside.pcie_gbs
        single = min((topology.capacity[link] for link in edges), default=inside)
        multi = min((topology.capacity[link] / len(self._links.jobs[link]) for link in edges), default=inside)
        scale = min(single, inside) / min(multi, inside)
        reference = racks
        if self._reference == "best":
            reference = min(racks, -(-self._best.nodes(gpus) // self._best.largest_rack))
        time = self._profiles.ring
        ideal = time.seconds(gpus, profile.bytes, reference)
        now = time.seconds(gpus, profile.bytes, racks) * scale
        batch = resident.batch_size
        return min(1.0, profile.step_s(ideal, batch) / profile.step_s(now, batch))


@dataclass(frozen=True, slots=True)
class RingRow:
    """One measured ring reduction, alone."""

    gpus: int
    bytes: float
    racks: int
    seconds: float


def fit(rows: Sequence[RingRow], seed: int = 0) -> tuple[RingTime, FitReport]:
    """The two square-root curves from rows in one rack, by least squares of the relative error; then the factor by racks.

    Without rows in several racks the factor is the paper's.
    """
    fitted, held_out = split(rows, lambda row: row.seconds, seed)
    in_one = [row for row in fitted if row.racks == 1]
    basis = np.array([[part * sqrt(row.gpus) / row.seconds for part in RingTime.parts(row.bytes)] for row in in_one])
    small, large = nonnegative(basis.reshape(-1, 2), np.ones(len(in_one)))
    time = RingTime(float(small), float(large))
    over = [(row.racks - 1, row.seconds / time.seconds(row.gpus, row.bytes, 1) - 1) for row in fitted if row.racks > 1]
    if over:
        per_rack = sum(more * excess for more, excess in over) / sum(more * more for more, _ in over)
        time = RingTime(time.small_s, time.large_s, max(0.0, per_rack))
    return time, report(
        fitted, held_out, lambda row: time.seconds(row.gpus, row.bytes, row.racks), lambda row: row.seconds, seed
    )
