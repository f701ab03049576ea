"""Baselines that act in DL2's environment itself (Peng et al., TPDS 2021, section 6.2): they see servers and cores.

Each gives one task after the other in every slot, by a rule; a **pair** is a worker and a server, or a worker alone of an
all-reduce job. Without the bundle action, a pair is given as a server and then a worker. Every baseline sees the stated epochs and
the average speed of a job's type, as an agent does; only `simulator.papers.dl2.rules.greedy` knows the true speeds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from policies.learned.dl2.state_columns import BOTH, SERVER, WORKER
from policies.learned.training.agents import Mask
from policies.options import number, whole
from simulator.errors import SettingError
from simulator.kernel.job import ActiveJob
from simulator.papers.dl2.env import ElasticAllocationEnv
from simulator.papers.dl2.servers import SpeedLaw, believed_step_s, law_of, nics_gbs


class ElasticAgent(ABC):
    """An `Agent` that acts in `headway/ElasticAllocation-v0` by a rule over the jobs that the state shows."""

    deviations = 0

    def __init__(self) -> None:
        self.env: ElasticAllocationEnv

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:  # noqa: ARG002 - the protocol
        """Begin an episode. Raises SettingError for another environment."""
        if not isinstance(env.unwrapped, ElasticAllocationEnv):
            raise SettingError("the baselines of DL2 act in headway/ElasticAllocation-v0; give that as --env")
        self.env = env.unwrapped

    def act(self, observation: Any, mask: Mask | None) -> int:
        """Return the next action; void if the rule gives no more."""
        possible = self.env.action_masks() if mask is None else mask
        chosen = self.choose(observation, possible)
        return len(possible) - 1 if chosen is None else chosen

    @abstractmethod
    def choose(self, state: Any, mask: Mask) -> int | None:
        """Return the action that gives the next task; None if no job is to get more."""

    def workers(self, state: Any, row: int) -> int:
        """Return the workers of the job of that row in this slot."""
        return int(state[row, self.env.shown.w])

    def servers(self, state: Any, row: int) -> int:
        """Return the servers of the job of that row in this slot."""
        return int(state[row, self.env.shown.u])

    def is_all_reduce(self, row: int) -> bool:
        """Return whether the job of that row has no servers."""
        return self.env.footprints.is_all_reduce(self.env.shown.batch[row].index)

    def pair(self, state: Any, mask: Mask, row: int) -> int | None:
        """Return the action that gives a pair to that job, or the next part of one; None if that is not possible."""
        kind = BOTH
        if self.is_all_reduce(row):
            kind = WORKER
        elif not self.env.options.bundle:
            kind = WORKER if self.servers(state, row) > self.workers(state, row) else SERVER
        action = 3 * row + kind
        return action if mask[action] else None

    def remaining_s(self, job: ActiveJob) -> float:
        """Return the run time at the requested size that follows from the stated epochs that are left."""
        return float(self.env.perturbation.usual_s[job.index]) * self.env.progress.share_left(job)

    def first(self, state: Any, mask: Mask, rows: Sequence[int]) -> int | None:
        """Return a pair for the first of these rows that can have one."""
        return next((found for row in rows if (found := self.pair(state, mask, row)) is not None), None)


class DRF(ElasticAgent):
    """Dominant Resource Fairness: a pair for the job with the smallest dominant share, until nothing fits."""

    def choose(self, state: Any, mask: Mask) -> int | None:
        """Return the action that gives the next task; ties go to the job that arrived first."""
        shares = state[: len(self.env.shown.batch), self.env.shown.r]
        return self.first(state, mask, np.argsort(shares, kind="stable").tolist())


class Ordered(ElasticAgent):
    """Jobs in an order; each grows to a number of workers before the next one gets any."""

    def __init__(self, workers: int = 0) -> None:
        """A job grows to that number of workers (0: to the number that it requests), within its own maximum.

        Raises ValueError for another number.
        """
        super().__init__()
        self._workers = whole("workers", workers, least=0)

    def choose(self, state: Any, mask: Mask) -> int | None:
        """Return a pair for the first job in the order that has fewer workers than it grows to."""
        jobs = self.env.shown.batch
        rows = [row for row in self.order(jobs) if self.workers(state, row) < (self._workers or jobs[row].gpus)]
        return self.first(state, mask, rows)

    @abstractmethod
    def order(self, jobs: Sequence[ActiveJob]) -> Sequence[int]:
        """Return the rows of these jobs (which are sorted by arrival), the one that is served first in front."""


class FIFO(Ordered):
    """First in, first out: jobs in order of arrival grow to the workers that they request."""

    def order(self, jobs: Sequence[ActiveJob]) -> Sequence[int]:
        """See the class."""
        return range(len(jobs))


class SRTF(Ordered):
    """Shortest remaining time first: jobs in order of their remaining time grow to the workers that they request."""

    def order(self, jobs: Sequence[ActiveJob]) -> Sequence[int]:
        """See the class."""
        return sorted(range(len(jobs)), key=lambda row: self.remaining_s(jobs[row]))


class Tetris(Ordered):
    """Tetris: the job that uses the free resources best and ends soonest grows to `workers` workers, then the next one (6.3).

    The score is alignment (a pair's demand times what is free, as shares of the cluster) less the remaining time, each relative to
    its mean over the jobs.
    """

    def __init__(self, workers: int = 8, time_weight: float = 1.0) -> None:
        """`workers` is the user-defined threshold; with `time_weight=0` only alignment counts."""
        super().__init__(workers)
        self._time_weight = number("time_weight", time_weight, unit="mean ratios")

    def order(self, jobs: Sequence[ActiveJob]) -> Sequence[int]:
        """See the class."""
        options, tasks = self.env.options, self.env.tasks
        free_gpus = float(tasks.gpus.sum()) / self.env.cluster.num_gpus
        all_cpus = self.env.num_cpus
        free_cpus = float(tasks.cpus.sum()) / all_cpus
        cpus = np.array(
            [
                options.worker_cpus + options.server_cpus * (not self.env.footprints.is_all_reduce(job.index))
                for job in jobs
            ]
        )
        fit = free_gpus / self.env.cluster.num_gpus + cpus / all_cpus * free_cpus
        left = np.array([self.remaining_s(job) for job in jobs])
        scores = fit / (fit.mean() or 1.0) - self._time_weight * left / (left.mean() or 1.0)
        return np.argsort(-scores.round(12), kind="stable").tolist()  # type: ignore[no-any-return] # of numpy


class Optimus(ElasticAgent):
    """Optimus: first every job gets a pair; then each task goes to the job whose remaining time it shortens most for its resources.

    Speeds are those of Optimus' model, fitted to runs of each job alone. The gain is divided by the task's dominant share.
    """

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        """Begin an episode. Raises SettingError for another environment."""
        super().begin(env, seed)
        self._nic_gbs = min(nics_gbs(self.env.cluster.topology))

    def choose(self, state: Any, mask: Mask) -> int | None:
        """Return the action that gives the next task; ties go to the job that arrived first."""
        jobs = self.env.shown.batch
        waiting = [row for row in range(len(jobs)) if not self._runs(state, row)]
        action = self.first(state, mask, waiting)
        if action is None and not self.env.options.bundle:
            # A server without its worker has no use: jobs that lack one come first.
            halves = [3 * row + WORKER for row in waiting if self.servers(state, row) and mask[3 * row + WORKER]]
            action = halves[0] if halves else None
        return self._best(state, mask) if action is None else action

    def _runs(self, state: Any, row: int) -> bool:
        least = self.env.trace.min_gpus[self.env.shown.batch[row].index]
        return self.workers(state, row) >= least and (self.servers(state, row) > 0 or self.is_all_reduce(row))

    def _best(self, state: Any, mask: Mask) -> int | None:
        gains = {}
        for action in np.flatnonzero(mask[:-1]).tolist():
            row, kind = divmod(action, 3)
            if self._runs(state, row):
                gains[action] = self._gain(state, row, kind)
        best = max(gains, key=lambda action: gains[action], default=None)
        return best if best is not None and gains[best] > 0 else None

    def _gain(self, state: Any, row: int, kind: int) -> float:
        """Return the seconds by which the task shortens the job, for each share of the cluster."""
        options, job = self.env.options, self.env.shown.batch[row]
        workers, servers = self.workers(state, row), self.servers(state, row)
        more_workers, more_servers = int(kind != SERVER), int(kind != WORKER)
        cpus = more_workers * options.worker_cpus + more_servers * options.server_cpus
        share = max(more_workers / self.env.cluster.num_gpus, cpus / self.env.num_cpus)
        law, asked = self._law(job), (job.gpus, self.env.footprints.asked[job.index])
        ideal = believed_step_s(law, *asked)
        before = believed_step_s(law, workers, servers) / ideal
        after = believed_step_s(law, workers + more_workers, servers + more_servers) / ideal
        return self.remaining_s(job) * (before - after) / share

    def _law(self, job: ActiveJob) -> SpeedLaw:
        trace = self.env.trace
        profile = self.env.options.profiles.of(trace.model[job.index])
        return law_of(profile, int(trace.batch_size[job.index]), job.gpus, self._nic_gbs)
