"""Interference on a host: exponential in cores, linear in PCIe (MARL, section V).

A worker J beside others is slowed down by S = S_cpu + S_pcie; a job is as slow as its slowest worker:

    S_cpu  = alpha1 exp(alpha2 U_c + alpha3 C_J) + lambda1
    U_c    = sum of C over the same group + max(0, sum of C over other groups - cores of a socket)
    S_pcie = beta1 U_p + beta2 P_J + lambda2,        U_p = sum of P over the same group
    factor = 1 / (1 + max(0, S))

U_c is at most `most_cores` of the coefficients, the range in which they were measured: the exponential says nothing beyond.

C are cores and P shares of PCIe that a job's workers in a group use together. A job alone on its node is not slowed down; S is 0
where U_c = U_p = 0, which the paper's constants leave open. gpu_groups.py says which groups a job has on a node: those of its GPUs,
where a run follows these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp
from typing import TypeAlias

import numpy as np

from policies.model import FloatColumn
from policies.speeds.host_interference import slowdown as host_slowdown
from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.base import Neighbours
from simulator.slowdown.fitting.held_out import FitReport, report, split
from simulator.slowdown.fitting.least_squares import Matrix
from simulator.slowdown.gpu_groups import groups
from simulator.slowdown.profiles.model_profiles import MeasuredInterference, ModelProfiles

CORES = 8
"""Cores of one socket (MARL, section VI)."""
_MOST_EXPONENT = 50.0


class HostInterference(Neighbours):
    """The slowdown of the slowest worker."""

    def __init__(self, topology: Topology, profiles: ModelProfiles, cores: float = CORES) -> None:
        super().__init__()
        self._topology = topology
        self._profiles = profiles
        self._cores = cores

    def _computed(self, resident: Resident) -> float:
        worst = max((slowdown(self._profiles.interference, *part) for part in self._parts(resident)), default=0.0)
        return 1.0 / (1.0 + max(0.0, worst))

    def _parts(self, resident: Resident) -> Iterator[tuple[float, float, float, float]]:
        """Yield U_c, C_J, U_p and P_J of every group in which the job has workers, on shared nodes."""
        for node in resident.nodes:
            jobs = self._on_node[node]
            if len(jobs) == 1:
                continue
            near = [self._residents[job] for job in jobs]
            occupied = groups(self._topology, node, near)
            profiles = [self._profiles.of(other.model) for other in near]
            me = jobs.index(resident.job)
            others = [at for at in range(len(jobs)) if at != me]
            for group, mine in enumerate(occupied[me]):
                if not mine:
                    continue
                same = sum(occupied[at][group] * profiles[at].cpu for at in others)
                elsewhere = sum((sum(occupied[at]) - occupied[at][group]) * profiles[at].cpu for at in others)
                pcie = sum(occupied[at][group] * profiles[at].pcie for at in others)
                cpu = same + max(0.0, elsewhere - self._cores)
                yield cpu, mine * profiles[me].cpu, pcie, mine * profiles[me].pcie


def slowdown(by: MeasuredInterference, others_cpu: float, own_cpu: float, others_pcie: float, own_pcie: float) -> float:
    """Return S for these cores and shares of PCIe."""
    if by.most_cores is not None:
        others_cpu = min(others_cpu, by.most_cores)
    cpu, pcie = (others_cpu, own_cpu), (others_pcie, own_pcie)
    return host_slowdown(by.alpha, by.beta, *cpu, *pcie, constant=by.constant, most_exponent=_MOST_EXPONENT)


Exponents: TypeAlias = tuple[float, float]
"""Exponents of the cores of others, and of the job's own."""


@dataclass(frozen=True, slots=True)
class InterferenceRow:
    """One measurement of a worker beside others."""

    others_cpu: float
    """U_c: cores of others that count, see above."""
    own_cpu: float
    others_pcie: float
    """U_p: share of PCIe that others in the group use."""
    own_pcie: float
    slowdown: float
    """(time - time alone) / time alone."""


Terms: TypeAlias = Callable[[Sequence[InterferenceRow], Exponents], Matrix]
"""Terms of a model of S that is linear in them: a row of the matrix for each measurement, at given exponents."""


def fit(rows: Sequence[InterferenceRow], seed: int = 0) -> tuple[MeasuredInterference, FitReport]:
    """Fit all coefficients by least squares: the exponents on a grid that is refined, the linear rest at each point.

    They hold up to the most cores of others of all rows.

    The report is about time, 1 + S, so that rows without a slowdown count.
    """
    fitted, held_out = split(rows, lambda row: 1 + row.slowdown, seed)
    best, found = fit_terms(fitted, _linear)
    scale, others, own, constant = (float(value) for value in found)
    result = MeasuredInterference((scale, *best), (others, own), constant, max(row.others_cpu for row in rows))
    seen = report(
        fitted,
        held_out,
        lambda row: 1 + slowdown(result, row.others_cpu, row.own_cpu, row.others_pcie, row.own_pcie),
        lambda row: 1 + row.slowdown,
        seed,
    )
    return result, seen


def fit_terms(rows: Sequence[InterferenceRow], terms: Terms) -> tuple[Exponents, FloatColumn]:
    """Return the exponents of the cores of others and of the job's own, and the coefficients of the terms, with the least sum of
    squared errors of S."""
    target = np.array([row.slowdown for row in rows])
    most_others = max(row.others_cpu for row in rows) or 1.0
    most_own = max(row.own_cpu for row in rows) or 1.0
    middle, width = (3.0 / most_others, 0.0), (3.0 / most_others, 3.0 / most_own)
    best, least = (0.0, 0.0), float("inf")
    for _ in range(12):
        steps = [at / 3 for at in range(-3, 4)]
        for first, second in product(steps, steps):
            exponents = (max(0.0, middle[0] + first * width[0]), middle[1] + second * width[1])
            matrix = terms(rows, exponents)
            found = np.linalg.lstsq(matrix, target, rcond=None)[0]
            error = float(np.sum((matrix @ found - target) ** 2))
            if error < least:
                best, least = exponents, error
        middle, width = best, (width[0] / 2, width[1] / 2)
    return best, np.linalg.lstsq(terms(rows, best), target, rcond=None)[0]


def _linear(rows: Sequence[InterferenceRow], exponents: Exponents) -> Matrix:
    """Return the terms in which S is linear, for those exponents."""
    others, own = exponents
    return np.array(
        [
            (
                exp(min(others * row.others_cpu + own * row.own_cpu, _MOST_EXPONENT)),
                row.others_pcie,
                row.own_pcie,
                1.0,
            )
            for row in rows
        ]
    )
