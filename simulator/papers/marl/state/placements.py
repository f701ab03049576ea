"""Where the tasks of jobs are, and what is left of each GPU group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.papers.marl.state.data_center import DataCenter
from simulator.papers.marl.state.jobs import Flags, Floats, Ints, Jobs

NOWHERE = -1


@dataclass
class Placements:
    """Invariant: `gpus`, `cores`, `pcie` and `server_cores` are the sums over the placed tasks in `group`; no group has more GPUs
    in use than it has, nor more cores than its logical ones."""

    center: DataCenter
    jobs: Jobs
    logical: Floats
    """Logical cores of each group (G)."""
    group: Ints
    """Group of each task (jobs, T); NOWHERE for those that are not placed."""
    gpus: Ints
    """GPUs in use of each group (G)."""
    cores: Floats
    """Cores in use of each group (G)."""
    pcie: Floats
    """Sum of shares of PCIe of the workers in each group (G)."""
    server_cores: Floats
    """Cores in use of each server."""

    @staticmethod
    def none(center: DataCenter, jobs: Jobs, threads: float) -> Placements:
        """Return the placements when no task is placed."""
        groups = center.num_groups
        return Placements(
            center,
            jobs,
            threads * center.group_cores,
            np.full(jobs.is_task.shape, NOWHERE),
            np.zeros(groups, dtype=np.int64),
            np.zeros(groups),
            np.zeros(groups),
            np.zeros(center.topology.num_nodes),
        )

    def room(self, job: int, task: int, groups: slice) -> Flags:
        """Return which of these groups have room for a task."""
        gpus = self.gpus[groups] + self.jobs.gpus[job, task] <= self.center.group_gpus[groups]
        found: Flags = gpus & (self.cores[groups] + self.jobs.cores[job, task] <= self.logical[groups] + 1e-9)
        return found

    def put(self, job: int, task: int, group: int) -> None:
        """Place a task."""
        self.group[job, task] = group
        self._add(job, task, group, 1)

    def clear(self, job: int) -> None:
        """Take back all placed tasks of a job."""
        for task in np.flatnonzero(self.group[job] != NOWHERE).tolist():
            self._add(job, task, int(self.group[job, task]), -1)
        self.group[job] = NOWHERE

    def _add(self, job: int, task: int, group: int, sign: int) -> None:
        jobs = self.jobs
        self.gpus[group] += sign * jobs.gpus[job, task]
        self.cores[group] += sign * jobs.cores[job, task]
        self.pcie[group] += sign * jobs.pcie[job, task]
        self.server_cores[self.center.group_server[group]] += sign * jobs.cores[job, task]

    def servers_of(self, job: int) -> tuple[dict[int, int], dict[int, int]]:
        """Return the placed workers, and the placed parameter servers, of a job on each server that has any."""
        found: tuple[dict[int, int], dict[int, int]] = ({}, {})
        is_worker: npt.NDArray[np.bool_] = self.jobs.is_worker[job]
        for task, group in enumerate(self.group[job].tolist()):
            if group != NOWHERE:
                of = found[0 if is_worker[task] else 1]
                server = int(self.center.group_server[group])
                of[server] = of.get(server, 0) + 1
        return found
