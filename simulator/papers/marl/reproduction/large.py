"""The agent on large data centers: `python -m simulator.papers.marl.reproduction.large [--k 20] [--seeds 1] [--rules tetris ...]`.

It prints one JSON object: milliseconds of inference for each decision and for each job (all its tasks), from the observation to the
action; and the average JCT in seconds over the seeds, beside rules and the lower bound. Seeds are test seeds. The data center is
the paper's (k = 20: 2,000 servers, 20 schedulers), for which the agent was not trained.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from policies.learned.evaluation.statistics import Mean, mean_as_json
from policies.learned.marl.system import agent
from policies.learned.training.agents import Mask
from policies.learned.training.systems import TEST_SEEDS
from simulator.papers.marl.env import MarlEnv
from simulator.papers.marl.reproduction.contenders import BASELINES, BOUND, CONTENTION_GREEDY, LOOKAHEAD_GREEDY, OURS
from simulator.papers.marl.reproduction.settings import JCT, run_agent, run_bound, run_rule, setting
from simulator.papers.marl.rules.named import RULES
from simulator.papers.programs import answer, progress


class Timed:
    """An agent whose decisions are timed. Invariant: `of_job` has the seconds of the decisions on each job so far."""

    deviations = 0

    def __init__(self, found: Any) -> None:
        self._agent = found
        self._env: MarlEnv
        self._episode = 0
        self.decisions_s: list[float] = []
        self.of_job: defaultdict[tuple[int, int], float] = defaultdict(float)

    def begin(self, env: Any, seed: int) -> None:
        """Begin an episode."""
        self._env = env.unwrapped
        self._episode += 1
        self._agent.begin(env, seed)

    def act(self, observation: Any, mask: Mask | None) -> Any:
        """Return the agent's action."""
        task = self._env.world.head(self._env.turn)
        assert task is not None
        begin = time.perf_counter()
        action = self._agent.act(observation, mask)
        taken = time.perf_counter() - begin
        self.decisions_s.append(taken)
        self.of_job[self._episode, task.job] += taken
        return action


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.marl.reproduction.large",
        description="MARL's agent on large data centers, as JSON.",
    )
    parser.add_argument("--weights", default="", help="a folder of weights; those that come with Headway")
    parser.add_argument("--k", type=int, default=20, help="ports of the fat-tree's switches")
    parser.add_argument("--intervals", type=int, default=10, help="intervals in which jobs arrive")
    parser.add_argument("--jobs", type=float, default=15.0, help="jobs in an interval at each 100 servers")
    parser.add_argument("--seeds", type=int, default=1, help="test traces")
    parser.add_argument(
        "--rules", nargs="*", choices=sorted(RULES), default=[*BASELINES, CONTENTION_GREEDY, LOOKAHEAD_GREEDY]
    )
    given = parser.parse_args(arguments)
    where = setting("large", "daily arrivals", k=given.k, intervals=given.intervals, jobs_per_interval=given.jobs)
    served = agent(given.weights)
    timed = Timed(served.agent)
    jct_s: defaultdict[str, list[float]] = defaultdict(list)
    for seed in TEST_SEEDS[: given.seeds]:
        jct_s[BOUND].append(run_bound(where, seed).figures[JCT])
        for name in given.rules:
            progress(f"{name}, seed {seed}")
            jct_s[name].append(run_rule(RULES[name](), where, seed).figures[JCT])
        progress(f"{OURS}, seed {seed}")
        jct_s[OURS].append(run_agent(type(served)(timed, served.env, served.options), where, seed).figures[JCT])
    return {
        "data_center": where.says,
        "decision_ms": _milliseconds(timed.decisions_s),
        "job_ms": _milliseconds(list(timed.of_job.values())),
        JCT: {name: mean_as_json(Mean.of(values)) for name, values in jct_s.items()},
        "load_average": os.getloadavg()[0],
    }


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    taken = np.array(seconds) * 1e3
    return {
        "count": len(taken),
        "mean": round(float(taken.mean()), 2),
        "median": round(float(np.median(taken)), 2),
        "p99": round(float(np.percentile(taken, 99)), 2),
    }


if __name__ == "__main__":
    sys.exit(answer(program))
