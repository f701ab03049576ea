"""How fast a job trains with so many workers and parameter servers: as it is, and as Optimus' model has it.

Training is synchronous and the batch of all workers together stays as it is at every size (DL2, section 3.1), so that w workers
and p servers take a step of

    T = A/w + b + c x + d w + e p

(`simulator.slowdown.parameter_server`), A being all computing of a step on one GPU: a B of the profile's measured coefficients, or
else the profile's computing time times the GPUs that the job asks for; then c is the time of twice the model's bytes on a NIC, and
b, d, e are 0. A job's factor is T at the size that it asks for, alone, on the fewest nodes, over T now: what it asks for is
`num_gpus` workers and as many servers as the trace's column `num_ps` says (without it, as many as workers).

`PlacedSpeed` has x from where workers and servers are and who sends over the same NICs. `FittedSpeed` is what Optimus believes:
its x is w/p, whoever is near, and its coefficients are fitted to runs of the job alone (`parameter_server.fit`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.base import Model
from simulator.slowdown.parameter_server import ServerRow, busiest, fit, fitted_step_s, on_fewest_nodes
from simulator.slowdown.profiles import Profile, Profiles, Servers
from simulator.slowdown.ring import GB

_SAMPLED = (1, 2, 4, 8, 16)
"""Workers, and servers, of the runs that a fit sees."""
_EXAMPLES = 1
"""A batch is one unit of work here, since a law has all computing of a step in one number."""


class Footprints:
    """Where the parameter servers of jobs are: node -> servers. An object of its own, because copies of models share it."""

    def __init__(self) -> None:
        self.of: dict[int, Mapping[int, int]] = {}
        """By row of the trace; who is not there has none."""
        self.asked: list[int] = []
        """Servers that each job of the trace asks for."""


@dataclass(frozen=True, slots=True)
class Law:
    """A, b, c, d and e."""

    computing_s: float
    overhead_s: float
    unit_s: float
    worker_s: float
    server_s: float

    def step_s(self, workers: int, servers: int, units: float) -> float:
        """Of a step in which the busiest NIC sends so many models."""
        return (
            self.computing_s / workers
            + self.overhead_s
            + self.unit_s * units
            + self.worker_s * workers
            + self.server_s * servers
        )


def law_of(profile: Profile, batch: float, requested: int, gbs: float) -> Law:
    """Of a job of that batch a GPU (-1: not known) that asks for so many GPUs, on nodes with NICs of so many GB/s."""
    if profile.servers is None:
        return Law(profile.compute_s * requested, 0.0, 2 * profile.bytes / (gbs * GB), 0.0, 0.0)
    computing, overhead, unit_s, per_worker, per_server = profile.servers
    examples = (batch if batch > 0 else max(profile.batch, 1)) * requested
    return Law(computing * examples, overhead, unit_s, per_worker, per_server)


def units(workers: Mapping[int, int], servers: Mapping[int, int], crowd: Mapping[int, int]) -> float:
    """x: models that the busiest NIC sends or takes in a step; 0 on one node. `crowd` are the jobs that send over each NIC.

    A node with n of w workers and the share q of the servers takes n (1 - q) models for its workers, and sends q (w - n).
    """
    nodes = workers.keys() | servers.keys()
    if len(nodes) == 1:
        return 0.0
    all_workers, all_servers = sum(workers.values()), sum(servers.values())
    return busiest(
        ((workers.get(node, 0), servers.get(node, 0) / all_servers, crowd[node]) for node in nodes), all_workers
    )


def packed(workers: int, servers: int, gpus: int) -> tuple[dict[int, int], dict[int, int]]:
    """Workers on the fewest nodes of so many GPUs; servers dealt out to those nodes in turn."""
    placed = dict(enumerate(on_fewest_nodes(workers, gpus)))
    nodes = len(placed)
    return placed, {node: len(range(node, servers, nodes)) for node in range(min(nodes, servers))}


class PlacedSpeed(Model):
    """A job's speed where its workers and servers are. Jobs touch each other on the NICs of nodes that they share.

    Invariant: `_on_node` has the jobs of each node that has any of a job on several nodes; `_spread` says which nodes those are.
    """

    def __init__(self, topology: Topology, profiles: Profiles, footprints: Footprints) -> None:
        super().__init__()
        self._profiles = profiles
        self._footprints = footprints
        self._most_gpus = topology.max_gpus
        self._nic_gbs = tuple(
            sum(topology.capacity[link] for link in topology.routes.nics(node)) or inf
            for node in range(topology.num_nodes)
        )
        self._spread: dict[int, tuple[int, ...]] = {}
        self._on_node: dict[int, tuple[int, ...]] = {}

    def _entered(self, resident: Resident) -> None:
        nodes = tuple(sorted({*resident.nodes, *self._footprints.of[resident.job]}))
        self._spread[resident.job] = nodes if len(nodes) > 1 else ()
        for node in self._spread[resident.job]:
            there = self._on_node.get(node, ())
            self._stale.update(there)
            self._on_node[node] = (*there, resident.job)

    def _left(self, resident: Resident) -> None:
        for node in self._spread.pop(resident.job):
            there = tuple(job for job in self._on_node[node] if job != resident.job)
            self._stale.update(there)
            self._on_node[node] = there

    def _worked_out(self, resident: Resident) -> float:
        job = resident.job
        workers = dict(zip(resident.nodes, resident.counts, strict=True))
        servers = self._footprints.of[job]
        gbs = min(self._nic_gbs[node] for node in self._spread[job] or resident.nodes)
        law = law_of(self._profiles.of(resident.model), resident.batch_size, resident.requested_gpus, gbs)
        crowd = {node: len(self._on_node[node]) for node in self._spread[job]}
        now = law.step_s(sum(workers.values()), sum(servers.values()), units(workers, servers, crowd))
        asked = resident.requested_gpus, self._footprints.asked[job]
        best = packed(*asked, self._most_gpus)
        return law.step_s(*asked, units(*best, dict.fromkeys(best[0], 1))) / now


class FittedSpeed(Model):
    """The speed that Optimus' model says: by numbers of workers and servers alone."""

    def __init__(self, topology: Topology, profiles: Profiles, footprints: Footprints) -> None:
        super().__init__()
        self._profiles = profiles
        self._footprints = footprints
        self._gbs = min(
            sum(topology.capacity[link] for link in topology.routes.nics(node)) or inf
            for node in range(topology.num_nodes)
        )

    def _worked_out(self, resident: Resident) -> float:
        workers, servers = sum(resident.counts), sum(self._footprints.of[resident.job].values())
        law = law_of(self._profiles.of(resident.model), resident.batch_size, resident.requested_gpus, self._gbs)
        asked = resident.requested_gpus, self._footprints.asked[resident.job]
        return believed_step_s(law, *asked) / believed_step_s(law, workers, servers)


def believed_step_s(law: Law, workers: int, servers: int) -> float:
    """What the fit for a job of that law says a step takes."""
    return fitted_step_s(fitted_law(law), _EXAMPLES, workers, servers)


@lru_cache(maxsize=1024)
def fitted_law(law: Law) -> Servers:
    """Optimus' a to e for a job of that law, from runs of it alone, every worker and server on a node of its own."""
    rows = []
    for workers in _SAMPLED:
        for servers in _SAMPLED:
            # The busiest NIC is a worker's, which exchanges one model, or a server's, which has its share of them all.
            step_s = law.step_s(workers, servers, max(1.0, workers / servers))
            rows.append(ServerRow("", _EXAMPLES, workers, servers, _EXAMPLES / step_s))
    coefficients, _ = fit(rows)
    return coefficients[""]
