"""The observation of a scheduler (section IV-A), with all values between 0 and 1.

    groups   (M, L + 2N)    free GPUs and cores of each GPU group, and how many workers and servers of each job it has
    jobs     (N, Y + 6)     x and r: the model of each job, number, GPUs and cores of its workers, then of its servers
    task     (1 + Y + 6,)   p: 1 for a parameter server, and the same of the job to be placed; 0 without a task
    links    (E,)           load of each edge of the inner graph
    inter    (E',)          load of each edge of the inter graph

With `shows=types` there are no `jobs`, and a group has (M, L + 2 + 2Y): how many workers and servers it has of the job to be
placed, then of all other jobs of each model (workers of the Y models, then servers).

The jobs of a scheduler are those that came to it and those that have tasks there, in order of arrival; if there are more than N,
the last are not shown. Amounts are divided by the largest of the paper's settings and cut off at 1: 8 GPUs, 32 cores, 8 tasks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.learned.marl.graphs import MOST_CORES, MOST_GPUS, MOST_TASKS, RESOURCES, TYPES, Layout
from simulator.papers.marl.graphs import graphs_of
from simulator.papers.marl.options import BY_TYPE
from simulator.papers.marl.state.jobs import Ints
from simulator.papers.marl.state.placements import NOWHERE
from simulator.papers.marl.world import World
from simulator.slowdown.profiles.model_profiles import key_of
from simulator.traces.generators.dl2 import MODELS

Cells = npt.NDArray[np.float32]
View = dict[str, Cells]
_LEAST_JOBS = 8
_TYPE = {key_of(name): place for place, name in enumerate(MODELS)}


class Observer:
    """Makes observations of a world. Invariant: `_views[v]` is that of scheduler v at `_versions[v]`: its own, and the network's.

    Views are shared: they must not be changed.
    """

    def __init__(self, world: World) -> None:
        center = world.center
        self._world = world
        self._graphs = graphs = graphs_of(center)
        gpus = int(center.group_gpus[: center.groups_each].sum())
        shown = world.options.concurrent or max(_LEAST_JOBS, gpus // 2)
        by_type = world.options.shows == BY_TYPE
        self.layout = Layout(center.schedulers, center.groups_each, shown, graphs.inner, graphs.inter, by_type)
        self._views: list[View] = [{} for _ in range(center.schedulers)]
        self._versions = [(-1, -1)] * center.schedulers
        self._of_job: Cells
        self._type: Ints

    def begin(self) -> None:
        """Begin an episode of the world."""
        jobs = self._world.jobs
        count = len(jobs)
        self._versions = [(-1, -1)] * len(self._versions)
        self._of_job = np.zeros((count, self.layout.of_job), dtype=np.float32)
        types = np.array([_TYPE.get(key_of(model), TYPES) for model in jobs.models], dtype=np.int64)
        self._type = types[jobs.model] if count else np.zeros(0, dtype=np.int64)
        known = np.flatnonzero(self._type < TYPES)
        self._of_job[known, self._type[known]] = 1.0
        first = TYPES
        for number, column in ((jobs.workers, 0), (jobs.servers, None)):
            task = np.zeros(count, dtype=np.int64) if column is not None else jobs.workers
            at = np.arange(count)
            self._of_job[:, first] = np.minimum(number / MOST_TASKS, 1.0)
            self._of_job[:, first + 1] = jobs.gpus[at, task] / MOST_GPUS
            self._of_job[:, first + 2] = np.minimum(jobs.cores[at, task] / MOST_CORES, 1.0)
            first += 1 + RESOURCES

    def view(self, scheduler: int) -> View:
        """Return the observation of one scheduler."""
        world = self._world
        version = (world.versions[scheduler], world.traffic.version)
        if self._versions[scheduler] != version:
            seen = dict(self._views[scheduler])
            if self._versions[scheduler][0] != version[0]:
                seen |= self._seen(scheduler)
            pairs = world.traffic.pairs
            load = self._graphs.inner_loads[scheduler].shown(pairs)
            groups = world.center.groups_of(scheduler)
            load[: self.layout.groups] = np.clip(world.placed.pcie[groups], 0.0, 1.0)
            seen["links"] = load.astype(np.float32)
            seen["inter"] = self._graphs.inter_loads.shown(pairs).astype(np.float32)
            self._views[scheduler], self._versions[scheduler] = seen, version
        return self._views[scheduler]

    def _seen(self, scheduler: int) -> View:
        world, layout = self._world, self.layout
        placed, groups = world.placed, world.center.groups_of(scheduler)
        head = world.head(scheduler)
        rows = np.zeros(0, dtype=np.int64) if layout.by_type else world.present(scheduler)[: layout.jobs]
        cells = np.zeros((layout.groups, layout.of_group), dtype=np.float32)
        cells[:, 0] = (world.center.group_gpus[groups] - placed.gpus[groups]) / MOST_GPUS
        cells[:, 1] = (placed.logical[groups] - placed.cores[groups]) / MOST_CORES
        if layout.by_type:
            self._count_types(cells, groups, None if head is None else head.job)
        else:
            self._count(cells, rows, groups)
        np.clip(cells, 0.0, 1.0, out=cells)
        task = np.zeros(layout.of_task, dtype=np.float32)
        if head is not None:
            task[0] = not world.jobs.is_worker[head.job, head.column]
            task[1:] = self._of_job[head.job]
        if layout.by_type:
            return {"groups": cells, "task": task}
        jobs = np.zeros((layout.jobs, layout.of_job), dtype=np.float32)
        jobs[: len(rows)] = self._of_job[rows]
        return {"groups": cells, "jobs": jobs, "task": task}

    def _count(self, cells: Cells, rows: Ints, groups: slice) -> None:
        """Add the numbers of workers and servers of these jobs on each group."""
        group = self._world.placed.group[rows]
        here = (group != NOWHERE) & (group >= groups.start) & (group < groups.stop)
        job, column = np.nonzero(here)
        is_server = ~self._world.jobs.is_worker[rows][job, column]
        place = group[job, column] - groups.start
        np.add.at(cells, (place, RESOURCES + 2 * job + is_server), 1.0 / MOST_TASKS)

    def _count_types(self, cells: Cells, groups: slice, own: int | None) -> None:
        """Add the numbers of workers and servers of the job to be placed, and of the other jobs of each type, on each group."""
        group = self._world.placed.group
        job, column = np.nonzero((group >= groups.start) & (group < groups.stop))
        is_server = ~self._world.jobs.is_worker[job, column]
        kind = self._type[job]
        feature = RESOURCES + 2 + kind + TYPES * is_server
        is_own = job == (-1 if own is None else own)
        feature[is_own] = RESOURCES + is_server[is_own]
        shown = is_own | (kind < TYPES)
        np.add.at(cells, (group[job, column][shown] - groups.start, feature[shown]), 1.0 / MOST_TASKS)
