"""Delay timers: how long a job waits for GPUs on one node, then for GPUs in one rack, before it takes any. Tuned by earlier waits.

Source: the delay scheduling and the auto-tuner of Dally (Sharma et al., arXiv 2401.16492), after Zaharia et al., "Delay
scheduling", EuroSys 2010.

The timer of a level is the mean of the last waits at it, plus their standard deviation. Waits count for jobs of one class: those
whose numbers of GPUs have equally many binary digits. A job that starts on one node gives its wait as a sample of that level. One
that starts farther away gives the whole timer of each level that it has passed, and what it waited beyond these as a sample of the
level that it got. Jobs that start at once give none, because they say nothing about how long waiting takes. So a timer becomes
shorter where nearly all jobs find near GPUs sooner, longer where about half of them do, and stays where none does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean, pstdev

from policies.model import ClusterState, JobState
from policies.placement.levels import Level

LONGEST_S = 43_200.0
"""No tuned timer is longer."""
AT_ONCE_S = 5.0
"""A job that waited for less started at once."""
_FEWEST = 3
"""Number of waits from which on a timer is tuned."""
_LEVELS = (Level.MACHINE, Level.RACK)


@dataclass(frozen=True, slots=True)
class TimerSettings:
    """The timers before any wait is known, and how they are tuned. Times in seconds."""

    machine_s: float
    rack_s: float
    """Counts from the end of the timer before it."""
    window: int
    """Number of waits of a class that count, the last ones; 0: timers are never tuned."""
    least_s: float
    """No tuned timer is shorter."""

    def initial_s(self, level: Level) -> float:
        """Return the timer of that level before any wait is known."""
        return self.machine_s if level == Level.MACHINE else self.rack_s


@dataclass
class DelayTimers:
    """Remembers when jobs began to wait, and the last waits of each class.

    Invariant: `update` with the same states in the same order gives the same timers; a state twice in a row gives the same as once.
    Jobs that are gone are forgotten.
    """

    settings: TimerSettings
    _since_s: dict[str, float] = field(default_factory=dict)
    """When a job that ran before began to wait. Bound: the jobs of the last state."""
    _started_s: dict[str, float] = field(default_factory=dict)
    """Starts of the runs whose waits are known. Bound: the jobs of the last state."""
    _waits: dict[tuple[int, Level], deque[float]] = field(default_factory=dict)
    """The last waits. Bound: the settings' window, for each level and number of binary digits of a job's GPUs."""
    _timers_s: dict[tuple[int, Level], float] = field(default_factory=dict)
    """Timers that follow from these waits, where they were asked for. Bound: the levels and numbers of digits, as of `_waits`."""

    def update(self, state: ClusterState, levels: dict[int, Level], nearest: list[Level]) -> None:
        """Take in which jobs run since when; `levels` are those of running jobs, `nearest` the best possible level of every job."""
        jobs, now_s = state.jobs, state.time_s
        started, since = self._started_s, self._since_s
        self._started_s, self._since_s = {}, {}
        columns = (jobs.ids, jobs.state, jobs.start_time_s, jobs.submit_time_s, jobs.service_s, jobs.num_gpus)
        rows = zip(*(column if isinstance(column, tuple) else column.tolist() for column in columns), strict=True)
        for row, (name, job_state, start_s, submit_s, service_s, gpus) in enumerate(rows):
            if job_state == JobState.RUNNING:
                if started.get(name) != start_s:
                    earlier = service_s - (now_s - start_s) > AT_ONCE_S
                    if name in since or not earlier:
                        self._note(gpus, nearest[row], levels[row], start_s - since.get(name, submit_s))
                self._started_s[name] = start_s
            elif name in started:
                self._since_s[name] = now_s
            elif name in since:
                self._since_s[name] = since[name]

    def waited_s(self, state: ClusterState, row: int) -> float:
        """Return for how long that job waits now."""
        return state.time_s - self._since_s.get(state.jobs.ids[row], float(state.jobs.submit_time_s[row]))

    def timer_s(self, gpus: int, level: Level) -> float:
        """Return how long a job of so many GPUs waits for that level."""
        key = gpus.bit_length(), level
        timer_s = self._timers_s.get(key)
        if timer_s is None:
            waits = self._waits.get(key, ())
            timer_s = self.settings.initial_s(level)
            if len(waits) >= _FEWEST:
                timer_s = min(max(fmean(waits) + pstdev(waits), self.settings.least_s), LONGEST_S)
            self._timers_s[key] = timer_s
        return timer_s

    def farthest(self, gpus: int, nearest: Level, waited_s: float) -> tuple[Level, float]:
        """Return the farthest level that such a job takes after that wait, and the seconds until it takes the next (0: none)."""
        for level in _LEVELS:
            if level >= nearest:
                waited_s -= self.timer_s(gpus, level)
                if waited_s < 0:
                    return level, -waited_s
        return Level.NETWORK, 0.0

    def _note(self, gpus: int, nearest: Level, level: Level, waited_s: float) -> None:
        if waited_s <= AT_ONCE_S or not self.settings.window:
            return
        timers = [(each, self.timer_s(gpus, each)) for each in _LEVELS if each >= nearest]
        for each, timer_s in timers:
            if each > level:
                break
            wait_s = waited_s if each == level else min(waited_s, timer_s)
            waited_s -= wait_s
            key = gpus.bit_length(), each
            self._waits.setdefault(key, deque(maxlen=self.settings.window)).append(max(0.0, wait_s))
            self._timers_s.pop(key, None)
