"""Measures the time between the end of a job and the start of the next one on its GPUs.

The two parts are those of `simulator.forecast.changeover`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from controller.cycle.view.result import CycleResult
from controller.observe.role import Role
from controller.slurm.client import JobKey

NEWEST = 300
"""Number of times that are kept of each part, the last ones."""
MOST_S = 600.0
"""Longest time that counts, seconds: a longer one is an outage of Slurm or of the controller, or a refusal."""
_LEAST_S = -1.0
"""Slurm's times are whole seconds, rounded down."""


class Changeovers:
    """The newest times. Invariant: at most NEWEST of each part; a job that is decided on but not started leaves nothing behind."""

    def __init__(self) -> None:
        self._free_s: deque[float] = deque(maxlen=NEWEST)
        self._start_s: deque[float] = deque(maxlen=NEWEST)
        self._decided: dict[JobKey, float] = {}
        """Time of the state on which the start of each job was decided that Slurm has not started yet."""

    @property
    def free_s(self) -> Sequence[float]:
        """Times from the ends of jobs to the states in which their GPUs were free, seconds."""
        return list(self._free_s)

    @property
    def start_s(self) -> Sequence[float]:
        """Times from the states of decisions to the starts of jobs in Slurm, seconds."""
        return list(self._start_s)

    def on_cycle(self, result: CycleResult) -> None:
        """Take the result of a cycle: for the listeners of the controller."""
        observation, changes = result.observation, result.changes
        now_s = observation.state.time_s
        for job in changes.ended:
            if job.end_time_s is not None and job.start_time_s is not None and job.end_time_s > job.start_time_s:
                _add(self._free_s, now_s - job.end_time_s)
        for job in changes.started:
            decided_s = self._decided.pop(job.key, None)
            if decided_s is not None and job.start_time_s is not None:
                _add(self._start_s, job.start_time_s - decided_s)
        standings = observation.standings
        self._decided = {
            key: decided_s
            for key, decided_s in self._decided.items()
            if key in standings and standings[key].role is Role.STARTING
        }
        if result.decided is not None:
            for start in result.decided.plan.starts:
                if not start.frees_s:  # otherwise Slurm stops other jobs first, which takes their time
                    self._decided[observation.rows[start.row].key] = now_s


def _add(times_s: deque[float], time_s: float) -> None:
    if _LEAST_S <= time_s <= MOST_S:
        times_s.append(time_s)
