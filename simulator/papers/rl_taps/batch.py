"""Many clusters that step together, as arrays with a row for each (sections 4.3 to 4.6).

One step: every GPU gets a job slot or none; jobs run at their speeds (`speeds`) for one step; then time advances by one step, jobs
whose work is done leave, new jobs arrive, and free slots are filled from the backlog in order of arrival. A job that is done gives
its GPUs back at the end of the step.

The reward of a step is the sum of speeds, less two penalties (section 4.4.2): `idle_weight` times the speed that each job without
GPUs, in a slot or in the backlog, would have alone in one rack on its requested GPUs (equation 5); and, with full preemption,
`fewer_weight` times the speed of each GPU of a job that runs on fewer than requested, for each GPU that it lacks (equation 6). The
unit is the advertised speed of a GPU. With `reward="slowdown"` the reward is minus the sum of 1 / length over all jobs that have
arrived and not finished.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from policies.learned.rl_taps.image_columns import ImageColumns
from simulator.cluster.topology.gpu_links import GpuLinks
from simulator.papers.rl_taps.image import Image, Painter
from simulator.papers.rl_taps.jobs import Jobs
from simulator.papers.rl_taps.options import FULL, SLOWDOWN, RlTapsOptions
from simulator.papers.rl_taps.speeds import Rates, Speeds

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NONE_LEFT = 1e-9
"""Cells that count as none: errors of rounding."""


@dataclass
class Columns:
    """The jobs of all clusters (B, W + 1), padded. Invariant: entry W of each row, and all behind its jobs, are no job: 0."""

    gpus: Ints
    length: Floats
    reduction: Floats
    ideal: Floats
    left: Floats
    """Cells of work that are left."""
    finish: Ints
    """Step at whose end the job's work was done; 0: not yet."""
    each_step: Floats
    """Slowdown of each step in which the job is there: 1 / length."""
    ideal_before: Floats
    """Sum of `ideal` over all earlier jobs (B, W + 2)."""
    each_step_before: Floats
    """Sum of `each_step` over all earlier jobs (B, W + 2)."""
    arrived: Ints
    """Number of jobs that have arrived by each step (B, steps + 1)."""

    @staticmethod
    def room(clusters: int, jobs: int, steps: int) -> Columns:
        """Return columns without jobs."""
        gpus, finish = (np.zeros((clusters, jobs + 1), dtype=np.int64) for _ in range(2))
        length, reduction, ideal, left, each_step = (np.zeros((clusters, jobs + 1)) for _ in range(5))
        before = [np.zeros((clusters, jobs + 2)) for _ in range(2)]
        arrived = np.zeros((clusters, steps + 1), dtype=np.int64)
        return Columns(gpus, length, reduction, ideal, left, finish, each_step, before[0], before[1], arrived)

    def widened(self, jobs: int) -> Columns:
        """Return the same jobs in columns with room for more."""
        clusters, steps = self.arrived.shape
        wide = Columns.room(clusters, jobs, steps - 1)
        count = self.gpus.shape[1] - 1
        for each in fields(self)[:-3]:
            getattr(wide, each.name)[:, :count] = getattr(self, each.name)[:, :count]
        wide.ideal_before[:, 1:] = np.cumsum(wide.ideal, axis=1)
        wide.each_step_before[:, 1:] = np.cumsum(wide.each_step, axis=1)
        wide.arrived[:] = self.arrived
        return wide

    def put(self, row: int, jobs: Jobs) -> None:
        """Set the jobs of one cluster."""
        count = len(jobs)
        for column, values in (
            (self.gpus, jobs.gpus),
            (self.length, jobs.length),
            (self.reduction, jobs.reduction),
            (self.ideal, jobs.ideal),
            (self.left, jobs.length * jobs.gpus),
            (self.each_step, 1.0 / jobs.length),
        ):
            column[row, :count] = values
            column[row, count:] = 0
        self.finish[row] = 0
        self.ideal_before[row, 1:] = np.cumsum(self.ideal[row])
        self.each_step_before[row, 1:] = np.cumsum(self.each_step[row])
        self.arrived[row] = np.searchsorted(jobs.arrival, np.arange(self.arrived.shape[1]), side="right")


