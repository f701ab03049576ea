"""Workers and JCT by model: `python -m simulator.papers.dl2.reproduction.by_model [--agents dl2-ppo dl2-pairs] [--seeds N]`.

It lets agents act in the experiment's setting, and prints one JSON object: for each agent and model the mean workers and parameter
servers of a job in a slot, the standard deviation of the workers, their mean in slots with that job alone and in those with
five jobs or more, and the average JCT. The last agent is the one that the others are compared with: `excess_s` is what a model's
jobs add to the difference of the average JCT over all jobs, in seconds, so that the values of all models add up to it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from policies.learned.dl2.state_columns import BOTH, SERVER, WORKER
from policies.learned.training.agents import Agent, AgentInEnvironment, Mask
from policies.learned.training.systems import TEST_SEEDS
from policies.model import FloatColumn
from simulator.agents.episodes import make, play
from simulator.agents.named import agent_of
from simulator.envs import ELASTIC
from simulator.papers.dl2.reproduction.settings import CONCURRENT, MAIN
from simulator.papers.dl2.reproduction.trainings import PAPER, PPO
from simulator.papers.programs import answer, progress
from simulator.results.result import Result
from simulator.traces.generators.dl2 import MODELS
from simulator.traces.trace import NS_PER_S

AGENTS = (PPO, "dl2-rule", "dl2-pairs")
MANY = 5
"""Jobs of a slot from which on it counts as one of many."""


class Recording:
    """An agent whose tasks are counted. Invariant: it acts as the agent does."""

    def __init__(self, agent: Agent) -> None:
        """Count from the next episode on."""
        self._agent = agent
        self._env: Any = None
        self.shown: set[tuple[int, int]] = set()
        """Slots, by their time, and jobs that were shown in them."""
        self.workers: Counter[tuple[int, int]] = Counter()
        self.servers: Counter[tuple[int, int]] = Counter()
        """Tasks given to each job in each slot."""

    @property
    def deviations(self) -> int:
        """Return those of the agent."""
        return self._agent.deviations

    def begin(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        """Begin an episode, and count anew."""
        self._env = env.unwrapped
        for counted in (self.shown, self.workers, self.servers):
            counted.clear()
        self._agent.begin(env, seed)

    def act(self, observation: Any, mask: Mask | None) -> Any:
        """Return the agent's action."""
        action = self._agent.act(observation, mask)
        batch, slot = self._env.shown.batch, int(self._env.loop.now)
        self.shown.update((slot, job.index) for job in batch)
        row, kind = divmod(int(action), 3)
        if row < len(batch) and self._env.action_masks()[int(action)]:
            key = slot, batch[row].index
            self.workers[key] += kind in (WORKER, BOTH)
            self.servers[key] += kind in (SERVER, BOTH)
        return action


def tasks_and_jct(name: str, seeds: Sequence[int]) -> tuple[dict[str, Any], Mapping[str, FloatColumn]]:
    """Return the tasks of an agent by model, and the JCT of the jobs of each model over all seeds, seconds."""
    found = agent_of(f"agent:system={name}" if name in (PAPER, PPO) else name)
    options = found.options if isinstance(found, AgentInEnvironment) else {}
    agent = Recording(found.agent if isinstance(found, AgentInEnvironment) else found)
    jct_s: dict[str, list[float]] = {model: [] for model in MODELS}
    tasks: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    """Workers and servers of a job in a slot, and the jobs of that slot."""
    for seed in seeds:
        trace = MAIN.trace(seed)
        world = {"cluster": MAIN.cluster, "slowdown": MAIN.slowdown, "profiles": MAIN.profiles}
        env = make(ELASTIC, traces=(trace,), **{**world, "concurrent": CONCURRENT, **options})
        play(env, agent, seed, {"trace": trace})
        result = Result.of(env.unwrapped.simulation, name, 0.0)  # type: ignore[attr-defined] # it has jobs
        env.close()
        for model, each in zip(trace.model, (result.jct_ns / NS_PER_S).tolist(), strict=True):
            jct_s[model].append(each)
        jobs = Counter(slot for slot, _ in agent.shown)
        for key in agent.shown:
            tasks[trace.model[key[1]]].append((agent.workers[key], agent.servers[key], jobs[key[0]]))
    return {model: _tasks(tasks[model]) for model in MODELS}, {model: np.array(each) for model, each in jct_s.items()}


def _tasks(given: Sequence[tuple[int, int, int]]) -> dict[str, float | None]:
    workers, servers, jobs = np.array(given, dtype=np.float64).reshape(-1, 3).T
    return {
        "slots": len(given),
        "workers": _mean(workers),
        "servers": _mean(servers),
        "deviation": _rounded(workers.std()) if len(workers) else None,
        "alone": _mean(workers[jobs == 1]),
        "among_many": _mean(workers[jobs >= MANY]),
    }


def _mean(values: FloatColumn) -> float | None:
    return _rounded(values.mean()) if len(values) else None


def _rounded(value: SupportsFloat) -> float:
    return round(float(value), 3)


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.dl2.reproduction.by_model", description="DL2: tasks and JCT by model, as JSON."
    )
    parser.add_argument("--agents", nargs="+", default=AGENTS, help="agents; the others are compared with the last one")
    parser.add_argument("--seeds", type=int, default=30, help="number of test seeds")
    given = parser.parse_args(arguments)
    seeds = TEST_SEEDS[: given.seeds]
    found = {}
    for name in given.agents:
        found[name] = tasks_and_jct(name, seeds)
        progress(f"{name}: done")
    last = found[given.agents[-1]][1]
    jobs = sum(map(len, last.values()))
    return {
        "seeds": len(seeds),
        "models": {model: {"jobs": len(each)} for model, each in last.items()},
        "agents": {
            name: {
                model: {
                    **tasks[model],
                    "avg_jct_h": _mean(jct_s[model] / 3600),
                    "excess_s": round(float((jct_s[model] - last[model]).sum()) / jobs, 1),
                }
                for model in MODELS
            }
            for name, (tasks, jct_s) in found.items()
        },
    }


if __name__ == "__main__":
    sys.exit(answer(program))
