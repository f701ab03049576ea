"""Effects of the placement of a task on all workers near it, for each group of a partition at once."""

from __future__ import annotations

import numpy as np

from simulator.papers.marl.state.interference import pressure, slowdown
from simulator.papers.marl.state.jobs import Floats, Ints
from simulator.papers.marl.state.placements import NOWHERE
from simulator.papers.marl.state.queues import Task
from simulator.papers.marl.world import World


class Effects:
    """Slowdowns if a task were placed on each group of a scheduler's partition (M), whether or not it has room."""

    def __init__(self, world: World, scheduler: int, task: Task) -> None:
        self._world = world
        self._task = task
        self._groups = world.center.groups_of(scheduler)
        self._model = world.options.profiles.interference
        self.level: Floats
        """Sum of the slowdowns of the workers that are on the group's server, with the task placed."""
        self.added: Floats
        """Sum of what the task adds to those."""
        self._set_others()
        self.own = self._own()
        """Slowdown of the task itself there; 0 for parameter servers."""

    def _set_others(self) -> None:
        world, task, groups = self._world, self._task, self._groups
        center, jobs, placed = world.center, world.jobs, world.placed
        inside = (placed.group >= groups.start) & (placed.group < groups.stop)
        rows: Ints = np.flatnonzero(inside.any(axis=1))
        by = pressure(placed, rows)
        at = by.is_there & inside[rows]
        group = by.group[at]
        cores, pcie = jobs.cores[task.job, task.column], jobs.pcie[task.job, task.column]
        is_other = np.broadcast_to((rows != task.job)[:, None], at.shape)[at].astype(np.float64)
        cpus, unit = center.other_cores[group], center.core_unit[group]
        same, other, own = by.same_cores[at], by.other_cores[at], by.own_cores[at]
        same_pcie, own_pcie = by.same_pcie[at], by.own_pcie[at]
        # A task of the job itself is no neighbour. It adds to the job's own use, which the model may count as well.
        near = np.where(is_other > 0, 0.0, cores)
        near_pcie = np.where(is_other > 0, 0.0, pcie)

        def of(same: Floats, other: Floats, own: Floats, same_pcie: Floats, own_pcie: Floats) -> Floats:
            near_cores = (same + np.maximum(other - cpus, 0.0)) * unit
            return slowdown(self._model, near_cores, own * unit, same_pcie, own_pcie)

        now = of(same, other, own, same_pcie, own_pcie)
        beside = of(same + is_other * cores, other, own + near, same_pcie + is_other * pcie, own_pcie + near_pcie)
        across = of(same, other + is_other * cores, own, same_pcie, own_pcie)
        self.level = self._by_group(group, beside, across)
        self.added = self._by_group(group, beside - now, across - now)

    def _by_group(self, group: Ints, beside: Floats, across: Floats) -> Floats:
        """Return for each group the sum over workers in it (`beside`), and in other groups of its server (`across`)."""
        groups, center = self._groups, self._world.center
        place = group - groups.start
        servers = center.group_server[groups]
        first, count = servers - servers[0], groups.stop - groups.start
        near = np.bincount(place, beside, minlength=count)
        far = np.bincount(place, across, minlength=count)
        found: Floats = near + np.bincount(first, far)[first] - far
        return found

    def _own(self) -> Floats:
        world, task, groups = self._world, self._task, self._groups
        center, jobs, placed = world.center, world.jobs, world.placed
        if not jobs.is_worker[task.job, task.column]:
            return np.zeros(groups.stop - groups.start)
        here, servers = placed.group[task.job], center.group_server[groups]
        mine = np.flatnonzero(here != NOWHERE)
        own, own_pcie, own_server = (
            np.zeros(size) for size in (center.num_groups, center.num_groups, len(placed.server_cores))
        )
        np.add.at(own, here[mine], jobs.cores[task.job, mine])
        np.add.at(own_pcie, here[mine], jobs.pcie[task.job, mine])
        np.add.at(own_server, center.group_server[here[mine]], jobs.cores[task.job, mine])
        same = placed.cores[groups] - own[groups]
        other = placed.server_cores[servers] - own_server[servers] - same
        cores = own[groups] + jobs.cores[task.job, task.column]
        pcie = own_pcie[groups] + jobs.pcie[task.job, task.column]
        beyond = np.maximum(other - center.other_cores[groups], 0.0)
        unit = center.core_unit[groups]
        same_pcie = placed.pcie[groups] - own_pcie[groups]
        return slowdown(self._model, (same + beyond) * unit, cores * unit, same_pcie, pcie)
