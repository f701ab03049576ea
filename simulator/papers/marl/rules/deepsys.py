"""The baseline DeepSys of section VI-A, simplified: a network predicts the speed of a job, and a search finds a placement by it.

As the paper describes it, the network's inputs are the job's model, its numbers of workers and servers, the placement of each
worker, and the parameters of all other workers on its server; its output is the speed relative to that alone. It was trained on
placements of the past: those of random placement, load balancing and Tetris (`python -m simulator.papers.marl.deepsys_training`).
When a job arrives, several whole placements are drawn, and the one with the highest predicted speed is taken. The search is our
choice, since the paper does not describe it: the draws use from one server on up to one for each task.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np

from policies.options import whole
from simulator.papers.marl.rules.rule import Rule
from simulator.papers.marl.rules.speed_network import SpeedNetwork
from simulator.papers.marl.state.jobs import Flags, Floats, Ints
from simulator.papers.marl.state.placements import NOWHERE
from simulator.papers.marl.state.queues import Task
from simulator.papers.marl.world import World
from simulator.slowdown.profiles.model_profiles import key_of
from simulator.traces.generators.dl2 import MODELS

FILE = "deepsys.json"
WORKERS = 4
"""Workers whose placement the network sees, the most of the paper."""
_OF_WORKER, _TASKS = 4, 4.0
_TYPE = {key_of(name): place for place, name in enumerate(MODELS)}
FEATURES = len(MODELS) + 2 + _OF_WORKER * WORKERS


@cache
def trained() -> SpeedNetwork:
    """Return the network that comes with Headway."""
    return SpeedNetwork.of_text((files(__package__) / FILE).read_text(encoding="utf-8"))


def features(world: World, job: int, group: Ints) -> Floats:
    """Return the network's inputs (P, FEATURES) for P placements of a job: a group for each task (P, T), or NOWHERE."""
    jobs, center = world.jobs, world.center
    found = np.zeros((len(group), FEATURES))
    if (kind := _TYPE.get(key_of(jobs.models[jobs.model[job]]))) is not None:
        found[:, kind] = 1.0
    found[:, len(MODELS)] = jobs.workers[job] / _TASKS
    found[:, len(MODELS) + 1] = jobs.servers[job] / _TASKS
    placed, is_worker = group != NOWHERE, jobs.is_worker[job]
    server = np.where(placed, center.group_server[np.where(placed, group, 0)], NOWHERE)
    others = _parameters(world, job)
    for worker in range(min(WORKERS, int(jobs.workers[job]))):
        together = placed & placed[:, [worker]] & (server == server[:, [worker]])
        there = placed[:, worker]
        first = len(MODELS) + 2 + _OF_WORKER * worker
        found[:, first] = there
        found[:, first + 1] = (together & is_worker).sum(1) / _TASKS
        found[:, first + 2] = (together & ~is_worker).sum(1) / _TASKS
        found[:, first + 3] = np.where(there, others[server[:, worker]], 0.0)
    return found


def _parameters(world: World, job: int) -> Floats:
    """Return the sum of the parameters, in GB, of the workers of other jobs on each server."""
    group = np.where(world.jobs.is_worker, world.placed.group, NOWHERE)
    group[job] = NOWHERE
    row, column = np.nonzero(group != NOWHERE)
    servers = world.center.group_server[group[row, column]]
    return np.bincount(servers, world.jobs.gradients_gb[row], minlength=world.center.topology.num_nodes).astype(
        np.float64
    )


class DeepSys(Rule):
    """Places a job as a network of speeds predicts that it is fastest, among placements that are drawn at random."""

    def __init__(self, placements: int = 64, network: SpeedNetwork | None = None) -> None:
        """Draw that many placements for each job. Without a network, use the one that comes with Headway."""
        self._count = whole("placements", placements, least=1)
        self._network = network or trained()
        self._plans: dict[int, Ints] = {}

    def begin(self, world: World, seed: int) -> None:
        """See Rule."""
        super().begin(world, seed)
        self._rng = np.random.default_rng((seed, 0x64656570))
        self._plans = {}

    def scores(self, scheduler: int, task: Task) -> Floats:
        """See Rule: 0 for the planned group, else 1."""
        groups = self.world.center.groups_of(scheduler)
        room = self.world.placed.room(task.job, task.column, groups)
        plan = self._plans.get(task.job)
        if plan is None or not _is_possible(int(plan[task.column]) - groups.start, room):
            plan = self._plans[task.job] = self._search(scheduler, task)
        found = np.ones(len(room))
        if _is_possible(place := int(plan[task.column]) - groups.start, room):
            found[place] = 0.0
        return found

    def _search(self, scheduler: int, task: Task) -> Ints:
        """Return the placement (T) with the highest predicted speed; tasks that are placed stay where they are."""
        drawn = self._drawn(scheduler, task)
        best: Ints = drawn[int(self._network.predict(features(self.world, task.job, drawn)).argmax())]
        return best

    def _drawn(self, scheduler: int, task: Task) -> Ints:
        """Draw placements of this task and of those behind it (P, T)."""
        world, rng, count = self.world, self._rng, self._count
        center, placed, jobs = world.center, world.placed, world.jobs
        groups = center.groups_of(scheduler)
        columns = range(task.column, int(jobs.tasks[task.job]))
        servers = center.group_server[groups] - center.group_server[groups][0]
        order = rng.random((count, center.servers_each)).argsort(1).argsort(1)
        wanted = (order < rng.integers(1, len(columns) + 1, count)[:, None])[:, servers]
        gpus = np.tile((center.group_gpus - placed.gpus)[groups], (count, 1))
        cores = np.tile((placed.logical - placed.cores)[groups], (count, 1))
        found = np.tile(placed.group[task.job], (count, 1))
        rows = np.arange(count)
        for column in columns:
            need_gpus, need_cores = jobs.gpus[task.job, column], jobs.cores[task.job, column]
            room = (gpus >= need_gpus) & (cores + 1e-9 >= need_cores)
            place = np.where(room, rng.random(room.shape) + wanted, -1.0).argmax(1)
            fits = room[rows, place]
            gpus[rows, place] -= fits * need_gpus
            cores[rows, place] -= fits * need_cores
            found[:, column] = np.where(fits, place + groups.start, NOWHERE)
        return found


def _is_possible(place: int, room: Flags) -> bool:
    return 0 <= place < len(room) and bool(room[place])
