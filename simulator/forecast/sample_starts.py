"""Samples of the starts of waiting jobs: the kernel runs the rule from the present queue on, once for each sample."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

import numpy as np

from policies.model import FloatColumn
from policies.rule import Discipline, Order, Rule
from simulator.errors import RuleTooSlowError
from simulator.forecast.arrivals import Arrivals
from simulator.forecast.queue import Queue, QueueJobs
from simulator.kernel.constants import NOWHERE
from simulator.kernel.fill import Backfill, fill
from simulator.kernel.job import ActiveJob
from simulator.kernel.log import FinishLog
from simulator.kernel.loop import Loop
from simulator.kernel.nodes import NodePool
from simulator.kernel.select import Selection

_NS = 1_000_000_000
_STOP_COST_NS = 30 * _NS
"""Overhead of a stop, ns."""
UNTIL_S = 60 * 86400.0
"""Longest time that is looked ahead, seconds."""
MOST_INSTANTS = 60_000
"""Number of instants after which a sample is broken off."""
_CLOCK_EVERY = 64
"""Number of instants that every sample has, and after which the clock is read again."""
_MOST_LAID_OUT = 120_000
"""Number of newcomers that one decision may lay out anew where CPU time is limited: some hundredths of a second."""


class StartSampler:
    """Runs a rule from one queue on, again and again with other run times and submissions."""

    def __init__(self, queue: Queue, rule: Rule, round_s: float = 0.0) -> None:
        """`round_s`: longest time between two decisions of the rule, 0 for none."""
        self._queue = queue
        self._rule = rule
        self._order = int(Order.ARRIVAL if rule.order == Order.SLURM else rule.order)
        self._threshold = round(rule.threshold_gpu_s * _NS)
        self._period = round(round_s * _NS)
        self._pool = _pool(queue)
        self._columns = _Columns(queue.jobs)
        self._running = np.flatnonzero(queue.jobs.running).tolist()
        self._waiting = np.flatnonzero(~queue.jobs.running).tolist()

    def run(self, duration_s: FloatColumn, arrivals: Arrivals, cpu_s: float = inf, grace_s: float = inf) -> FloatColumn:
        """Return the seconds until each waiting job starts, in the order of the queue; infinite where it is not reached.

        `duration_s` has the whole run time of each job of the queue. After `cpu_s` seconds of CPU time the sample is broken off,
        and the starts of the jobs that are left follow from its pace up to then. A rule that stops jobs may take `grace_s` longer
        for the first instants, without which there is no pace. Raises RuleTooSlowError if that is not enough.
        """
        coming = _Columns(arrivals.jobs)
        coming.set_work(arrivals.duration_s)
        self._columns.set_work(duration_s)
        behind = len(self._queue.jobs)
        submit = np.rint(arrivals.after_s * _NS).astype(np.int64).tolist()
        pool = self._pool.copy()
        loop = Loop(pool, lambda row: coming.job(row, behind), submit, self._order, self._threshold)
        loop.finished = _NoLog()
        for row in self._running:
            nodes, counts = self._queue.jobs.places[row]
            loop.num_waiting += 1
            loop.start_on(self._columns.job(row, 0), nodes, counts)
        tracked = [self._columns.job(row, 0) for row in self._waiting]
        for job in tracked:
            loop.queues[job.size].append(job)
        loop.num_waiting += len(tracked)
        loop.reorder(self._order, self._threshold)
        whole = self._go(loop, tracked, _decider(self._rule, pool, limited=grace_s < inf), cpu_s, grace_s)
        starts = np.array([job.first_start for job in tracked], dtype=np.float64)
        starts = np.where(starts == NOWHERE, np.inf, starts / _NS)
        return starts if whole else self._at_this_pace(starts, duration_s, loop.now / _NS)

    def _go(
        self, loop: Loop, tracked: list[ActiveJob], decide: Callable[[Loop], object], cpu_s: float, grace_s: float
    ) -> bool:
        """Run until all tracked jobs have started, or nothing more will happen; return False if the time was over before.

        Raises RuleTooSlowError.
        """
        until, first = round(UNTIL_S * _NS), 0
        end_s = time.process_time() + cpu_s
        # One decision of a rule that stops jobs can take longer than a whole sample of another.
        selects = self._rule.discipline == Discipline.SELECT
        for number in range(1, MOST_INSTANTS):
            decide(loop)
            if self._period:
                loop.set_round(self._period if loop.num_waiting > 0 and len(loop.running) > 0 else 0)
            while first < len(tracked) and tracked[first].first_start != NOWHERE:
                first += 1
            if first == len(tracked) or not loop.next_instant() or loop.now > until:
                return True
            if number < _CLOCK_EVERY:
                if selects and time.process_time() > end_s + grace_s:
                    raise RuleTooSlowError
            elif (selects or number % _CLOCK_EVERY == 0) and time.process_time() > end_s:
                return False
        return False

    def _at_this_pace(self, starts: FloatColumn, duration_s: FloatColumn, now_s: float) -> FloatColumn:
        """Return the starts, with those of the jobs that are left behind one another: as much work starts in a second as did."""
        jobs, parts = self._queue.jobs, self._queue.parts
        left = ~np.isfinite(starts) & np.array([bool(parts[size]) for size in jobs.size[self._waiting].tolist()])
        work = (duration_s * jobs.gpus)[self._waiting]
        pace = work[np.isfinite(starts)].sum() / max(now_s, 1.0)
        if pace <= 0:
            return starts
        found = starts.copy()
        found[left] = now_s + np.cumsum(work[left]) / pace
        return found


class _NoLog(FinishLog):
    """Keeps nothing of finished jobs: a sample needs only the first starts of its waiting jobs."""

    def add(self, job: ActiveJob) -> None:
        """Do nothing."""


class _Columns:
    """Columns of jobs as Python's integers, from which active jobs are made; times in ns."""

    def __init__(self, jobs: QueueJobs) -> None:
        self.gpus: list[int] = jobs.gpus.tolist()
        self.size: list[int] = jobs.size.tolist()
        self.service = _ns(jobs.service_s)
        self.attained = _ns(jobs.attained_gpu_s)
        self.estimate = _ns(jobs.estimate_s)
        self.fixed: list[int] = jobs.fixed.astype(np.int64).tolist()
        self.work: list[int] = []

    def set_work(self, duration_s: FloatColumn) -> None:
        """Set the whole run times."""
        self.work = _ns(duration_s)

    def job(self, row: int, behind: int) -> ActiveJob:
        """Return the job of that row as it is now; its place in the order is behind that of so many others."""
        work, service = self.work[row], self.service[row]
        job = ActiveJob(
            row + behind, 0, self.gpus[row], self.size[row], work, self.estimate[row], self.fixed[row], _STOP_COST_NS
        )
        job.service = service
        job.left = job.saved = job.left_before = max(work - service, 1)
        job.attained = self.attained[row]
        return job


