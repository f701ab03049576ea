"""The command `start-estimates`: reads the trace, replays it, and returns the figures of the part that is held back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from simulator.cluster.cluster import parse_cluster
from simulator.errors import SettingError
from simulator.forecast.stand_in import DecidingRule
from simulator.runs.options import RunOptions
from simulator.runs.scenario import Scenario, opened_policy, report_unread
from simulator.runs.starts.accuracy import Figures, figures
from simulator.runs.starts.limits import with_limits
from simulator.runs.starts.replay import Replay
from simulator.traces.read import read_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """Options of `start-estimates` beside those of a run."""

    every: int = 50
    """An estimate at every so many submissions, for the next job that has to wait."""
    samples: int = 20
    held_back: float = 0.5
    """Share of the trace's jobs, the last ones, whose estimates are scored; those of earlier jobs only correct them."""


def start_figures(run: RunOptions, policy: str, options: StartOptions, on_progress: Callable[[float], None]) -> Figures:
    """Return the figures. Policies get time limits as estimates of durations. Raises SimulatorError, PolicyError."""
    if options.every < 1 or options.samples < 1 or not 0 < options.held_back <= 1:
        raise SettingError("--every and --samples take 1 or more, --held-back more than 0 and at most 1")
    trace = with_limits(read_trace(run.trace, run.limit).from_zero(), run.seed or 0)
    scenario = Scenario.on(replace(run, estimates="limit"), trace, parse_cluster(run.cluster))
    report_unread(run.slowdown, run.cluster, scenario.cluster)
    with opened_policy(policy, scenario.options, lenient=True) as made_policy:
        simulation = scenario.simulation(made_policy)
        deciding = DecidingRule.of(made_policy)
        replay = Replay(simulation, deciding, every=options.every, samples=options.samples, seed=run.seed or 0)
        made = replay.run(on_progress)
    first = len(simulation.trace) * (1 - options.held_back)
    found = figures([one for one in made if one.job.index >= first])
    if found is None:
        raise SettingError(
            "no job of the held-back part had to wait and started; give a smaller cluster, or a smaller --every"
        )
    return found
