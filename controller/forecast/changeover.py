"""Measures the time between the end of a job and the start of the next one on its GPUs.

The two parts are those of `simulator.forecast.changeover`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from controller.cycle.view.result import CycleResult
from controller.observe.role import Role
from controller.slurm.model.job import JobKey

NEWEST = 300
"""Number of times that are kept of each part, the last ones."""
MOST_S = 600.0
"""Longest time, seconds: a longer one counts as this, or not at all if cycles failed meanwhile."""
MOST_A_CYCLE = 30
"""Number of times that one cycle adds to each part at most, so that one delay of many jobs does not replace all others."""
_MOST_APART_S = 300.0
"""Time from one cycle to the next, seconds, above which cycles failed: Slurm or the controller was away."""
_LEAST_S = -1.0
"""Slurm's times are whole seconds, rounded down."""


class Changeovers:
    """The newest times. Invariant: at most NEWEST of each part; a job that is decided on but not started leaves nothing behind."""

    def __init__(self) -> None:
        self._free_s: deque[float] = deque(maxlen=NEWEST)
        self._start_s: deque[float] = deque(maxlen=NEWEST)
        self._decided: dict[JobKey, float] = {}
        """Time of the state on which the start of each job was decided that Slurm has not started yet.
        Bound: the jobs that are starting."""
        self._last_s = self._since_s = float("inf")
        """Time of the last state, and that of the first state since which no cycle has failed."""

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
        self._note_cycle(now_s)
        ends_s = [
            job.end_time_s
            for job in changes.ended
            if job.end_time_s is not None and job.start_time_s is not None and job.end_time_s > job.start_time_s
        ]
        self._add(self._free_s, [(end_s, now_s) for end_s in ends_s])
        started = (*changes.started, *changes.unseen)
        starts_s = [(self._decided.pop(job.key, None), job.start_time_s) for job in started]
        self._add(self._start_s, [(at_s, to_s) for at_s, to_s in starts_s if at_s is not None and to_s is not None])
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

    def _note_cycle(self, now_s: float) -> None:
        if not 0.0 <= now_s - self._last_s <= _MOST_APART_S:
            self._since_s = now_s
        self._last_s = now_s

    def _add(self, times_s: deque[float], spans_s: list[tuple[float, float]]) -> None:
        """Add the lengths of spans of time, of a cycle with very many of them only some."""
        sound_s = [
            min(end_s - begin_s, MOST_S)
            for begin_s, end_s in spans_s
            if end_s - begin_s >= _LEAST_S and (end_s - begin_s <= MOST_S or begin_s >= self._since_s)
        ]
        times_s.extend(sound_s[:: max(-(-len(sound_s) // MOST_A_CYCLE), 1)])
