"""Observations of the schedulers of a cluster: those of `headway/Marl-v0` with `shows=types`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.learned.marl.graphs import MOST_CORES, MOST_GPUS, MOST_TASKS, RESOURCES, TYPES, Floats
from policies.learned.marl.serving.cluster_graphs import ClusterGraphs
from policies.learned.marl.serving.job_columns import JobColumns
from policies.learned.marl.serving.occupancy import SERVERS, WORKERS, Occupancy
from policies.learned.marl.serving.schedulers import Schedulers

View = dict[str, npt.NDArray[np.float32]]


class Views:
    """Makes observations. Invariant: an observation stays the same object until it changes; callers must not change it."""

    def __init__(
        self, schedulers: Schedulers, graphs: ClusterGraphs, columns: JobColumns, occupancy: Occupancy
    ) -> None:
        self._schedulers, self._graphs = schedulers, graphs
        self._columns, self._occupancy = columns, occupancy
        self._stale = [True] * schedulers.count
        """Schedulers whose groups or task changed."""
        self._pairs = [-1] * schedulers.count
        self._views: list[View] = [{}] * schedulers.count
        self._inter: Floats
        self._inter_pairs = -1

    def change(self, scheduler: int) -> None:
        """Note that groups or the task of a scheduler changed."""
        self._stale[scheduler] = True

    def change_all(self) -> None:
        """Note that those of all changed."""
        self._stale = [True] * len(self._stale)

    def view(self, scheduler: int, job: int | None, *, is_server: bool) -> View:
        """Return what a scheduler sees whose first task is a worker, or a server, of that job; None: it has no task."""
        version = self._occupancy.version
        if self._stale[scheduler] or self._pairs[scheduler] != version:
            links = self._links(scheduler)
            known = self._views[scheduler]
            if self._stale[scheduler] or not np.array_equal(links, known["links"]):
                fresh = self._seen(scheduler, job, is_server) if self._stale[scheduler] else known
                self._views[scheduler] = {**fresh, "links": links}
            self._stale[scheduler], self._pairs[scheduler] = False, version
        return self._views[scheduler]

    def inter(self) -> Floats:
        """Return the loads between the schedulers."""
        if self._inter_pairs != self._occupancy.version:
            self._inter = self._graphs.inter_loads.shown(self._occupancy.pairs).astype(np.float32)
            self._inter_pairs = self._occupancy.version
        return self._inter

    def _links(self, scheduler: int) -> Floats:
        groups = self._schedulers.groups_of(scheduler)
        load = self._graphs.inner_loads[scheduler].shown(self._occupancy.pairs)
        load[: groups.stop - groups.start] = np.clip(self._occupancy.pcie[groups], 0.0, 1.0)
        return load.astype(np.float32)

    def _seen(self, scheduler: int, job: int | None, is_server: bool) -> View:
        layout, groups = self._graphs.layouts[scheduler], self._schedulers.groups_of(scheduler)
        occupancy, first = self._occupancy, RESOURCES + 2
        cells = np.zeros((layout.groups, layout.of_group), dtype=np.float32)
        cells[:, 0] = occupancy.free_gpus[groups] / MOST_GPUS
        cells[:, 1] = occupancy.free_cores[groups] / MOST_CORES
        cells[:, first:] = occupancy.tasks[groups] / MOST_TASKS
        task = np.zeros(layout.of_task, dtype=np.float32)
        if job is not None:
            task[0] = is_server
            task[1:] = self._columns.features[job]
            kind = first + int(self._columns.kind[job])
            for group, counts in occupancy.own.get(job, {}).items():
                if groups.start <= group < groups.stop:
                    place = group - groups.start
                    cells[place, RESOURCES : RESOURCES + 2] = counts[WORKERS] / MOST_TASKS, counts[SERVERS] / MOST_TASKS
                    cells[place, [kind, kind + TYPES]] = (
                        occupancy.tasks[group, [kind - first, kind - first + TYPES]] - counts
                    ) / MOST_TASKS
        np.clip(cells, 0.0, 1.0, out=cells)
        return {"groups": cells, "task": task}
