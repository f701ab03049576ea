"""Replays a trace, and estimates the start of jobs at their submission."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.model import FloatColumn
from simulator.engine.simulation import Simulation
from simulator.forecast.calibration import Calibration, Track
from simulator.forecast.forecast import Effort, forecast
from simulator.forecast.stand_in import DecidingRule
from simulator.kernel.constants import NOWHERE
from simulator.kernel.job import ActiveJob
from simulator.runs.starts.baselines import WaitsBySize, rows_waiting, waits_by_limits
from simulator.runs.starts.simulated_queue import SimulatedQueue
from simulator.traces.trace import NS_PER_S

_NEWEST_TRACKS = 3000


@dataclass(frozen=True, eq=False)
class Made:
    """One estimate of a start, made at submission; waits in seconds from then, quantiles as in `LEVELS`."""

    job: ActiveJob
    made_s: float
    raw_s: FloatColumn
    """Before the correction by earlier errors."""
    shown_s: FloatColumn
    by_size_s: FloatColumn
    by_limits_s: float
    waiting: int
    """Waiting jobs at that time."""
    cpu_s: float
    """CPU time of the forecast of all of them."""

    @property
    def wait_s(self) -> float | None:
        """How long the job waited; None: it has not started."""
        return None if self.job.first_start == NOWHERE else self.job.first_start / NS_PER_S - self.made_s

    @property
    def track(self) -> Track:
        """The estimate and what has come of it up to now."""
        low, middle, high = self.shown_s.tolist()
        return Track(self.made_s, tuple(self.raw_s.tolist()), (low, middle, high), self.wait_s)


class Replay:
    """Carries a simulation out. At every so many submissions, the next job that has to wait gets an estimate."""

    def __init__(self, simulation: Simulation, deciding: DecidingRule, *, every: int, samples: int, seed: int) -> None:
        """`simulation` has not begun; its policy decides by `deciding`, or this stands in for it."""
        self._simulation, self._deciding = simulation, deciding
        self._every, self._effort, self._seed = every, Effort(samples), seed
        self._known = SimulatedQueue(simulation.trace, simulation.cluster, simulation)
        self._by_size = WaitsBySize(simulation.trace, self._known)
        self._made: list[Made] = []

    def run(self, on_progress: Callable[[float], None]) -> list[Made]:
        """Return the estimates, in the order in which they were made."""
        simulation, loop = self._simulation, self._simulation.loop
        jobs, seen, estimated = len(simulation.trace), 0, 0
        while len(simulation.finished.index) < jobs and simulation.advance():
            simulation.decide()
            new = range(seen, loop.arrived)
            seen = loop.arrived
            if new and seen - estimated >= self._every:
                waiting = [job for queue in loop.queues for job in queue if job.index in new]
                if waiting:
                    self._estimate(waiting)
                    estimated = seen
                    on_progress(seen / jobs)
        return self._made

    def _estimate(self, new: list[ActiveJob]) -> None:
        rows, queue, past = self._known.read()
        rule, round_s = self._deciding.rule, self._deciding.round_s
        begin_s = time.process_time()
        raw_s = forecast(queue, past, rule, round_s=round_s, seed=self._seed + len(self._made), effort=self._effort)
        tracks = [made.track for made in self._made[-_NEWEST_TRACKS:]]
        shown_s = Calibration(tracks, queue.now_s).correct(raw_s)
        cpu_s = time.process_time() - begin_s
        by_limits_s = waits_by_limits(queue, rule, round_s)
        waiting = rows_waiting(rows, queue)
        for job in new:
            row = int(np.searchsorted(waiting, job.index))
            self._made.append(
                Made(
                    job=job,
                    made_s=queue.now_s,
                    raw_s=raw_s[row],
                    shown_s=shown_s[row],
                    by_size_s=self._by_size.quantiles(job.index),
                    by_limits_s=float(by_limits_s[row]),
                    waiting=len(waiting),
                    cpu_s=cpu_s,
                )
            )