@dataclass
class RlTapsBatch:
    """B clusters. Invariants between steps: a GPU has at most one job; `slots` are jobs that have arrived and not finished, `none`
    where empty; no slot is empty while the backlog has jobs; the work done and the work left of a job add up to its work.

    With full preemption job r of `rates` is that of slot r; without, it is the job whose first GPU is r.
    """

    options: RlTapsOptions
    links: GpuLinks
    clusters: int
    jobs: list[Jobs | None] = field(init=False)
    """The jobs of each cluster; None before `begin`."""

    def __post_init__(self) -> None:
        options, count, gpus = self.options, self.clusters, self.links.num_gpus
        self.columns = ImageColumns(gpus, options.slots, options.widest, options.rows, options.backlog)
        self.is_full = options.preemption == FULL
        self.speeds = Speeds(self.links, options.efficiency, options.profiles.ring.per_rack)
        self.jobs = [None] * count
        self._counts = np.zeros(count, dtype=np.int64)
        self._painter = Painter(self.columns)
        self._every = np.arange(count)[:, None]
        self.now = np.zeros(count, dtype=np.int64)
        self.entered = np.zeros(count, dtype=np.int64)
        """Number of jobs that have come into slots."""
        self.owner = np.full((count, gpus), -1)
        """Job of `rates` on each GPU in the last step, if it still runs; -1 for none."""
        self.stops = np.zeros(count, dtype=np.int64)
        """Number of times that a job was moved, or resumed after a pause."""
        self.busy = np.zeros(count, dtype=np.int64)
        """GPUs in use, added up over steps."""
        running = options.slots if self.is_full else gpus
        self.none = 0
        """The number that stands for no job: that behind the longest sequence."""
        self.of = Columns.room(count, 0, options.max_steps)
        self.slots = np.zeros((count, options.slots), dtype=np.int64)
        """Job number in each slot."""
        self.running = self.slots if self.is_full else np.zeros((count, running), dtype=np.int64)
        """Job number of each job of `rates`."""
        self._sets = np.zeros((self.speeds.words, running, count), dtype=np.uint64)
        """GPUs of each job in the last step."""
        self._ran = np.zeros((count, running), dtype=np.bool_)
        self._speed = np.zeros((count, running))

    def begin(self, row: int, jobs: Jobs) -> None:
        """Begin an episode in one cluster."""
        if len(jobs) > self.none:
            self._widen(len(jobs))
        self.jobs[row] = jobs
        self._counts[row] = len(jobs)
        self.of.put(row, jobs)
        self.now[row] = self.entered[row] = self.stops[row] = self.busy[row] = 0
        self.owner[row] = -1
        self.slots[row] = self.running[row] = self.none
        self._sets[:, :, row] = 0
        self._ran[row] = False
        self._speed[row] = 0.0
        self._fill()

    def _widen(self, jobs: int) -> None:
        """Make room for sequences of so many jobs."""
        before, self.none = self.none, jobs
        self.of = self.of.widened(jobs)
        for places in (self.slots, self.running):
            places[places == before] = jobs

    def step(self, actions: npt.NDArray[np.integer]) -> Floats:
        """Make one step with these actions (B, GPUs), 0 for no job or the slot from 1 on; return the rewards (B).

        A GPU given to an empty slot stays free; without preemption a GPU that has a job keeps it.
        """
        self._assign(np.asarray(actions, dtype=np.int64))
        running, every = self.running, self._every
        rates = self.speeds.rates(self.owner, self.of.reduction[every, running])
        speed = self._charged(rates)
        reward = self._reward(speed, rates)
        self._run(speed, rates)
        self._fill()
        return reward

    @property
    def is_done(self) -> Flags:
        """True where all jobs have arrived and finished."""
        found: Flags = (
            (self.entered == self._counts) & (self.slots == self.none).all(1) & (self.running == self.none).all(1)
        )
        return found

    @property
    def is_late(self) -> Flags:
        """True where Tmax is reached."""
        found: Flags = self.now >= self.options.max_steps
        return found

    @property
    def backlog(self) -> Ints:
        """Number of jobs that have arrived and wait for a slot."""
        at = np.minimum(self.now, self.options.max_steps)
        return self.of.arrived[self._every[:, 0], at] - self.entered

    def images(self) -> Image:
        """Return the observations (B, rows, columns)."""
        owner, every = self.owner, self._every
        left = self.of.left[every, self.running] / np.where(self._speed > 0, self._speed, np.inf)
        steps = np.where(owner < 0, 0.0, left[every, np.maximum(owner, 0)])
        gpus = self.of.gpus[every, self.slots]
        tall = self.of.left[every, self.slots] / np.maximum(gpus, 1)
        return self._painter.paint(owner, steps, tall, gpus, self.backlog)

    # Parts of a step

    def _assign(self, actions: Ints) -> None:
        """Set `owner` by the actions."""
        given = actions - 1
        given = np.where(self.slots[self._every, np.maximum(given, 0)] == self.none, -1, given)
        if self.is_full:
            self.owner = given
            return
        given[self.owner >= 0] = -1
        rows, gpus = np.nonzero(given >= 0)
        if not len(rows):
            return
        slots = given[rows, gpus]
        first = np.full(self.slots.shape, self.links.num_gpus)
        np.minimum.at(first, (rows, slots), gpus)
        self.owner[rows, gpus] = first[rows, slots]
        rows, slots = np.nonzero(first < self.links.num_gpus)
        self.running[rows, first[rows, slots]] = self.slots[rows, slots]
        self.slots[rows, slots] = self.none

    def _charged(self, rates: Rates) -> Floats:
        """Return the average speeds in this step, less what jobs lose by moves and pauses; count these."""
        runs = rates.gpus > 0
        if self.is_full:
            moved = self._ran & runs & (rates.sets != self._sets).any(0).T
            self.stops += moved.sum(1)
            self._sets = rates.sets
            self._ran |= runs
            if self.options.restart_s:
                return np.where(moved, 1.0 - self.options.restart_s / self.options.step_s, 1.0) * rates.speed
        return rates.speed

    def _reward(self, speed: Floats, rates: Rates) -> Floats:
        """Return the rewards of this step (B)."""
        options, of, every = self.options, self.of, self._every
        found: Floats
        if options.reward == SLOWDOWN:
            there = of.each_step[every, self.slots].sum(1)
            if not self.is_full:
                there = there + of.each_step[every, self.running].sum(1)
            found = -(there + self._behind(of.each_step_before))
            return found
        waiting = of.ideal[every, self.slots]
        if self.is_full:
            waiting = np.where(rates.gpus > 0, 0.0, waiting)
        idle = waiting.sum(1) + self._behind(of.ideal_before)
        found = speed.sum(1) - options.idle_weight * idle
        if self.is_full and options.fewer_weight:
            lacks = np.maximum(of.gpus[every, self.slots] - rates.gpus, 0)
            found -= options.fewer_weight * (lacks * speed / np.maximum(rates.gpus, 1)).sum(1)
        return found

    def _behind(self, before: Floats) -> Floats:
        """Return the sum over the backlog of a column whose sums over earlier jobs these are (B)."""
        rows, entered = self._every[:, 0], self.entered
        found: Floats = before[rows, entered + self.backlog] - before[rows, entered]
        return found

    def _run(self, speed: Floats, rates: Rates) -> None:
        """Let the jobs run for a step, and remove those that are done."""
        every, running = self._every, self.running
        left = self.of.left[every, running] - speed
        done = (rates.gpus > 0) & (left <= _NONE_LEFT)
        self.now += 1
        self.busy += rates.gpus.sum(1)
        self.of.left[every, running] = np.where(done | (running == self.none), 0.0, left)
        self._speed = speed
        if done.any():
            rows, places = np.nonzero(done)
            self.of.finish[rows, running[rows, places]] = self.now[rows]
            self.running[rows, places] = self.none
            self._sets[:, places, rows] = 0
            self._ran[rows, places] = False
            self.owner[(self.owner >= 0) & done[every, np.maximum(self.owner, 0)]] = -1

    def _fill(self) -> None:
        """Fill free slots from the backlog."""
        backlog = self.backlog
        if not backlog.any():
            return
        free = self.slots == self.none
        rank = np.cumsum(free, axis=1) - 1
        taken = free & (rank < backlog[:, None])
        self.slots[taken] = (self.entered[:, None] + rank)[taken]
        self.entered += taken.sum(1)
