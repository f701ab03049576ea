"""The contenders of the experiment: the paper's agent and others in its place, its baselines, and controls.

Agents act in their environment, which takes a fraction of the time that a policy takes on cluster states; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from policies.learned.sched2.policy import QAgent
from policies.learned.sched2.rule import SEARCHED as SEARCHED_RULE
from policies.learned.sched2.rule import START as START_RULE
from policies.learned.sched2.rule import RuleAgent
from policies.learned.sched2.state.kinds import FEATURES as FEATURE_NETWORK
from policies.learned.sched2.state.kinds import PAPER as PAPER_NETWORK
from policies.learned.sched2.state.state_columns import State
from policies.learned.sched2.state.window import FIRST
from policies.learned.sched2.state.window import WIDEST as WIDEST_WINDOW
from policies.learned.training.agents import Agent, Mask, UniformAgent
from simulator.agents.episodes import make, play
from simulator.engine.settings import Settings
from simulator.papers.sched2.baselines import BASELINES, CONTROLS, Baseline
from simulator.papers.sched2.reproduction.bounds import bound
from simulator.papers.sched2.reproduction.measures import samples
from simulator.reproducing.experiment import Contender, Kind, Metric, Run, Setting, policy, run_of
from simulator.runs.progress import OnProgress
from simulator.slowdown.registry import build

if TYPE_CHECKING:
    import gymnasium

_ENV = "headway/Sched2-v0"
PAPERS = "sched2"
"""The paper's agent."""
FEATURES = "sched2:network=features"
"""The same training of a network that sees the rule's features."""
START = "sched2-rule:rule=start"
"""The rule that the search begins with."""
OURS = "sched2-rule"
"""The rule that a search has found. It chooses from the first ten jobs, as the paper's agent does."""
WIDEST = "sched2-rule:window=widest"
"""The same rule, with ten jobs from the whole queue as input."""
FIRST_TEN, WHOLE_QUEUE = "first ten", "whole queue"
WINDOW = 10
READINGS = {FIRST_TEN: WINDOW, WHOLE_QUEUE: 0}
AGENTS = {FIRST_TEN: OURS, WHOLE_QUEUE: WIDEST}
UNIFORM = "uniformly random actions"
"""Any possible action of the agent's own environment, void included."""
OTHERS = ("sjf", "fewest-gpus", "fifo-skip")
"""Controls that see the whole queue and place a job by best fit, on as few nodes as possible; they know no speeds."""
STOPPING = ("srtf", "las")
"""The same, which also stop jobs."""


def contenders(measured: Mapping[str, Metric], *, sample: bool) -> tuple[Contender, ...]:
    """Return all contenders of a setting; their runs are recorded. `sample`: those of the first ten keep the data of figure 9."""
    ours = tuple(
        acting(name, Kind.OURS, make, measured, window=window, sample=sample)
        for name, (make, window) in _AGENTS.items()
    )
    rules = [
        _rule(
            name,
            Kind.BASELINE if name in BASELINES else Kind.CONTROL,
            reading,
            measured,
            sample=sample and (reading == FIRST_TEN or name == "fifo"),
        )
        for name in (*BASELINES, *CONTROLS)
        for reading in READINGS
        if name != "fifo" or reading == WHOLE_QUEUE
    ]
    others = [policy(name, Kind.CONTROL, measures=measured, record=True) for name in (*OTHERS, *STOPPING)]
    return (*ours, *rules, acting(UNIFORM, Kind.CONTROL, UniformAgent, measured), *others, bound())


def rule_name(name: str, reading: str) -> str:
    """Return the name of a baseline or control with that reading; FIFO sees only the head of the queue."""
    return "fifo" if name == "fifo" else f"{name}, {reading}"


def baselines(reading: str) -> tuple[str, ...]:
    """Return the names of the paper's baselines with that reading."""
    return tuple(rule_name(name, reading) for name in BASELINES)


def controls(reading: str) -> tuple[str, ...]:
    """Return the names of the controls that consider locality, with that reading."""
    return tuple(rule_name(name, reading) for name in CONTROLS)


def _rule(name: str, kind: Kind, reading: str, measured: Mapping[str, Metric], *, sample: bool) -> Contender:
    def run(setting: Setting, seed: int, _on_progress: OnProgress | None) -> Run:
        models = build(setting.slowdown, topology=setting.cluster.topology, profiles=setting.profiles)
        rule = Baseline(name, setting.trace(seed), setting.cluster, models, READINGS[reading], record=True)
        what = f"{name} in {setting.name}, seed {seed}"
        return run_of(rule.run(), what, samples if sample else None, measured)

    return Contender(rule_name(name, reading), kind, run)


def acting(
    name: str,
    kind: Kind,
    make_agent: Callable[[], Agent],
    measured: Mapping[str, Metric],
    *,
    window: str = FIRST,
    sample: bool = False,
) -> Contender:
    """Return a contender that acts in the agent's own environment, with the J jobs of that window."""

    def run(setting: Setting, seed: int, _on_progress: OnProgress | None) -> Run:
        env = make(
            _ENV,
            traces=(setting.trace(seed),),
            cluster=setting.cluster,
            slowdown=setting.slowdown,
            profiles=setting.profiles,
            settings=Settings(record=True),
            window=window,
        )
        try:
            play(env, make_agent(), seed)
            what = f"{name} in {setting.name}, seed {seed}"
            return run_of(env.unwrapped.simulation, what, samples if sample else None, measured)  # type: ignore[attr-defined] # an environment of jobs has one
        finally:
            env.close()

    return Contender(name, kind, run)


class _Shipped:
    """An agent that comes with Headway, in the environment."""

    deviations = 0

    def __init__(self, action: Callable[[State, Mask], int]) -> None:
        self._action = action

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        """Do nothing: an agent of SCHED2 keeps no state."""

    def act(self, observation: Any, mask: Mask | None) -> int:
        """Return its action."""
        assert mask is not None, "this environment has masks"
        return self._action(observation, mask)


@cache
def _network(kind: str) -> _Shipped:
    return _Shipped(QAgent.load("", FIRST, kind).action)


@cache
def _searched(window: str, kind: str = SEARCHED_RULE) -> _Shipped:
    return _Shipped(RuleAgent.load("", window, kind).action)


_AGENTS: Mapping[str, tuple[Callable[[], Agent], str]] = {
    PAPERS: (partial(_network, PAPER_NETWORK), FIRST),
    FEATURES: (partial(_network, FEATURE_NETWORK), FIRST),
    START: (partial(_searched, FIRST, START_RULE), FIRST),
    OURS: (partial(_searched, FIRST), FIRST),
    WIDEST: (partial(_searched, WIDEST_WINDOW), WIDEST_WINDOW),
}
"""Agents by the texts of the policies that serve them, and their windows."""
