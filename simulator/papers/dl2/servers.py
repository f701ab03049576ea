"""Training speed with workers and parameter servers: as placed, and as Optimus' model predicts it.

Training is synchronous, and the batch of all workers together is the same at every size (DL2, section 3.1), so a step with w
workers and p servers takes

    T = A/w + b + c x + d w + e p

(`slowdown.links.parameter_server`), A being all computing of a step on one GPU: a B of the profile's measured coefficients, or
else the profile's computing time times the requested GPUs; then c is the time of twice the model's bytes on a NIC, and b, d, e are
0. A job's factor is T at the requested size, alone, on the fewest nodes, over T now: it requests `num_gpus` workers, and servers by
the trace's column `num_ps` (without it, as many as workers).

`PlacedSpeed` computes x from the placement of workers and servers and from the jobs that share NICs. `FittedSpeed` is Optimus'
prediction: its x is w/p, whatever runs beside it, and its coefficients are fitted to runs of the job alone
(`parameter_server.fit`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.base import Model
from simulator.slowdown.links.parameter_server import ServerRow, busiest, fit, fitted_step_s, on_fewest_nodes
from simulator.slowdown.links.ring import GB
from simulator.slowdown.profiles.model_profiles import ModelProfile, ModelProfiles, Servers

_SAMPLED = (1, 2, 4, 8, 16)
"""Numbers of workers and of servers in the runs that are fitted."""
_EXAMPLES = 1
"""Examples of a batch: one unit of work, since a law has the computing of a step in one number."""


class Footprints:
    """The parameter servers of each job by node. A separate object, because copies of models share it."""

    def __init__(self) -> None:
        self.of: dict[int, Mapping[int, int]] = {}
        """Servers by node, of each row of the trace; a job without an entry has none."""
        self.asked: list[int] = []
        """Servers that each job of the trace requests; 0 for an all-reduce job."""

    def is_all_reduce(self, job: int) -> bool:
        """Return whether the job of that row has no servers: its workers exchange gradients with each other."""
        return self.asked[job] == 0


@dataclass(frozen=True, slots=True)
class SpeedLaw:
    """The coefficients A, b, c, d and e."""

    computing_s: float
    overhead_s: float
    unit_s: float
    worker_s: float
    server_s: float

    def step_s(self, workers: int, servers: int, units: float) -> float:
        """Return the seconds of a step in which the busiest NIC sends so many models."""
        return (
            self.computing_s / workers
            + self.overhead_s
            + self.unit_s * units
            + self.worker_s * workers
            + self.server_s * servers
        )


def nics_gbs(topology: Topology) -> tuple[float, ...]:
    """Return the capacity of each node's network cards together, GB/s; infinite where it is not limited."""
    return tuple(
        sum(topology.capacity[link] for link in topology.routes.nics(node)) or inf for node in range(topology.num_nodes)
    )


def law_of(profile: ModelProfile, batch: float, requested: int, gbs: float) -> SpeedLaw:
    """Return the law of a job with that batch per GPU (-1: not known) and requested GPUs, on nodes with NICs of so many GB/s."""
    if profile.servers is None:
        return SpeedLaw(profile.compute_s * requested, 0.0, 2 * profile.bytes / (gbs * GB), 0.0, 0.0)
    computing, overhead, unit_s, per_worker, per_server = profile.servers
    examples = (batch if batch > 0 else max(profile.batch, 1)) * requested
    return SpeedLaw(computing * examples, overhead, unit_s, per_worker, per_server)


def units(workers: Mapping[int, int], servers: Mapping[int, int], crowd: Mapping[int, int]) -> float:
    """Return x: the models that the busiest NIC sends or receives in a step; 0 on one node. `crowd` is the number of jobs per NIC.

    A node with n of w workers and the share q of the servers takes n (1 - q) models for its workers, and sends q (w - n). Without
    servers, the workers form a ring over the nodes.
    """
    nodes = workers.keys() | servers.keys()
    if len(nodes) == 1:
        return 0.0
    if not servers:
        return ring_units(sum(workers.values())) * max(crowd[node] for node in nodes)
    all_workers, all_servers = sum(workers.values()), sum(servers.values())
    return busiest(
        ((workers.get(node, 0), servers.get(node, 0) / all_servers, crowd[node]) for node in nodes), all_workers
    )


def ring_units(workers: int) -> float:
    """Return the x of an all-reduce job alone on several nodes, (w - 1)/w.

    A ring sends 2 (w - 1)/w models over each NIC, and receives as many at the same time; x = 1 is one model each way in turn.
    """
    return (workers - 1) / workers


def packed(workers: int, servers: int, gpus: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return workers on the fewest nodes of so many GPUs, and servers on the same nodes in turn."""
    placed = dict(enumerate(on_fewest_nodes(workers, gpus)))
    nodes = len(placed)
    return placed, {node: len(range(node, servers, nodes)) for node in range(min(nodes, servers))}


class PlacedSpeed(Model):
    """A job's speed by the placement of its workers and servers. Jobs affect each other on the NICs of shared nodes.

    Invariant: `_on_node` has the jobs of each node that has any of a job on several nodes; `_spread` says which nodes those are.
    """

    def __init__(self, topology: Topology, profiles: ModelProfiles, footprints: Footprints) -> None:
        super().__init__()
        self._profiles = profiles
        self._footprints = footprints
        self._most_gpus = topology.max_gpus
        self._nic_gbs = nics_gbs(topology)
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

    def _computed(self, resident: Resident) -> float:
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
    """The speed that Optimus' model predicts, from the numbers of workers and servers only."""

    def __init__(self, topology: Topology, profiles: ModelProfiles, footprints: Footprints) -> None:
        super().__init__()
        self._profiles = profiles
        self._footprints = footprints
        self._gbs = min(nics_gbs(topology))

    def _computed(self, resident: Resident) -> float:
        workers, servers = sum(resident.counts), sum(self._footprints.of[resident.job].values())
        law = law_of(self._profiles.of(resident.model), resident.batch_size, resident.requested_gpus, self._gbs)
        asked = resident.requested_gpus, self._footprints.asked[resident.job]
        return believed_step_s(law, *asked) / believed_step_s(law, workers, servers)


def believed_step_s(law: SpeedLaw, workers: int, servers: int) -> float:
    """Return the seconds of a step that the fit for a job of that law predicts.

    Without servers, it is the law of the job alone, with every worker on its own node: runs of single jobs determine all of its
    coefficients.
    """
    if not servers:
        return law.step_s(workers, 0, ring_units(workers))
    return fitted_step_s(fitted_law(law), _EXAMPLES, workers, servers)


@lru_cache(maxsize=1024)
def fitted_law(law: SpeedLaw) -> Servers:
    """Return Optimus' a to e for a job of that law, from runs of it alone, with every worker and server on its own node."""
    rows = []
    for workers in _SAMPLED:
        for servers in _SAMPLED:
            # The busiest NIC is a worker's, which exchanges one model, or a server's, which exchanges its share of all.
            step_s = law.step_s(workers, servers, max(1.0, workers / servers))
            rows.append(ServerRow("", _EXAMPLES, workers, servers, _EXAMPLES / step_s))
    coefficients, _ = fit(rows)
    return coefficients[""]
