"""The state that DL2's agent sees, s = (x, d, e, r, w, u), and the mask of its actions (section 4.1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.learned.dl2.state_columns import BOTH, SERVER, WORKER
from simulator.envs.base import Mask
from simulator.kernel.job import ActiveJob
from simulator.papers.dl2.options import ElasticOptions
from simulator.papers.dl2.progress import EpochProgress
from simulator.papers.dl2.servers import Footprints
from simulator.papers.dl2.tasks import Tasks
from simulator.slowdown.profiles.model_profiles import key_of
from simulator.traces.trace import Trace

State = npt.NDArray[np.float32]
MOST = 1e6
"""Slots and epochs that a state can show."""


class Observation:
    """The state of one batch of jobs.

    Invariant: between calls, `state` shows the tasks given to the jobs of `batch` so far, and `mask` the actions that are possible.
    """

    def __init__(self, options: ElasticOptions, num_gpus: int, num_cpus: int) -> None:
        """Show no jobs. GPUs and cores are those of the whole cluster, down or not."""
        size, types = options.concurrent, len(options.types)
        self.state: State = np.zeros((size, types + 5), dtype=np.float32)
        self.mask: Mask = np.zeros(3 * size + 1, dtype=np.bool_)
        self.batch: list[ActiveJob] = []
        # Columns of the state after the types
        self.d, self.e, self.r, self.w, self.u = range(types, types + 5)
        self._type_of = {key_of(name): row for row, name in enumerate(options.types)}
        self._options = options
        self._num_gpus = num_gpus
        self._num_cpus = num_cpus
        self._most = np.zeros((size, 2), dtype=np.float32)
        """Maximum of workers and of servers of each row."""
        self._trace: Trace
        self._footprints: Footprints
        self._progress: EpochProgress
        self._tasks: Tasks

    @property
    def high(self) -> State:
        """Return the largest value of each entry; the smallest is 0."""
        high = np.full_like(self.state, MOST)
        high[:, : self.d] = 1.0
        high[:, self.r] = 1.0
        return high

    @property
    def has_choice(self) -> bool:
        """Return whether any action besides void is possible."""
        return bool(self.mask[:-1].any())

    def begin(self, trace: Trace, progress: EpochProgress, footprints: Footprints) -> None:
        """Begin an episode."""
        self._trace, self._progress, self._footprints = trace, progress, footprints

    def show(self, jobs: list[ActiveJob], tasks: Tasks) -> None:
        """Show a batch of at most J jobs, with the tasks given in this slot."""
        self.batch, self._tasks = jobs, tasks
        self.state[:] = 0
        self._most[:] = 0
        for row, job in enumerate(jobs):
            kind = self._type_of.get(key_of(self._trace.model[job.index]))
            if kind is not None:
                self.state[row, kind] = 1.0
            self.state[row, self.d] = min(self._progress.slots_run.get(job.index, 0), MOST)
            self.state[row, self.e] = min(self._progress.epochs_left(job), MOST)
            if not (job.fixed and job.occupied):
                most = self._trace.max_gpus[job.index]
                self._most[row] = most, 0 if self._footprints.is_all_reduce(job.index) else most
            self._show_tasks(row)
        self._update_mask()

    def update(self, row: int) -> None:
        """Show that the job of this row was given a task."""
        self._show_tasks(row)
        self._update_mask()

    def _show_tasks(self, row: int) -> None:
        """Show the tasks of that job."""
        options, job = self._options, self.batch[row].index
        workers, servers = sum(self._tasks.workers(job).values()), sum(self._tasks.servers(job).values())
        cpus = workers * options.worker_cpus + servers * options.server_cpus
        self.state[row, self.w], self.state[row, self.u] = workers, servers
        self.state[row, self.r] = max(workers / self._num_gpus, cpus / self._num_cpus)

    def _update_mask(self) -> None:
        """Set the mask of possible actions."""
        worker, server, both = self._tasks.room
        mask = self.mask[:-1].reshape(-1, 3)
        np.less(self.state[:, self.w :], self._most, out=mask[:, :2])
        np.logical_and(mask[:, WORKER], mask[:, SERVER], out=mask[:, BOTH])
        both = both and self._options.bundle
        if not (worker and server and both):
            mask &= (worker, server, both)
        self.mask[-1] = True