def _ns(seconds: FloatColumn) -> list[int]:
    """Return whole ns; -1 for NaN."""
    found: list[int] = (
        np.where(np.isnan(seconds), -1, np.rint(np.minimum(seconds, 4e9) * _NS)).astype(np.int64).tolist()
    )
    return found


def _pool(queue: Queue) -> NodePool:
    pool = NodePool(queue.node_gpus)
    for node, up in enumerate(queue.node_up):
        if not up:
            pool.set_up(node, 0)
    shares: list[int] = []
    counts: list[int] = []
    for parts in queue.parts:
        for share, count in [*parts, (0, 0), (0, 0)][:2]:
            shares.append(share)
            counts.append(count)
    pool.divide(shares, counts)
    return pool


def _decider(rule: Rule, pool: NodePool, *, limited: bool) -> Callable[[Loop], object]:
    """Return the function that carries out the rule. `limited`: it raises RuleTooSlowError rather than take very long."""
    layout = int(rule.layout)
    match rule.discipline:
        case Discipline.SELECT:
            return _limited(Selection(pool, layout)) if limited else Selection(pool, layout).decide
        case Discipline.BACKFILL:
            return Backfill(layout).decide
        case Discipline.STRICT | Discipline.SKIP:
            strict = int(rule.discipline == Discipline.STRICT)
            return lambda loop: fill(loop, layout, strict)


def _limited(selection: Selection) -> Callable[[Loop], object]:
    selection.most_laid_out = _MOST_LAID_OUT

    def decide(loop: Loop) -> None:
        selection.decide(loop)
        if selection.gave_up():
            raise RuleTooSlowError

    return decide
