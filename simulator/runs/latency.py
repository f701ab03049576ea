"""The time of single decisions of policies in a simulated run, at every instant at which something happens."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from policies.api import Decision, Policy, PolicySpec, WithFallback
from policies.model import ClusterState
from simulator.errors import SettingError
from simulator.runs.options import RunOptions
from simulator.runs.scenario import Scenario, as_remote, fallback_figures, fallback_note, opened_policy, report_unread

WARM_UP = 3
"""Decisions on the first state before its counted one: the first ones import modules and fill caches."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Times of one policy's decisions. CPU time, of the deciding thread, is that of an idle machine."""

    decisions: int
    most_waiting: int
    """Waiting jobs at the decision with the longest queue."""
    median_ms: float
    p99_ms: float
    cpu_median_ms: float
    cpu_p99_ms: float
    cpu_most_ms: float
    load_average: float
    """Load average of the machine over the last minute."""
    fallback_decisions: int | None = None
    """Decisions that a fallback made in a server's place; None for a policy without a fallback."""
    note: str = ""
    """A line about these; may be empty."""


class Timed:
    """A policy that records the time of each of its decisions. A policy that is defined by a rule decides by `decide` too."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.taken: list[tuple[int, int, int]] = []
        """Wall and CPU time in ns, and waiting jobs, of each decision."""

    @property
    def spec(self) -> PolicySpec:
        """The properties of the policy."""
        return self._policy.spec

    def decide(self, state: ClusterState) -> Decision:
        """Return the policy's decision. Python's garbage collector runs only between decisions, as in the policy server."""
        for _ in range(0 if self.taken else WARM_UP):
            self._policy.decide(state)
        if not self.taken and (remote := as_remote(self._policy)) is not None:
            remote.count_anew()  # those before it are not counted
        gc.disable()
        begin, begin_cpu = time.perf_counter_ns(), time.thread_time_ns()
        decision = self._policy.decide(state)
        cpu_ns, wall_ns = time.thread_time_ns() - begin_cpu, time.perf_counter_ns() - begin
        gc.enable()
        self.taken.append((wall_ns, cpu_ns, len(state.pending)))
        return decision

    def decide_instead(self, state: ClusterState, problem: str) -> Decision | None:
        """Return the decision of the policy's fallback, whose time is not recorded; None if it has none."""
        return self._policy.decide_instead(state, problem) if isinstance(self._policy, WithFallback) else None


def latencies(
    options: RunOptions, names: Sequence[str], decisions: int | None, on_progress: Callable[[float], None]
) -> Mapping[str, Latency]:
    """Return the times of each policy, one after the other in this process; the whole run of a policy, or its first `decisions`.

    Raises SimulatorError, PolicyError.
    """
    if not names:
        raise SettingError("--policies: give a,b,c")
    scenario = Scenario.of(options, record=False)
    report_unread(options.slowdown, options.cluster, scenario.cluster)
    found: dict[str, Latency] = {}
    for name in names:

        def report(share: float, done: int = len(found)) -> None:
            on_progress((done + share) / len(names))

        found[name] = _latency(scenario, name, decisions, report)
    return found


def _latency(scenario: Scenario, name: str, decisions: int | None, on_progress: Callable[[float], None]) -> Latency:
    with opened_policy(name, scenario.options, lenient=True) as policy:
        found = _timed(scenario, name, Timed(policy), decisions, on_progress)
        counted = fallback_figures(policy).get("fallback_decisions")
        return replace(found, fallback_decisions=counted, note=fallback_note(policy))


def _timed(
    scenario: Scenario, name: str, timed: Timed, decisions: int | None, on_progress: Callable[[float], None]
) -> Latency:
    simulation = scenario.simulation(timed)
    jobs = len(simulation.trace)
    were_frozen = gc.get_freeze_count() > 0
    gc.freeze()
    while len(timed.taken) != decisions and len(simulation.finished.index) < jobs and simulation.advance():
        simulation.decide()
        on_progress((simulation.loop.arrived + len(simulation.finished.index)) / (2 * jobs))
    if not were_frozen:  # a caller that has frozen its objects relies on that
        gc.unfreeze()
    if not timed.taken:
        raise SettingError(
            f"{scenario.options.trace}: no job was submitted, so {name} decided nothing; give another trace"
        )
    wall_ns, cpu_ns, waiting = np.array(timed.taken).T
    return Latency(
        decisions=len(timed.taken),
        most_waiting=int(waiting.max()),
        median_ms=_ms(wall_ns, 0.5),
        p99_ms=_ms(wall_ns, 0.99),
        cpu_median_ms=_ms(cpu_ns, 0.5),
        cpu_p99_ms=_ms(cpu_ns, 0.99),
        cpu_most_ms=_ms(cpu_ns, 1.0),
        load_average=os.getloadavg()[0],
    )


def _ms(times_ns: np.ndarray[tuple[int], np.dtype[np.int64]], share: float) -> float:
    return float(np.quantile(times_ns, share)) / 1e6


def as_json(found: Mapping[str, Latency]) -> dict[str, dict[str, float]]:
    """Return the times by policy, as values that JSON has; `fallback_decisions` only where a policy has a fallback."""
    return {name: _figures(latency) for name, latency in found.items()}


def _figures(latency: Latency) -> dict[str, float]:
    return {key: value for key, value in asdict(latency).items() if key != "note" and value is not None}
