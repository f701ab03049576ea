"""Base class of the environments: an episode is a simulation that the agent drives."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt

from simulator.engine.simulation import Simulation
from simulator.envs.options import EVENTS, EnvOptions, Slowdowns, TraceSource, cluster_of
from simulator.envs.outcome import outcome
from simulator.envs.shared_memory import ELAPSED
from simulator.errors import SettingError
from simulator.kernel.constants import NEVER
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.traces.trace import NS_PER_S, Trace

ObsT = TypeVar("ObsT")
ActT = TypeVar("ActT")
Mask = npt.NDArray[np.bool_]
Cells = npt.NDArray[np.float32]
_RESET_OPTIONS = ("trace", "trace_seed")
_STEPS_PER_JOB = 100


class SchedulingEnv(gymnasium.Env[ObsT, ActT], Generic[ObsT, ActT]):
    """An episode schedules one trace, from the first arrival to the last finish.

    At a decision, time does not advance: the agent starts (and may stop) jobs, one per step, until it chooses to wait; then the
    engine advances to the next decision. While no job waits there are no decisions. A subclass defines the spaces, `_begin`,
    `_observe`, `_act`, `_rate` and optionally the other hooks; it changes the cluster only by `start` and `stop`.

    Invariant between steps: every event of the present instant has been handled, the speeds in `simulation` are up to date, and
    some job waits unless the episode is over.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - gymnasium's own form

    def __init__(self, options: EnvOptions) -> None:
        self.base_options = options
        self.cluster = cluster_of(options.cluster)
        self._source = TraceSource(options.traces, self.cluster)
        self._slowdowns = Slowdowns(options.slowdown, self.cluster, options.profiles)
        self._period = round(options.round_s * NS_PER_S)
        self._by_events = options.decide == EVENTS
        self.simulation: Simulation
        self.loop: Loop
        self.trace: Trace
        self.steps = 0
        self._most_steps = 0
        self._over = True
        self._decided_at = -1
        self._invalid = 0
        self._skipped = 0
        """Number of decisions that were skipped because waiting was the only action."""

    # Gymnasium

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ObsT, dict[str, Any]]:
        """Begin an episode. Options: `trace` (a Trace, or the number of one), or `trace_seed` of the workload."""
        super().reset(seed=seed)
        self.trace = trace = self._trace_of(options or {})
        self.simulation = Simulation(
            trace, self.cluster, None, self.base_options.settings, self._slowdowns.fresh(), self.base_options.profiles
        )
        self.loop = self.simulation.loop
        self.loop.track = 1
        self.steps = self._invalid = self._skipped = 0
        self._most_steps = self.base_options.max_steps or _STEPS_PER_JOB * len(trace)
        self._over = False
        self._decided_at = -1
        self._begin()
        self._pass_time()
        return self._observe(), {}

    def step(self, action: ActT) -> tuple[ObsT, float, bool, bool, dict[str, Any]]:
        """Apply one action; an impossible action means to wait. `info["elapsed"]` is the number of rounds that passed."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset")
        self.steps += 1
        before = self.loop.now
        acted = self._act(action)
        reward = 0.0
        if not acted or not self.loop.num_waiting or (self.base_options.skip_forced and not self._has_choice()):
            reward = self._pass_time()
        terminated = self._all_done()
        truncated = not terminated and self._is_too_long()
        info: dict[str, Any] = {ELAPSED: (self.loop.now - before) / self._period}
        if terminated or truncated:
            self._over = True
            info["outcome"] = {**outcome(self.simulation), "steps": self.steps, "invalid_actions": self._invalid}
        if truncated:
            # The episode was truncated: learning needs the value of this state, and so the possible actions.
            info["action_masks"] = self.action_masks()
        return self._observe(), reward, terminated, truncated, info

    @abstractmethod
    def action_masks(self) -> Mask:
        """Return which actions are possible now, as a new array (the convention of sb3-contrib's MaskablePPO)."""

    # What a subclass defines

    @abstractmethod
    def _begin(self) -> None:
        """Prepare for a new simulation, before its first instant."""

    @abstractmethod
    def _observe(self) -> ObsT:
        """Return the observation, as a new array."""

    @abstractmethod
    def _act(self, action: ActT) -> bool:
        """Apply the action; return False if it was to wait."""

    @abstractmethod
    def _rate(self) -> float:
        """Return the reward of a round in which the cluster does not change."""

    def _has_choice(self) -> bool:
        """Return whether any action but waiting is possible."""
        return True

    def _has_none_before_events(self) -> bool:
        """Return whether waiting stays the only action until a job arrives or finishes, or a node changes."""
        return False

    def _gone(self, job: ActiveJob) -> None:
        """Handle a job that has finished or was stopped: it occupies no GPUs any more."""

    def _changed(self) -> None:
        """Handle starts and stops, after speeds were updated."""

    def _nodes_changed(self) -> None:
        """Handle possible changes of nodes."""

    def _before_decision(self) -> None:
        """Run before a decision; the hook may stop jobs."""

    # What a subclass may do

    def start(self, job: ActiveJob, nodes: list[int], counts: list[int]) -> None:
        """Start the waiting job on those nodes. The caller has checked that the GPUs are free."""
        self.loop.dequeue(job)
        self.loop.start_on(job, nodes, counts)

    def stop(self, job: ActiveJob) -> None:
        """Stop a preemptible running job; it returns to the queue, and its next run serves the overhead."""
        self.loop.stop(job)
        self._settle()

    # Time

    def _pass_time(self) -> float:
        """Go on to the next decision or to the end; return the reward."""
        reward, forced = 0.0, False
        while True:
            reward += self._to_next_decision(forced)
            if self._all_done():
                return reward
            self._before_decision()
            if not self.base_options.skip_forced or self._has_choice() or self._is_too_long():
                return reward
            self._skipped += 1
            forced = not self._by_events and self._has_none_before_events()

    def _to_next_decision(self, forced: bool) -> float:
        """Go on to the next decision; return the reward. With `forced`, waiting is the only action before the next event, so the
        rounds until then are only counted."""
        loop, simulation = self.loop, self.simulation
        reward, begin = 0.0, loop.now
        if loop.touched:
            self._settle()
        while True:
            loop.timer = NEVER
            if not forced or loop.peek() == NEVER:
                loop.timer = self._due()
            rate = self._rate() if loop.num_waiting or loop.running else 0.0
            before = loop.now
            if not simulation.advance():
                break
            reward += rate * (loop.now - before)
            self._settle()
            if forced:
                forced = False
                self._skipped += (loop.now - begin - 1) // self._period
            if self._is_decision() or self._all_done():
                break
        self._decided_at = loop.now
        return reward / self._period

    def _settle(self) -> None:
        """Call the hooks for jobs that have left, and bring speeds up to date."""
        loop = self.loop
        touched = loop.touched
        for job in touched:
            if not job.occupied:
                self._gone(job)
        if self.base_options.settings.changes:
            self._nodes_changed()
        self.simulation.settle()
        if touched:
            loop.touched = []
            self._changed()

    def _due(self) -> int:
        """Return when the engine must stop for a decision if no event is earlier; NEVER while no job waits."""
        loop = self.loop
        if not loop.num_waiting:
            return NEVER
        if self._by_events:
            loop.timer = NEVER
            return NEVER if loop.peek() != NEVER else loop.now + self._period
        earliest = max(self._decided_at + 1, loop.now)
        return -(-earliest // self._period) * self._period

    def _is_decision(self) -> bool:
        loop = self.loop
        if not loop.num_waiting:
            return False
        return self._by_events or (loop.now % self._period == 0 and loop.now > self._decided_at)

    def _is_too_long(self) -> bool:
        return self.steps + self._skipped >= self._most_steps

    def _all_done(self) -> bool:
        loop = self.loop
        return loop.arrived == loop.num_jobs and not loop.num_waiting and not loop.running

    # Traces

    def _trace_of(self, options: dict[str, Any]) -> Trace:
        for name in options:
            if name not in _RESET_OPTIONS:
                raise SettingError(f"reset has no option {name!r}; give {' or '.join(_RESET_OPTIONS)}")
        trace: object = options.get("trace")
        if isinstance(trace, Trace):
            return trace
        given: dict[str, Callable[[int], Trace]] = {"trace": self._source.at, "trace_seed": self._source.of_seed}
        for name, find in given.items():
            if name in options:
                if not isinstance(options[name], int | np.integer):
                    raise SettingError(f"{name} is {options[name]!r}; give a whole number")
                return find(int(options[name]))
        return self._source.draw(self.np_random)
