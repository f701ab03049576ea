"""One batch of MARL's schedulers on a cluster: the workers of waiting jobs are placed one inference at a time, or forwarded.

As in the environment (simulator/papers/marl/world.py): every scheduler has its jobs in order of submission. It places the first
task on one of its GPU groups, or, where none has room, forwards it to a scheduler that has room, behind the tasks there; a task is
forwarded once. A job whose first task can be neither placed nor forwarded is taken back whole, and waits.

A job belongs to the scheduler with the number of its id, counted among the schedulers that have nodes for it."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from policies.learned.marl.serving.cluster_graphs import ClusterGraphs
from policies.learned.marl.serving.job_columns import SERVER_CORES, JobColumns
from policies.learned.marl.serving.networks import Messages, Networks
from policies.learned.marl.serving.occupancy import Occupancy
from policies.learned.marl.serving.room import Flags, Room
from policies.learned.marl.serving.schedulers import Schedulers
from policies.learned.marl.serving.views import Views
from policies.model import ClusterState, Placement
from policies.placement.wished_gpus import Wish

_DIGITS = 18


class Task(NamedTuple):
    """The next GPUs, or the next parameter server, of a job."""

    job: int
    is_server: bool
    forwards: int
    """Times that it was forwarded."""


@dataclass
class Gang:
    """Where the tasks of one job are so far, by node. Bound: the tasks of the job."""

    left: int
    """Tasks that are not placed."""
    gpus: dict[int, int] = field(default_factory=dict)
    servers: dict[int, int] = field(default_factory=dict)
    schedulers: list[int] = field(default_factory=list)
    """Schedulers that placed its tasks."""


class Batch:
    """Invariants between calls: room and occupancy have the tasks that are placed; the first task of every scheduler can be placed
    or forwarded; a job is in `started` when all its tasks are placed.

    Bound: lives for one decision.
    """

    def __init__(
        self,
        state: ClusterState,
        schedulers: Schedulers,
        graphs: ClusterGraphs,
        columns: JobColumns,
        networks: Networks,
        width: int,
    ) -> None:
        """`width` is that of the vectors that schedulers send."""
        self._state, self._schedulers, self._columns, self._networks = state, schedulers, columns, networks
        self._room = Room(state)
        self._occupancy = Occupancy(state, schedulers, columns)
        self._views = Views(schedulers, graphs, columns, self._occupancy)
        self._messages = Messages(networks, width)
        self._queues: list[deque[Task]] = [deque() for _ in range(schedulers.count)]
        self._without_room: set[int] = set()
        self._gangs: dict[int, Gang] = {}
        self._failed: set[int] = set()
        """Classes of jobs that do not fit until another job is taken back."""
        self.started: dict[int, Gang] = {}
        self.put_off: set[int] = set()
        """Jobs that no scheduler could place whole."""
        self.inferences = 0

    def place(self, rows: Iterable[int]) -> None:
        """Place these waiting jobs, in their order."""
        fits: dict[int, bool] = {}
        for row in rows:
            share, key = self._room.share(row), self._room.key(row)
            if key not in fits:
                fits[key] = share > 0 and bool(self._room.of_worker(row, {}).any())
            if not fits[key]:
                self._failed.add(key)
                self.put_off.add(row)
                continue
            workers, servers = int(self._columns.workers[row]) // share, int(self._columns.servers[row])
            self._gangs[row] = Gang(workers + servers)
            tasks = [Task(row, False, 0)] * workers + [Task(row, True, 0)] * servers
            self._queues[self._home(row)].extend(tasks)
        count = self._schedulers.count
        self._settle(range(count))
        turn = 0
        while True:
            turn = next((at % count for at in range(turn, turn + count) if self._head(at % count)), -1)
            if turn < 0:
                return
            self._settle([turn])  # the rest of the first job may have become impossible elsewhere
            if self._head(turn):
                self._act(turn)

    def placement(self, row: int) -> Placement:
        """Return the placement of a started job."""
        gang = self.started[row]
        return Placement.of(gang.gpus, gang.servers)

    def wish(self, row: int) -> dict[int, Wish]:
        """Return the GPU groups of a started job by node, as masks, and its workers in each."""
        found: dict[int, list[tuple[int, int]]] = {}
        for group, (workers, _) in sorted(self._occupancy.own[row].items()):
            if workers:
                node = int(self._schedulers.group_node[group])
                found.setdefault(node, []).append((self._schedulers.group_mask[group], workers))
        return {**found}

    def _home(self, row: int) -> int:
        node_set = int(self._state.jobs.node_set[row])
        may = self._state.nodes.available & (self._schedulers.of_node >= 0)
        if node_set >= 0:
            may = may & self._state.node_sets[node_set]
        homes = np.unique(self._schedulers.of_node[may])
        return int(homes[_number(self._state.jobs.ids[row]) % len(homes)])

    def _head(self, scheduler: int) -> Task | None:
        """Return the first task of a scheduler; tasks of jobs that were put off are gone."""
        queue = self._queues[scheduler]
        while queue and queue[0].job in self.put_off:
            queue.popleft()
            self._views.change(scheduler)
        return queue[0] if queue else None

    def _act(self, scheduler: int) -> None:
        """Place or forward the first task of a scheduler by its likeliest possible action."""
        heads = [self._head(each) for each in range(self._schedulers.count)]
        views = [
            self._views.view(each, None if head is None else head.job, is_server=head is not None and head.is_server)
            for each, head in enumerate(heads)
        ]
        vectors = self._messages.update(views, scheduler)
        scores = self._networks.scores(scheduler, views[scheduler], vectors, self._views.inter())
        task = heads[scheduler]
        assert task is not None
        groups = self._groups(task)
        own = groups[self._schedulers.groups_of(scheduler)]
        possible = np.concatenate([own, self._forwards(scheduler, task, groups)])
        self.inferences += 1
        action = int(np.argmax(np.where(possible, scores, -np.inf)))
        self._queues[scheduler].popleft()
        self._views.change(scheduler)
        if action < len(own):
            self._put(task, scheduler, int(self._schedulers.first[scheduler]) + action)
            self._settle([scheduler])
        else:
            other = action - len(own)
            self._views.change(other)
            self._queues[other].append(Task(task.job, task.is_server, task.forwards + 1))
            self._settle([scheduler, other])

    def _groups(self, task: Task) -> Flags:
        """Return the groups of all schedulers that have room for a task."""
        gang, nodes = self._gangs[task.job], self._schedulers.group_node
        if task.is_server:
            found: Flags = self._room.of_server(task.job, SERVER_CORES)[nodes]
            return found & (self._occupancy.free_cores + 1e-9 >= SERVER_CORES)
        return self._room.of_worker(task.job, gang.gpus)[nodes] & (self._occupancy.free_gpus > 0)

    def _forwards(self, scheduler: int, task: Task, groups: Flags) -> Flags:
        """Return the schedulers to which a task can be forwarded: the others that have room, if its own has none."""
        first = self._schedulers.first
        found = np.add.reduceat(groups.astype(np.int64), first[:-1]) > 0
        if task.forwards or found[scheduler]:
            return np.zeros_like(found)
        return found

    def _settle(self, changed: Iterable[int]) -> None:
        """Put off the jobs of first tasks without a possible action. Schedulers that changed have another first task or less room,
        which concerns those in `_without_room` too."""
        todo = {*changed, *self._without_room}
        while todo:
            scheduler = min(todo)
            todo.remove(scheduler)
            self._without_room.discard(scheduler)
            task = self._head(scheduler)
            if task is None:
                continue
            key = self._room.key(task.job)
            groups = None if key in self._failed and not self._gangs[task.job].gpus else self._groups(task)
            if groups is not None and groups[self._schedulers.groups_of(scheduler)].any():
                continue
            self._without_room.add(scheduler)
            if groups is None or not self._forwards(scheduler, task, groups).any():
                if groups is not None and not groups.any() and not self._gangs[task.job].gpus:
                    self._failed.add(key)
                self._put_off(task.job)
                todo.update(each for each, queue in enumerate(self._queues) if queue and queue[0].job == task.job)

    def _put_off(self, row: int) -> None:
        gang = self._gangs[row]
        self.put_off.add(row)
        if not gang.gpus:  # workers come before servers
            return
        self._failed.clear()
        for node, gpus in gang.gpus.items():
            self._room.take_back(row, node, gpus)
        for node, servers in gang.servers.items():
            self._room.take_back(row, node, 0, cores=SERVER_CORES * servers)
        self._occupancy.clear(row)
        self._views.change_all()

    def _put(self, task: Task, scheduler: int, group: int) -> None:
        row, gang, node = task.job, self._gangs[task.job], int(self._schedulers.group_node[group])
        if task.is_server:
            self._room.put(row, node, 0, cores=SERVER_CORES, is_first=False)
            self._occupancy.put(row, group, 0, 1)
            gang.servers[node] = gang.servers.get(node, 0) + 1
        else:
            share = self._room.share(row)
            self._room.put(row, node, share, is_first=node not in gang.gpus)
            gang.gpus[node] = gang.gpus.get(node, 0) + share
            self._put_workers(row, group, node, share)
        gang.schedulers.append(scheduler)
        gang.left -= 1
        if not gang.left:
            self._occupancy.start(row)
            for each in set(gang.schedulers):
                self._views.change(each)
            self.started[row] = gang

    def _put_workers(self, row: int, group: int, node: int, count: int) -> None:
        """Put workers on a group; those for which it has no GPU are put on the other groups of the node."""
        others = [each for each in self._schedulers.groups_on(node) if each != group]
        for each in (group, *others):
            here = min(count, self._occupancy.free_here(each))
            if here:
                self._occupancy.put(row, each, here, 0)
                count -= here


def _number(job_id: str) -> int:
    digits = job_id[-_DIGITS:]
    return int(digits) if digits.isascii() and digits.isdecimal() else zlib.crc32(job_id.encode())
