"""Comparison of agents in one environment: the same seeds, and so the same traces, for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

from policies.learned.evaluation.statistics import Mean, change, mean_as_json
from policies.learned.training.agents import Agent
from simulator.agents.episodes import Episode, make, play
from simulator.runs.process_pool import in_parallel, total_of
from simulator.runs.progress import OnProgress

RETURN, JCT = "return", "avg_jct_s"
SLOWDOWN = "mean_slowdown"
FIGURES = (
    *(RETURN, JCT, "p90_jct_s", SLOWDOWN, "avg_wait_s", "makespan_s"),
    *("utilization", "effectiveness", "steps", "deviations"),
)
"""Figures of an agent; those of jobs are missing in environments without jobs."""
_OF_ALL_EPISODES = (RETURN, SLOWDOWN, "steps", "deviations")
"""Figures that are defined for an episode that was cut off: slowdowns count its end as the finish of unfinished jobs."""


@dataclass(frozen=True, slots=True)
class AgentComparison:
    """Episodes of several agents. Invariant: entry i of each agent's episodes is that of seed i."""

    env: str
    seeds: tuple[int, ...]
    episodes: Mapping[str, Sequence[Episode]]

    def mean(self, agent: str, figure: str) -> Mean | None:
        """Return the mean over seeds; None where the figure is not defined, or an episode was cut off."""
        values = self._values(agent, figure)
        return Mean.of(values) if values else None

    def change(self, agent: str, first: str, figure: str = JCT) -> Mean | None:
        """Return the relative change of a figure against another agent, seed by seed; None where one is not defined."""
        mine, others = self._values(agent, figure), self._values(first, figure)
        return change(mine, others) if mine and others else None

    def truncated(self, agent: str) -> int:
        """Return the number of the agent's episodes that were cut off."""
        return sum(episode.truncated for episode in self.episodes[agent])

    def _values(self, agent: str, figure: str) -> list[float]:
        if figure not in _OF_ALL_EPISODES and self.truncated(agent):
            return []
        values = [_figure(episode, figure) for episode in self.episodes[agent]]
        return values if all(map(isfinite, values)) else []


def compare_agents(
    env: str,
    options: Mapping[str, Any],
    agents: Mapping[str, Agent],
    seeds: Sequence[int],
    on_progress: OnProgress,
) -> AgentComparison:
    """Let every agent play one episode for each seed, in processes. Raises SimulatorError, and PolicyError of the policies."""
    make(env, **options).close()  # what is wrong with id and options is found here, not in a worker
    work = {
        f"{name} with seed {seed}": partial(_played, env, options, agent, seed)
        for name, agent in agents.items()
        for seed in seeds
    }
    found = iter(in_parallel(list(work), lambda label, _on_progress: work[label](), total_of(work, on_progress)))
    return AgentComparison(env, tuple(seeds), {name: [next(found) for _ in seeds] for name in agents})


def as_json(found: AgentComparison) -> dict[str, object]:
    """Return the results for programs: every mean with half of its 95 % interval."""
    first = next(iter(found.episodes))
    return {
        "env": found.env,
        "seeds": list(found.seeds),
        "agents": [
            {
                "agent": name,
                **{figure: mean_as_json(found.mean(name, figure)) for figure in FIGURES},
                "change": None if name == first else mean_as_json(found.change(name, first)),
                "slowdown_change": None if name == first else mean_as_json(found.change(name, first, SLOWDOWN)),
                "truncated": found.truncated(name),
            }
            for name in found.episodes
        ],
    }


def _played(env: str, options: Mapping[str, Any], agent: Agent, seed: int) -> Episode:
    made = make(env, **options)
    try:
        return play(made, agent, seed)
    finally:
        made.close()


def _figure(episode: Episode, figure: str) -> float:
    own = {RETURN: episode.total_reward, "steps": float(episode.steps), "deviations": float(episode.deviations)}
    return own[figure] if figure in own else episode.outcome.get(figure, float("nan"))
