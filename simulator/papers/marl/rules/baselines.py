"""The baselines without networks: of section VI-A Tetris, load balancing, least interference first; of section VII the default
scheduler of Kubernetes; and random placement.

The paper describes Tetris and load balancing by server. Which group of the server is taken is left open: Tetris takes the fullest
one, load balancing the emptiest.
"""

from __future__ import annotations

import numpy as np

from policies.options import whole
from simulator.papers.marl.rules.effects import Effects
from simulator.papers.marl.rules.rule import Rule
from simulator.papers.marl.state.jobs import Floats, Ints
from simulator.papers.marl.state.queues import Task
from simulator.papers.marl.world import World

_BY_SERVER = 1e3
"""Weight of a server's score beside that of its groups, which are at most 2."""


class Random(Rule):
    """Places every task on a random group that has room."""

    def __init__(self, seed: int = 0) -> None:
        """Draw from `seed` and the episode's seed."""
        self._seed = whole("seed", seed)

    def begin(self, world: World, seed: int) -> None:
        """See Rule."""
        super().begin(world, seed)
        self._rng = np.random.default_rng((self._seed, seed))

    def scores(self, scheduler: int, task: Task) -> Floats:  # noqa: ARG002 - the base class
        """See Rule."""
        return self._rng.random(self.world.center.groups_each)


class LoadBalancing(Rule):
    """Places every task on the server with the least load: the sum of its shares of GPUs and cores in use."""

    def scores(self, scheduler: int, task: Task) -> Floats:  # noqa: ARG002 - the base class
        """See Rule."""
        server, group = loads(self.world, scheduler)
        return _BY_SERVER * server + group


class Kubernetes(Random):
    """Places every task as Kubernetes' default scheduler would: on the server with the least share of its cores requested, a random
    one of equals.

    The default scheduler scores nodes by requested cores and memory; GPUs only have to be free, and our tasks request no memory.
    Pods that come from no controller are not spread by their names.
    """

    def scores(self, scheduler: int, task: Task) -> Floats:
        """See Rule."""
        center, placed = self.world.center, self.world.placed
        groups = center.groups_of(scheduler)
        servers = center.group_server[groups]
        cores = np.bincount(center.group_server, placed.logical)
        requested = placed.server_cores[servers] / cores[servers]
        return _BY_SERVER * requested.round(9) + super().scores(scheduler, task)


class Tetris(Rule):
    """Packs jobs on as few servers as possible: the fullest server that has room for the rest of the job, else the one that has
    room for most of it; one that has tasks of the job first."""

    def scores(self, scheduler: int, task: Task) -> Floats:
        """See Rule."""
        server, group = loads(self.world, scheduler)
        fits, has_some = fitting(self.world, scheduler, task), has_tasks(self.world, scheduler, task.job)
        return -_BY_SERVER * (100.0 * fits + 10.0 * has_some + server) - group


class LeastInterference(Rule):
    """Places every task on the group where the slowdowns of all workers on its server would be least in sum, by the world's own
    interference model."""

    def scores(self, scheduler: int, task: Task) -> Floats:
        """See Rule."""
        effects = Effects(self.world, scheduler, task)
        return effects.level + effects.own


def loads(world: World, scheduler: int) -> tuple[Floats, Floats]:
    """Return the load of each group's server, and of the group itself: shares of GPUs and of logical cores in use, added up."""
    center, placed = world.center, world.placed
    groups = center.groups_of(scheduler)
    servers = center.group_server[groups]
    first = servers - servers[0]

    def share(used: Floats, of: Floats) -> tuple[Floats, Floats]:
        return np.bincount(first, used)[first] / np.bincount(first, of)[first], used / of

    by_gpus = share(placed.gpus[groups].astype(np.float64), center.group_gpus[groups].astype(np.float64))
    by_cores = share(placed.cores[groups], placed.logical[groups])
    return by_gpus[0] + by_cores[0], by_gpus[1] + by_cores[1]


def fitting(world: World, scheduler: int, task: Task) -> Floats:
    """Return how many of the job's tasks from this one on fit on the server of each group, by GPUs and by cores."""
    center, placed, jobs = world.center, world.placed, world.jobs
    groups = center.groups_of(scheduler)
    servers = center.group_server[groups]
    first = servers - servers[0]
    free_gpus = np.bincount(first, (center.group_gpus - placed.gpus)[groups])[first]
    free_cores = np.bincount(first, (placed.logical - placed.cores)[groups])[first]
    left = slice(task.column, int(jobs.tasks[task.job]))
    gpus, cores = np.cumsum(jobs.gpus[task.job, left]), np.cumsum(jobs.cores[task.job, left])
    by_gpus = np.searchsorted(gpus, free_gpus + 0.5, side="right")
    found: Floats = np.minimum(by_gpus, np.searchsorted(cores, free_cores + 1e-9, side="right")).astype(np.float64)
    return found


def has_tasks(world: World, scheduler: int, job: int) -> Floats:
    """Return 1 for each group whose server has tasks of the job, else 0."""
    center = world.center
    mine = world.placed.group[job]
    its: Ints = center.group_server[mine[mine >= 0]]
    found: Floats = np.isin(center.group_server[center.groups_of(scheduler)], its).astype(np.float64)
    return found
