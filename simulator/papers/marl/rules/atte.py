"""The baseline Atte of section VI-A: the placement of SCARL (Cheong et al., IEEE Access 2019), simplified.

For each task the scheduler calculates an importance score of every server by attention, and places the task on the server with the
largest score. MARL's paper says no more, and its evaluation calls Atte "interference oblivious", so here the network sees only the
requests of the task's job, what is free on each server, and the job's own tasks there; neither other jobs nor links.

    h  = ReLU(F W_s + b_s)                                        servers (S, FEATURES) -> (S, WIDTH)
    h' = h + softmax(h W_q (h W_k)^T / sqrt(WIDTH)) h W_v         attention among the servers
    importance = h' W_i ReLU(t W_t + b_t) W_o / sqrt(WIDTH)       attention of the task to the servers

The widths, and the group of a server that a task gets, are our choice: one that has tasks of the job, else the emptiest. The
weights were learned from rewards alone (`python -m simulator.papers.marl.atte_training`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from policies.learned.marl.graphs import MOST_CORES, MOST_GPUS, MOST_TASKS
from simulator.papers.marl.rules.baselines import loads
from simulator.papers.marl.rules.rule import Rule
from simulator.papers.marl.state.jobs import Floats, Ints
from simulator.papers.marl.state.placements import NOWHERE
from simulator.papers.marl.state.queues import Task
from simulator.papers.marl.world import World
from simulator.slowdown.profiles.model_profiles import key_of
from simulator.traces.generators.dl2 import MODELS

FILE = "atte.json"
WIDTH = 32
FEATURES = 6
"""Features of a server."""
OF_TASK = 6 + len(MODELS)
"""Features of a task."""
_OWN = MOST_TASKS / 2
_BY_SERVER, _BESIDE_OWN = 1e3, 10.0
"""Weights of a server's rank, and of the job's own tasks in a group, beside the group's load, which is at most 2."""
_TYPE = {key_of(name): place for place, name in enumerate(MODELS)}


@dataclass(frozen=True, eq=False)
class AttentionNetwork:
    """The function above. `arrays` has its weights by name: server, server_bias, query, key, value, importance, task, task_bias,
    and out."""

    arrays: Mapping[str, Floats]

    def importance(self, servers: Floats, task: Floats) -> Floats:
        """Return the importance (S) of servers (S, FEATURES) for a task (OF_TASK)."""
        of = self.arrays
        hidden = np.maximum(servers @ of["server"] + of["server_bias"], 0.0)
        weights = (hidden @ of["query"]) @ (hidden @ of["key"]).T / np.sqrt(WIDTH)
        weights = np.exp(weights - weights.max(1, keepdims=True))
        hidden = hidden + weights / weights.sum(1, keepdims=True) @ (hidden @ of["value"])
        asked = np.maximum(task @ of["task"] + of["task_bias"], 0.0) @ of["out"]
        found: Floats = (hidden @ of["importance"]) @ asked / np.sqrt(WIDTH)
        return found

    def as_text(self) -> str:
        """Return the network as JSON, with four significant digits."""
        short = {
            name: np.vectorize(lambda value: float(f"{value:.4g}"))(array).tolist()
            for name, array in self.arrays.items()
        }
        return json.dumps(short, separators=(",", ":")) + "\n"

    @staticmethod
    def of_text(text: str) -> AttentionNetwork:
        """Return the network of `as_text`."""
        return AttentionNetwork({name: np.array(values) for name, values in json.loads(text).items()})


@cache
def trained() -> AttentionNetwork:
    """Return the network that comes with Headway."""
    return AttentionNetwork.of_text((files(__package__) / FILE).read_text(encoding="utf-8"))


def server_features(world: World, scheduler: int, job: int) -> Floats:
    """Return the features (S, FEATURES) of the servers of a scheduler: free and all GPUs, free and all logical cores, and the
    workers and parameter servers of this job there."""
    center, placed = world.center, world.placed
    groups = center.groups_of(scheduler)
    first, count = _first(world, scheduler), center.servers_each
    own = placed.group[job]
    here = np.flatnonzero((own >= groups.start) & (own < groups.stop))
    at, is_worker = first[own[here] - groups.start], world.jobs.is_worker[job, here]
    columns = [
        *((np.bincount(first, amount, count) / MOST_GPUS) for amount in _free_and_all_gpus(world, groups)),
        *(
            np.bincount(first, amount, count) / (2 * MOST_CORES)
            for amount in ((placed.logical - placed.cores)[groups], placed.logical[groups])
        ),
        *(np.bincount(at[chosen], minlength=count) / _OWN for chosen in (is_worker, ~is_worker)),
    ]
    return np.stack(columns, axis=1)


def task_features(world: World, task: Task) -> Floats:
    """Return the features (OF_TASK) of a task: whether it is a parameter server, numbers of workers, of parameter servers and of
    tasks left, GPUs and cores of the task, and the model of its job."""
    jobs, job = world.jobs, task.job
    found = np.zeros(OF_TASK)
    found[0] = not jobs.is_worker[job, task.column]
    found[1:4] = np.array([jobs.workers[job], jobs.servers[job], (jobs.tasks[job] - task.column) / 2]) / _OWN
    found[4:6] = jobs.gpus[job, task.column] / MOST_GPUS, jobs.cores[job, task.column] / MOST_CORES
    if (kind := _TYPE.get(key_of(jobs.models[jobs.model[job]]))) is not None:
        found[6 + kind] = 1.0
    return found


class Atte(Rule):
    """Places every task on the server that has the largest importance for it."""

    def __init__(self, network: AttentionNetwork | None = None) -> None:
        """Without a network, use the one that comes with Headway."""
        self._network = network or trained()

    def scores(self, scheduler: int, task: Task) -> Floats:
        """See Rule."""
        importance = self.importance(server_features(self.world, scheduler, task.job), task_features(self.world, task))
        rank = (-importance).argsort(kind="stable").argsort()
        found: Floats = _BY_SERVER * rank[_first(self.world, scheduler)] + self._within(scheduler, task)
        return found

    def importance(self, servers: Floats, task: Floats) -> Floats:
        """Return the importance of each server (S)."""
        return self._network.importance(servers, task)

    def _within(self, scheduler: int, task: Task) -> Floats:
        """Return the scores of the groups of one server: those with tasks of the job first, then the emptiest."""
        groups = self.world.center.groups_of(scheduler)
        own = self.world.placed.group[task.job]
        has_own = np.isin(np.arange(groups.start, groups.stop), own[own != NOWHERE])
        return loads(self.world, scheduler)[1] - _BESIDE_OWN * has_own


def _first(world: World, scheduler: int) -> Ints:
    """Return the server of each group of a scheduler, counted from the scheduler's first one."""
    servers = world.center.group_server[world.center.groups_of(scheduler)]
    found: Ints = servers - servers[0]
    return found


def _free_and_all_gpus(world: World, groups: slice) -> tuple[Floats, Floats]:
    gpus = world.center.group_gpus[groups].astype(np.float64)
    return gpus - world.placed.gpus[groups], gpus
