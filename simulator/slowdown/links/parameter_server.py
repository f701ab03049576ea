"""Speed of jobs with parameter servers (DL2, in the form of Optimus, with which DL2 compares).

With w workers (one a GPU) and p servers, a synchronous step of a job whose total batch is fixed takes

    T = a B/w + b + c x + d w + e p,

a B/w for computing, b for overhead, d w and e p for synchronising more parties. c x is transfer: Optimus has x = w/p, with each
server on a node of its own. Here x follows from the placement: with n_i workers and the share q_i of servers on node i,

    x = max over i of k_i max(n_i (1 - q_i), q_i (w - n_i)),

the traffic of a node's NIC for each exchanged model (full duplex: the larger direction counts), where k_i jobs share the NIC
equally. With each on a node of its own that is (w - 1)/p. Servers are on the nodes of the workers:
in proportion to them, or on the nodes with most workers if there are fewer servers than nodes.

factor = T at best / T as placed, both with the present number of workers: best is the fewest nodes, alone. The model `scaling`
adds the effect of more or fewer workers. Every job on several nodes is assumed to have parameter servers, `ratio` of them for each
worker.
A profile without measured coefficients has a B/w = the computing time of its step and c = 2 bytes / NIC, else 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.base import Neighbours
from simulator.slowdown.fitting.held_out import FitReport, report, split
from simulator.slowdown.fitting.least_squares import nonnegative
from simulator.slowdown.links.ring import GB
from simulator.slowdown.profiles.model_profiles import ModelProfile, ModelProfiles, Servers


class ParameterServer(Neighbours):
    """Jobs affect each other on the NICs of shared nodes."""

    def __init__(self, topology: Topology, profiles: ModelProfiles, ratio: float = 1.0) -> None:
        super().__init__()
        self._topology = topology
        self._profiles = profiles
        self._ratio = ratio
        self._nic_gbs = tuple(
            sum(topology.capacity[link] for link in topology.routes.nics(node)) for node in range(topology.num_nodes)
        )

    def _computed(self, resident: Resident) -> float:
        if len(resident.nodes) == 1:
            return 1.0
        profile = self._profiles.of(resident.model)
        workers = sum(resident.counts)
        servers = max(1, round(self._ratio * workers))
        crowd = [self._senders(node) for node in resident.nodes]
        now = transfer(resident.counts, servers, crowd)
        best = on_fewest_nodes(workers, self._topology.max_gpus)
        ideal = transfer(best, servers, [1] * len(best))
        gbs = min(self._nic_gbs[node] for node in resident.nodes)
        rest_s, unit_s = self._times(profile, resident.batch_size, workers, servers, gbs)
        return min(1.0, (rest_s + unit_s * ideal) / (rest_s + unit_s * now))

    def _senders(self, node: int) -> int:
        """Return the number of jobs that send over a node's NIC."""
        return sum(len(self._residents[job].nodes) > 1 for job in self._on_node[node])

    def _times(
        self, profile: ModelProfile, batch_size: float, workers: int, servers: int, gbs: float
    ) -> tuple[float, float]:
        """Return the seconds of a step that do not depend on the placement, and the seconds of a unit of transfer."""
        if profile.servers is None:
            return profile.step_s(0.0, batch_size), 2 * profile.bytes / (gbs * GB)
        computing, overhead, unit_s, per_worker, per_server = profile.servers
        batch = batch_size if batch_size > 0 else profile.batch or 1
        return computing * batch + overhead + per_worker * workers + per_server * servers, unit_s


def transfer(counts: Sequence[int], servers: int, crowd: Sequence[int]) -> float:
    """Return x: the traffic of the busiest NIC, in models; 0 on one node. `crowd` is the number of jobs on each NIC."""
    workers = sum(counts)
    if servers >= len(counts):
        shares = [count / workers for count in counts]
    else:
        most = sorted(range(len(counts)), key=lambda at: (-counts[at], at))[:servers]
        shares = [float(at in most) / servers for at in range(len(counts))]
    return busiest(zip(counts, shares, crowd, strict=True), workers)


def busiest(nodes: Iterable[tuple[int, float, int]], workers: int) -> float:
    """Return the most models that a node's NIC sends or takes in a step, of (workers, share of servers, jobs) of each node."""
    return max(jobs * max(count * (1 - share), share * (workers - count)) for count, share, jobs in nodes)


def on_fewest_nodes(workers: int, gpus: int) -> list[int]:
    """Return the workers on each of the fewest nodes of so many GPUs."""
    return [gpus] * (workers // gpus) + ([workers % gpus] if workers % gpus else [])


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One measured speed of synchronous training, every worker and server on a node of its own."""

    model: str
    batch: int
    """Examples of all workers together in a step."""
    workers: int
    servers: int
    examples_s: float


def fit(rows: Sequence[ServerRow], seed: int = 0) -> tuple[dict[str, Servers], FitReport]:
    """Fit a to e of each model, none negative, by the relative error of a step's time."""
    fitted, held_out = split(rows, lambda row: row.examples_s, seed)
    found: Mapping[str, Servers] = {
        model: _coefficients([row for row in fitted if row.model == model])
        for model in dict.fromkeys(row.model for row in fitted)
    }

    def predicted(row: ServerRow) -> float | None:
        numbers = found.get(row.model)
        step_s = fitted_step_s(numbers, row.batch, row.workers, row.servers) if numbers else 0.0
        return row.batch / step_s if step_s > 0 else None

    return dict(found), report(fitted, held_out, predicted, lambda row: row.examples_s, seed)


def fitted_step_s(numbers: Servers, batch: int, workers: int, servers: int) -> float:
    """Return the seconds of a step by Optimus' law, every worker and server on a node of its own."""
    a, b, c, d, e = numbers
    return a * batch / workers + b + c * workers / servers + d * workers + e * servers


def _terms(row: ServerRow) -> tuple[float, ...]:
    """Return the terms that a to e multiply."""
    return row.batch / row.workers, 1.0, row.workers / row.servers, float(row.workers), float(row.servers)


def _coefficients(rows: Sequence[ServerRow]) -> Servers:
    steps = [row.batch / row.examples_s for row in rows]
    matrix = np.array([[term / step for term in _terms(row)] for row, step in zip(rows, steps, strict=True)])
    a, b, c, d, e = (float(value) for value in nonnegative(matrix, np.ones(len(rows))))
    return a, b, c, d, e
