"""Interference of workers on one node: the model of MARL.

Source: "MARL" (Zhao and Wu, TNSM 2021), section V: a job's slowdown is an exponential of its neighbours' CPU use plus a line in
their PCIe use. Their coefficients are fitted to measurements that the paper does not print; the defaults here follow from two
facts that it does print: one neighbour with six cores costs 30 % (section II-C), and CPU and PCIe share this as 23.2 to 14.4 (by so
much the error of the model grows without either, table III). We assume that the exponential grows e-fold over four cores.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from policies.model import ClusterState, FloatColumn, Placement


@dataclass(frozen=True)
class HostInterference:
    """Coefficients. S = alpha1 (exp(alpha2 U + alpha3 C) - exp(alpha3 C)) + beta1 V + beta2 P [another job is near].

    C and U are cores that the job and its neighbours use, P and V GB/s of PCIe. The constants of the paper are chosen so that
    a job alone is not slowed down.
    """

    alpha1: float = 0.0532
    alpha2: float = 0.25
    alpha3: float = 0.0
    beta1: float = 0.252
    beta2: float = 0.0

    def slowdown(self, cores: float, pcie: float, near_cores: float, near_pcie: float) -> float:
        """Return the slowdown of a worker by the workers near it."""
        alpha, beta = (self.alpha1, self.alpha2, self.alpha3), (self.beta1, self.beta2)
        return slowdown(alpha, beta, near_cores, cores, near_pcie, pcie, most_exponent=500.0)


def slowdown(
    alpha: tuple[float, float, float],
    beta: tuple[float, float],
    others_cpu: float,
    own_cpu: float,
    others_pcie: float,
    own_pcie: float,
    *,
    constant: float | None = None,
    most_exponent: float,
) -> float:
    """Return S of MARL's model, for policies and for `simulator.slowdown.neighbours.interference` alike; 0 for a worker alone.

    `alpha` are the scale and the exponents by the others' cores and by the worker's own; `beta` the factors of the others' use of
    PCIe and of its own. Without a `constant` it is the one by which a worker alone is not slowed down. The exponent is cut at
    `most_exponent`, beyond which numbers overflow.
    """
    if others_cpu <= 0 and others_pcie <= 0:
        return 0.0
    scale, others, own = alpha
    alone = math.exp(own * own_cpu) if constant is None else 0.0
    cpu = scale * (math.exp(min(others * others_cpu + own * own_cpu, most_exponent)) - alone)
    return cpu + beta[0] * others_pcie + beta[1] * own_pcie + (constant or 0.0)


class Residents:
    """Numbers of workers of each job on each node. A worker is one GPU, and what comes with it.

    Invariant: `_on[n]` are the (row, workers) of the jobs that run on node n or were added.

    Bound: the nodes, and the jobs on them.
    """

    def __init__(self, state: ClusterState, model: HostInterference) -> None:
        """Begin with all running jobs."""
        self._model = model
        self._cores, self._pcie = _uses(state)
        self._on: dict[int, dict[int, int]] = defaultdict(dict)
        for row in state.running.tolist():
            placement = state.jobs.placement(row)
            if placement is not None:
                self.add(row, placement)

    def add(self, row: int, placement: Placement) -> None:
        """Let that job run there from now on."""
        for node, gpus in placement.items():
            self._on[node][row] = gpus

    def score(self, node: int, row: int, workers: int) -> float:
        """Return the sum of the slowdowns of all workers on the node, if that job had `workers` of them there."""
        here = self._on.get(node, {})
        if not here:
            return 0.0  # a job alone is not slowed down
        return self._sum([*here.items(), (row, workers)])

    def _sum(self, tenants: Iterable[tuple[int, int]]) -> float:
        rows = [(workers, workers * self._cores[row], workers * self._pcie[row]) for row, workers in tenants]
        cores, pcie = sum(row[1] for row in rows), sum(row[2] for row in rows)
        return sum(
            workers * self._model.slowdown(own_cores, own_pcie, _rest(cores, own_cores), _rest(pcie, own_pcie))
            for workers, own_cores, own_pcie in rows
        )


def _rest(total: float, own: float) -> float:
    """Return what others use; 0 if it is only a rounding error."""
    rest = total - own
    return rest if rest > 1e-9 * total else 0.0


def _uses(state: ClusterState) -> tuple[list[float], list[float]]:
    """Return cores and GB/s of PCIe of one worker of each job: as measured, else the cores that it asked for and no PCIe."""
    jobs = state.jobs
    cores: FloatColumn = jobs.cpus_per_gpu
    pcie: FloatColumn = np.zeros(len(jobs))
    if state.profiles is not None:
        measured = state.profiles.per_job(state.profiles.cpu_cores)
        cores = np.where(np.isnan(measured), cores, measured)
        measured = state.profiles.per_job(state.profiles.pcie_gbyte_s)
        pcie = np.where(np.isnan(measured), pcie, measured)
    return cores.tolist(), pcie.tolist()
