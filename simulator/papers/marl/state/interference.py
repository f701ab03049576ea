"""Slowdown of workers by the tasks of other jobs on their server, of many jobs at once (MARL, section V).

    S = alpha1 exp(alpha2 U_c + alpha3 C_J) + beta1 U_p + beta2 P_J + constant,         0 if U_c = U_p = 0, and never below 0
    U_c = cores of other jobs in the group + max(0, cores of other jobs in the server's other groups - cores of those CPUs)
    U_p = PCIe of other jobs in the group

C_J and P_J are what the job's tasks in the group use together. The paper writes the model for jobs; it does not say which tasks of
a job count. Here workers and parameter servers use cores, workers alone use PCIe, and only workers are slowed down. Nor does it say
whether servers with other CPUs have other coefficients. Ours are for CPUs of 8 cores; in a group with more, U_c and C_J count in
proportion, so that a CPU in use to the same share slows a worker down by as much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.papers.marl.state.jobs import Flags, Floats, Ints
from simulator.papers.marl.state.placements import NOWHERE, Placements
from simulator.slowdown.profiles.model_profiles import MeasuredInterference

_MOST_EXPONENT = 50.0
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Pressure:
    """Cores and PCIe that others use beside each worker of some jobs; every array has the shape (jobs, T)."""

    is_there: Flags
    """Placed workers."""
    group: Ints
    """Group of each task, 0 where it is not placed."""
    same_cores: Floats
    """Cores of other jobs in the group."""
    other_cores: Floats
    """Cores of other jobs in the other groups of the server."""
    own_cores: Floats
    same_pcie: Floats
    own_pcie: Floats


def pressure(placed: Placements, rows: Ints) -> Pressure:
    """Return what is beside the workers of these jobs."""
    center, jobs = placed.center, placed.jobs
    there = placed.group[rows] != NOWHERE
    group = np.where(there, placed.group[rows], 0)
    server = center.group_server[group]
    both = there[:, :, None] & there[:, None, :]
    in_group = both & (group[:, :, None] == group[:, None, :])
    on_server = both & (server[:, :, None] == server[:, None, :])
    cores = jobs.cores[rows][:, None, :]
    own = (in_group * cores).sum(2)
    own_server = (on_server * cores).sum(2)
    own_pcie = (in_group * jobs.pcie[rows][:, None, :]).sum(2)
    return Pressure(
        is_there=there & jobs.is_worker[rows],
        group=group,
        same_cores=placed.cores[group] - own,
        other_cores=(placed.server_cores[server] - placed.cores[group]) - (own_server - own),
        own_cores=own,
        same_pcie=placed.pcie[group] - own_pcie,
        own_pcie=own_pcie,
    )


def slowdown(
    model: MeasuredInterference, others_cpu: Floats, own_cpu: Floats, others_pcie: Floats, own_pcie: Floats
) -> Floats:
    """Return S of each entry."""
    scale, others, own = model.alpha
    exponent = np.minimum(others * others_cpu + own * own_cpu, _MOST_EXPONENT)
    found = scale * np.exp(exponent) + model.beta[0] * others_pcie + model.beta[1] * own_pcie + model.constant
    is_alone = (others_cpu <= _TINY) & (others_pcie <= _TINY)
    return np.where(is_alone, 0.0, np.maximum(found, 0.0))


def of_workers(placed: Placements, rows: Ints, model: MeasuredInterference) -> Floats:
    """Return S of each placed worker of these jobs (jobs, T); 0 for other tasks."""
    by = pressure(placed, rows)
    center = placed.center
    beyond = np.maximum(by.other_cores - center.other_cores[by.group], 0.0)
    unit = center.core_unit[by.group]
    found = slowdown(model, (by.same_cores + beyond) * unit, by.own_cores * unit, by.same_pcie, by.own_pcie)
    return np.where(by.is_there, found, 0.0)
